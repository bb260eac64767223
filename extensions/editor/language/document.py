"""A text that an editor shows, with everything that the checker knows of it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ....graphs.advice import advise
from ....graphs.checker.check import Explored
from ....graphs.ir.block_type import Registry
from ....plugin import (
    DOCUMENTS,
    Finding,
    Graph,
    InputError,
    Node,
    Scope,
    Source,
    SpecError,
    ValueType,
    at_most,
    document_of,
    explored,
    pointer,
    registry,
)
from ....specs.expressions import ExpressionError, evaluate, is_expression
from ....specs.form import Kind, kind_of
from ....specs.json_tree import TextValue, tree
from ....specs.load import LoadedSpec, load_as
from ....specs.reader import read_json

if TYPE_CHECKING:
    from ....plugin import RunPlan

_KEPT = 16
"""Number of texts of which the answers are kept."""


class Site(NamedTuple):
    """Where a pointer of a spec lies."""

    scope: str
    """Pointer of the scope: empty for the spec itself, or `/blocks/NAME`."""
    node: str
    """Name of the node; empty outside of nodes."""
    use: tuple[str, ...]
    """Path of the innermost use of a block, or of the node, or of the scope."""
    below: tuple[str, ...]
    """Path below `use`, such as `("params", "heads")`."""


@dataclass(frozen=True, eq=False)
class TextDocument:
    """One version of a text; `document` makes it."""

    text: str
    path: str
    """Its file, next to which the specs that it names are searched; it need not exist."""
    kind: Kind
    loaded: LoadedSpec | None = field(repr=False)
    """The spec with its parents, as far as it can be read."""
    explored: Explored = field(repr=False)
    """Graph, insides of templates, and findings; the findings of the text as it is, strictly read.
    """
    plan: RunPlan | None = field(default=None, repr=False)
    """The plan of a run, as far as it can be read."""

    @functools.cached_property
    def root(self) -> TextValue:
        """The text as far as it can be read."""
        return tree(self.text)

    @property
    def graph(self) -> Graph | None:
        """The graph, as far as it is known; see `graphs.checker.check.explore`."""
        return self.explored.graph

    @property
    def valid(self) -> bool:
        """Whether the text has no errors."""
        return all(finding.level == "warning" for finding in self.explored.findings)

    @property
    def registry(self) -> Registry:
        """The blocks that the spec may name."""
        return registry(self.loaded.blocks if self.loaded else ())

    @functools.cached_property
    def values(self) -> Mapping[str, Any]:
        """Params of the spec with their values, as far as they are known."""
        return dict(self.graph.params) if self.graph else {}

    @functools.cached_property
    def merged(self) -> Mapping[str, Any]:
        """The spec as JSON data, with what it inherits; its pointers are those of the graph."""
        return _data(self.loaded)

    @functools.cached_property
    def base(self) -> LoadedSpec | None:
        """The spec without its own patches and params, as far as it can be read."""
        value = self.root.json()
        if not isinstance(value, dict) or "patch" not in value:
            return self.loaded
        unpatched = {key: inner for key, inner in value.items() if key not in ("patch", "params")}
        try:
            return load_as(unpatched, Source(self.path, self.text))
        except (SpecError, InputError):
            return self.loaded

    @functools.cached_property
    def unpatched(self) -> Mapping[str, Any]:
        """The spec as JSON data without its own patches; their selections are matched with it."""
        base, params = _data(self.base), self.root.json().get("params", {})
        if not isinstance(params, dict):  # a finding says so
            return base
        return {**base, "params": {**base.get("params", {}), **params}} if params else base

    def scope(self, at: str) -> Scope | None:
        """Return a scope by its pointer: empty for the spec itself, or `/blocks/NAME`."""
        if not at:
            return self.graph.root if self.graph else None
        return self.explored.templates.get(at.removeprefix("/blocks/"))

    def node(self, scope: str, name: str) -> Node | None:
        """Return a node of a scope, if its block is known."""
        body = self.scope(scope)
        return next((node for node in body.nodes if node.name == name), None) if body else None

    def type_of(self, scope: str, value: str) -> ValueType | None:
        """Return the type of `node.port`, or of an input of the scope, if it is known."""
        body = self.scope(scope)
        try:
            return body.type_of(value) if body else None
        except KeyError:
            return None

    def value_of(self, written: Any) -> Any:
        """Return the value of an expression, or what is written if it is none.

        Raises:
            ExpressionError: the expression has no value.
        """
        return evaluate(written[1:], self.values) if is_expression(written) else written

    def written(self, scope: str) -> Mapping[str, Any]:
        """Return the record of a scope as JSON data, with what it inherits."""
        if not scope:
            return self.merged
        template = self.merged.get("blocks", {}).get(scope.removeprefix("/blocks/"), {})
        return template if isinstance(template, dict) else {}

    def nodes(self, scope: str) -> Mapping[str, Any]:
        """Return the nodes of a scope as JSON data, with those that it inherits."""
        records = self.written(scope).get("nodes", {})
        return records if isinstance(records, dict) else {}


def site(path: tuple[str, ...]) -> Site:
    """Return where a path of keys of a spec lies.

    >>> site(("blocks", "layer", "nodes", "a", "fill", "f", "params", "heads"))[2:]
    (('blocks', 'layer', 'nodes', 'a', 'fill', 'f'), ('params', 'heads'))
    """
    cut = 2 if path[:1] == ("blocks",) and len(path) > 1 else 0
    scope, node = pointer(*path[:cut]), ""
    if path[cut : cut + 1] == ("nodes",) and len(path) > cut + 1:
        node, cut = path[cut + 1], cut + 2
    elif path[:1] == ("patch",) and path[2:3] and path[2] in ("insert_before", "insert_after"):
        cut = min(len(path), 4)
    while node and path[cut : cut + 1] == ("fill",) and len(path) > cut + 1:
        cut += 2
    return Site(scope, node, path[:cut], path[cut:])


@functools.lru_cache(maxsize=_KEPT)
def document(text: str, path: str) -> TextDocument:
    """Return what is known of a text; the answers about the last few texts are kept.

    Args:
        text: the text of the editor.
        path: its file, for messages and for the specs that it names.  Of a file that does not
            exist, the folder counts.
    """
    source = Source(path, text)
    findings: list[Finding] = []
    try:
        value = strict = read_json(text, source)
    except SpecError as error:
        findings, strict = list(error.findings), None
        value = tree(text).json()
    kind = kind_of(value)
    if kind != "spec" and kind in DOCUMENTS.names():
        plan = None
        if not findings:
            plan, findings = _checked(kind, strict, source)
        return TextDocument(text, path, kind, None, Explored(None, {}, findings), plan)
    if kind != "spec":
        findings = findings if text.strip() else []
        return TextDocument(text, path, "other", None, Explored(None, {}, findings))
    loaded, analysis = _explored(value, source)
    if findings:  # those of the mended text have other places
        analysis = analysis._replace(findings=findings)
    elif analysis.graph is not None and not analysis.findings and loaded is not None:
        warnings = at_most(loaded.place_all(advise(analysis.graph)), source)
        analysis = analysis._replace(findings=warnings)
    return TextDocument(text, path, kind, loaded, analysis)


def _data(loaded: LoadedSpec | None) -> Mapping[str, Any]:
    """Return a merged spec as JSON data."""
    if loaded is None:
        return {}
    return loaded.recovered.model_dump(mode="json", by_alias=True, exclude_unset=True)


def forget() -> None:
    """Forget all answers: a file that some text may read has changed."""
    document.cache_clear()


def _explored(value: Any, source: Source) -> tuple[LoadedSpec | None, Explored]:
    """Check a spec, which may have mistakes."""
    try:
        loaded = load_as(value, source)
    except SpecError as error:
        findings = list(error.findings)
    except InputError as error:
        findings = [as_finding(error, source)]
    else:
        return loaded, explored(loaded)
    if not value.get("patch"):
        return None, Explored(None, {}, findings)
    unpatched = {key: inner for key, inner in value.items() if key != "patch"}
    parent, analysis = _explored(unpatched, source)  # what the patches can select
    return parent, analysis._replace(findings=findings)


def as_finding(error: InputError, source: str) -> Finding:
    """Return an error that has no place in the text as a finding about the file."""
    problem = f"{error.problem} ({error.location})" if error.location else error.problem
    return Finding(code="", at="", problem=problem, help=error.help, source=source)


def _checked(kind: Kind, value: Any, source: Source) -> tuple[RunPlan | None, list[Finding]]:
    """Return the plan of a run, and the findings of a file that is not a spec."""
    try:
        checked = document_of(kind).check(value, source)
    except SpecError as error:
        return None, [*error.findings]
    except InputError as error:
        return None, [as_finding(error, source)]
    return checked.plan, checked.findings


def evaluated(doc: TextDocument, params: Any) -> dict[str, Any]:
    """Return the params of a use with their values, without those that have none."""
    values = {}
    for name, written in params.items() if isinstance(params, dict) else ():
        try:
            values[name] = doc.value_of(written)
        except ExpressionError:
            continue
    return values
