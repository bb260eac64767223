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
        return [problem.finding for problem in self.problems if problem.severity == "error"]

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
    doc = document(text, source)
    problems = tuple(findings(text, source))
    if doc.plan is not None and doc.valid:  # a model has the sizes of its run
        return Read(text, source, problems, doc.plan.graph, settings=doc.plan.passes)
    if doc.loaded is None:
        return Read(text, source, problems)
    if doc.valid:
        return Read(text, source, problems, doc.graph, doc.loaded)
    return Read(
        text,
        source,
        problems,
        loaded=doc.loaded,
        partial=partial(doc.loaded, doc.known.unplaced),
    )


def look(
    reading: Read,
    key: str = "",
    sizes: Mapping[str, int] | None = None,
    last: PassName | None = None,
) -> dict[str, Any]:
    """Return what the studio shows of a text: findings, and the drawing.

    Args:
        reading: the text.
        key: what is folded, as in a scene.
        sizes: axis to its length.
        last: show the model after this pass of training.

    Raises:
        InputError: a size is wrong, or the drawing would have too many boxes.
    """
    view: dict[str, Any] = {
        "findings": [_finding(problem, reading.source) for problem in reading.problems]
    }
    graph = reading.graph or (reading.partial.graph if reading.partial else None)
    if graph is None:
        return view
    if last is not None:
        graph = after(graph, reading.settings, last)
    folds = read_key(key)
    foldable_paths = foldable(graph)
    valid_key = " ".join(word for word in key.split() if word[1:] in foldable_paths)
    drawn = scene(
        graph, [folds if valid_key == key else read_key(valid_key)], sizes=_known(graph, sizes)
    )
    if reading.loaded is not None:
        add_origins(drawn, origins(reading.loaded, drawn))
    view |= {"scene": drawn, "key": valid_key, "partial": reading.graph is None}
    view["editable"] = reading.editable is not None
    if reading.partial is not None:
        view["missing"] = list(reading.partial.missing)
    return view


def _known(graph: Graph, sizes: Mapping[str, int] | None) -> dict[str, int]:
    return {axis: size for axis, size in (sizes or {}).items() if axis in graph.spec.axes}


def origins(loaded: LoadedSpec, drawn: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the file and the pointer where each node of a scene is written."""
    located = {}
    for path, fact in drawn["facts"].items():
        if fact["at"]:
            file, at = loaded.origin_of(fact["at"])
            located[path] = {"file": str(file), "pointer": at}
    return located


def _finding(problem: Problem, source: str) -> dict[str, Any]:
    """Return a finding for the page: with its pointer, and whether it is in this file."""
    finding = problem.finding
    is_local = str(finding.source) in (source, "")
    return {
        **problem.as_json(),
        "pointer": finding.at,
        "here": is_local,
        "problem": finding.problem,
    }
