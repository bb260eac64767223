"""Reading: the text of a spec or a run, checked, with the graph that the studio draws."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ....graphs.draw.scene.facts import foldable
from ....graphs.draw.scene.page import add_origins
from ....graphs.draw.scene.scene import read_key, scene
from ....graphs.ir.graph import Graph
from ....graphs.passes.pipeline import PassName, Settings, after
from ....specs.findings import Finding
from ....specs.load import LoadedSpec
from ..language.document import document
from ..language.problems import Problem, findings
from .partial import Partial, partial


@dataclass(frozen=True, slots=True)
class Read:
    """A text, and what the checker says of it."""

    text: str
    source: str
    problems: tuple[Problem, ...] = ()
    graph: Graph | None = None
    """The graph; None if there are errors."""
    loaded: LoadedSpec | None = None
    """The spec; None for a run, and where the text is not a spec."""
    settings: Settings = field(default_factory=Settings)
    """The passes of training."""
    partial: Partial | None = None
    """What can be drawn of a spec with mistakes."""

    @property
    def errors(self) -> list[Finding]:
        """The findings that keep it from being built."""
        return [one.finding for one in self.problems if one.severity == "error"]

    @property
    def editable(self) -> Graph | None:
        """The graph that clicks edit: all nodes, or those that do not depend on a mistake.

        It is None where the form of the spec is wrong, such as its JSON: a text is edited by keys.
        """
        if self.loaded is None or any(finding.code[0] == "S" for finding in self.errors):
            return None
        return self.graph or (self.partial.graph if self.partial else None)


def read(text: str, source: str) -> Read:
    """Check the text of a spec or a run as if it were the content of a file.

    Args:
        text: the text, which may be broken.
        source: the path of the file.
    """
    known = document(text, source)
    problems = tuple(findings(text, source))
    if known.plan is not None and known.valid:  # a model has the sizes of its run
        return Read(text, source, problems, known.plan.graph, settings=known.plan.passes)
    if known.loaded is None:
        return Read(text, source, problems)
    if known.valid:
        return Read(text, source, problems, known.graph, known.loaded)
    return Read(
        text,
        source,
        problems,
        loaded=known.loaded,
        partial=partial(known.loaded, known.known.unplaced),
    )


def look(
    one: Read,
    key: str = "",
    sizes: Mapping[str, int] | None = None,
    last: PassName | None = None,
) -> dict[str, Any]:
    """Return what the studio shows of a text: findings, and the drawing.

    Args:
        one: the text.
        key: what is folded, as in a scene.
        sizes: axis to its length.
        last: show the model after this pass of training.

    Raises:
        InputError: a size is wrong, or the drawing would have too many boxes.
    """
    made: dict[str, Any] = {"findings": [_finding(each, one.source) for each in one.problems]}
    graph = one.graph or (one.partial.graph if one.partial else None)
    if graph is None:
        return made
    if last is not None:
        graph = after(graph, one.settings, last)
    folds = read_key(key)
    known = foldable(graph)
    kept = " ".join(word for word in key.split() if word[1:] in known)
    drawn = scene(graph, [folds if kept == key else read_key(kept)], sizes=_known(graph, sizes))
    if one.loaded is not None:
        add_origins(drawn, origins(one.loaded, drawn))
    made |= {"scene": drawn, "key": kept, "partial": one.graph is None}
    made["editable"] = one.editable is not None
    if one.partial is not None:
        made["missing"] = list(one.partial.missing)
    return made


def _known(graph: Graph, sizes: Mapping[str, int] | None) -> dict[str, int]:
    return {axis: size for axis, size in (sizes or {}).items() if axis in graph.spec.axes}


def origins(loaded: LoadedSpec, drawn: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the file and the pointer where each node of a scene is written."""
    found = {}
    for path, fact in drawn["facts"].items():
        if fact["at"]:
            file, at = loaded.origin_of(fact["at"])
            found[path] = {"file": str(file), "pointer": at}
    return found


def _finding(problem: Problem, source: str) -> dict[str, Any]:
    """Return a finding for the page: with its pointer, and whether it is in this file."""
    found = problem.finding
    here = str(found.source) in (source, "")
    return {**problem.as_json(), "pointer": found.at, "here": here, "problem": found.problem}
