"""What can be drawn of a spec with mistakes: everything that does not depend on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .... import WeftError
from ....graphs.checker.check import analyse
from ....graphs.draw.facts import foldable
from ....graphs.draw.html_page import add_origins
from ....graphs.draw.scene import read_key, scene
from ....graphs.passes.pipeline import PassName, PassSettings, after
from ....plugin import Finding, Graph, registry
from ....specs.json_tree import parts_of
from ....specs.load import LoadedSpec, loaded
from ....specs.references import references, templates_used
from ..language.document import document
from ..language.problems import Problem, findings

_UNREAD = "W03"
"""Finding of a node, or a template, that nothing reads."""
_UNREAD_INPUT = "W04"
_ROUNDS = 6
"""Maximum number of checks: without the nodes with mistakes, others may be found."""
_WHOLE = ("tie", "step", "require", "budget", "deploy", "losses", "init", "freeze")
"""Parts that speak of nodes that may be missing."""


@dataclass(frozen=True, slots=True)
class _Partial:
    """The part of a spec without mistakes."""

    graph: Graph
    missing: tuple[str, ...]
    """Nodes of the root that are left out."""


def partial(spec: LoadedSpec, findings: Iterable[Finding]) -> _Partial | None:
    """Return the nodes of a spec that can be checked without its mistakes, or None.

    Args:
        spec: the spec.
        findings: the findings of its check, with the pointers of the merged spec.
    """
    try:
        value = spec.recovered.model_dump(mode="json", by_alias=True, exclude_unset=True)
        for name in spec.overrides:
            value.setdefault("params", {})[name] = spec.overrides[name]
        every = [*value.get("nodes", {})]
        blocks = registry(spec.blocks)
        lost = {parts_of(at)[1] for at in spec.lost.words if at.startswith("/nodes/")}
        value = _without(value, [*findings, *spec.mistakes], lost)
        for _ in range(_ROUNDS):
            if not value.get("nodes"):
                return None
            graph, findings = analyse(loaded(value).recovered, blocks)
            if graph is not None:
                return _Partial(graph, tuple(n for n in every if n not in value["nodes"]))
            smaller = _without(value, findings, set())
            if smaller == value:
                return None
            value = smaller
    except WeftError:
        return None
    return None


def _without(
    value: Mapping[str, Any], findings: Iterable[Finding], gone: set[str]
) -> dict[str, Any]:
    """Return a spec without the nodes that findings are about, and those that depend on them."""
    gone = {*gone}
    value, findings = _read_out(value, findings)
    unused: dict[str, set[str]] = {"params": set(), "inputs": set(), "blocks": set(), "axes": set()}
    templates: set[str] = set()
    for finding in findings:
        way = parts_of(finding.at)
        if len(way) > 1 and way[0] == "nodes":
            gone.add(way[1])
        elif len(way) > 2 and way[0] == "blocks":  # noqa: PLR2004 - a part of a template
            templates.add(way[1])
        elif len(way) > 1 and way[0] in unused:
            unused[way[0]].add(way[1])
    nodes = dict(value.get("nodes", {}))
    gone |= {n for n, node in nodes.items() if templates & templates_used(value, {n: node})}
    gone = _with_readers(gone, nodes)
    remaining = {name: node for name, node in nodes.items() if name not in gone}
    spec = {key: part for key, part in value.items() if key not in _WHOLE} | {"nodes": remaining}
    outputs = {
        name: end
        for name, end in value.get("outputs", {}).items()
        if isinstance(end, str) and end.partition(".")[0] in remaining
    }
    read = {*outputs.values()}.union(*_sources(remaining).values())
    sources = {end.partition(".")[0] for end in read}
    # What nothing reads is drawn, with an output of its own.
    for name, node in remaining.items():
        if name not in sources:
            outputs[f"{name}_"] = f"{name}.{_output(node, value)}"
    spec["outputs"] = outputs
    inputs = value.get("inputs", {})
    outputs |= {f"{name}_": name for name in inputs if name not in read}
    for key, names in unused.items():
        if names and key in spec:
            spec[key] = {n: part for n, part in spec[key].items() if n not in names}
    if "blocks" in spec:
        uses = templates_used(value, remaining)
        spec["blocks"] = {n: part for n, part in spec["blocks"].items() if n in uses}
    return spec


def _with_readers(gone: Iterable[str], nodes: Mapping[str, Any]) -> set[str]:
    """Return some nodes, and all that depend on them."""
    readers: dict[str, list[str]] = {}
    for name, sources in _sources(nodes).items():
        for source in sources:
            readers.setdefault(source, []).append(name)
    removed, waiting = {*gone}, [*gone]
    while waiting:
        more = [name for name in readers.get(waiting.pop(), ()) if name not in removed]
        removed.update(more)
        waiting += more
    return removed


def _sources(nodes: Mapping[str, Any]) -> dict[str, set[str]]:
    """Return the nodes and inputs that each node reads, or of which it shares the module."""
    sources: dict[str, set[str]] = {name: set() for name in nodes}
    for text in references({"nodes": nodes}):
        if text.kind in ("node", "input") and not text.in_key:
            sources[parts_of(text.at)[1]].add(text.name)
    return sources


def _read_out(
    value: Mapping[str, Any], findings: Iterable[Finding]
) -> tuple[Mapping[str, Any], list[Finding]]:
    """Return a spec in which what findings call unread is read or gone, and the other findings.

    A node of a template gets an output of the template, or is left out where the template fills a
    slot, which takes one output. An input of a template is left out with its wires.
    """
    blocks = dict(value.get("blocks", {}))
    filling = {
        text.name
        for text in references(value)
        if text.kind == "template" and not {"fill", "params"}.isdisjoint(parts_of(text.at))
    }
    in_slots = templates_used(value, {name: {"use": name} for name in filling})
    idle: dict[str, set[str]] = {}
    remaining = []
    for finding in findings:
        way = parts_of(finding.at)
        part = (finding.code, *way[:-1:2])
        if part in ((_UNREAD, "nodes"), (_UNREAD_INPUT, "inputs")):
            continue  # these get an output of the spec
        if part not in ((_UNREAD, "blocks", "nodes"), (_UNREAD_INPUT, "blocks", "inputs")):
            remaining.append(finding)
            continue
        _, name, kind, entry = way
        body = {**blocks[name], kind: dict(blocks[name][kind])}
        if kind == "inputs":
            idle.setdefault(name, set()).add(entry)
            del body["inputs"][entry]
        elif name in in_slots:
            del body["nodes"][entry]
        else:
            output = f"{entry}.{_output(body['nodes'][entry], value)}"
            body["outputs"] = {**body["outputs"], f"{entry}_": output}
        blocks[name] = body
    spec = {**value, **({"blocks": blocks} if blocks else {})}
    if idle:
        spec["nodes"] = _without_wires(value, spec.get("nodes", {}), idle)
        spec["blocks"] = {
            name: {**body, "nodes": _without_wires(value, body["nodes"], idle)}
            for name, body in blocks.items()
        }
    return spec, remaining


def _without_wires(
    spec: Mapping[str, Any], nodes: Mapping[str, Any], idle: Mapping[str, set[str]]
) -> dict[str, Any]:
    """Return nodes without the wires to inputs of templates that are left out."""
    connected = {}
    for name, node in nodes.items():
        used = templates_used(spec, {name: node}, inside=False)
        gone = {port for template in used for port in idle.get(template, ())}
        wires = {port: end for port, end in (node.get("in") or {}).items() if port not in gone}
        connected[name] = {**node, "in": wires} if "in" in node else node
    return connected


def _output(node: Any, value: Mapping[str, Any]) -> str:
    """Return the name of an output of a node: that of its template, or `y`."""
    body = value.get("blocks", {}).get(node.get("block", node.get("use", "")), {})
    block = registry().get(str(node.get("use", "")))
    if block is not None:
        signature = block.signature(
            block.params.model_validate(block.example), frozenset(block.example_inputs)
        )
        return signature.outputs[0].name
    return next(iter(body.get("outputs", {})), "y")


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A text, and what the checker says of it."""

    text: str
    source: str
    problems: tuple[Problem, ...] = ()
    graph: Graph | None = None
    """The graph; None if there are errors."""
    loaded: LoadedSpec | None = None
    """The spec; None for a run, and where the text is not a spec."""
    settings: PassSettings = field(default_factory=PassSettings)
    """The passes of training."""
    partial: _Partial | None = None
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


def read(text: str, source: str) -> CheckedText:
    """Check the text of a spec or a run as if it were the content of a file.

    Args:
        text: the text, which may be broken.
        source: the path of the file.
    """
    doc = document(text, source)
    problems = tuple(findings(text, source))
    if doc.plan is not None and doc.valid:  # a model has the sizes of its run
        return CheckedText(text, source, problems, doc.plan.graph, settings=doc.plan.passes)
    if doc.loaded is None:
        return CheckedText(text, source, problems)
    if doc.valid:
        return CheckedText(text, source, problems, doc.graph, doc.loaded)
    return CheckedText(
        text,
        source,
        problems,
        loaded=doc.loaded,
        partial=partial(doc.loaded, doc.explored.unplaced),
    )


def look(
    reading: CheckedText,
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
