"""Outline: a graph as a text table of nodes with types, parameters, FLOPs, ties and axes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ..cost.flops import default_sizes, flops, flops_by_node
from ..ir.graph import Graph, Part, RepeatNode, Scope, last_result
from ..ir.traverse import Visit, find_weight, fixed_weights, visits
from ..ir.value_type import ValueType
from ..passes.freeze import marked_frozen
from ..passes.unpad import plan_unpad
from .labels import number, salient


@dataclass(frozen=True, slots=True, kw_only=True)
class OutlineLine:
    """One line of an outline: a node, or the block in a slot of one."""

    depth: int
    """Indentation level; 0 at the root."""
    path: str
    """Path as a patch selects it: `decoder.*.self_attention/f`."""
    name: str
    use: str
    """The block's key, or the name of the template."""
    params: Mapping[str, Any]
    """Params of the block; empty for a template."""
    shown: str
    """The distinguishing params, on one line."""
    repeat: int | None
    """Number of copies of a repeated template; None for anything else."""
    inputs: Mapping[str, ValueType]
    outputs: Mapping[str, ValueType]
    weights: Mapping[str, tuple[int, ...]]
    """Shapes of its own parameters, without those of slots and nodes below it."""
    per_copy: int
    """Number of parameters of one copy, including everything below it."""
    parameters: int
    """Number of parameters of all its copies; those that are tied to one another count once."""
    tied: int
    """How many of `parameters` are counted elsewhere, because they are tied to others."""
    flops: int = 0
    """FLOPs of all its copies in one forward pass; 0 in slots, which count for their node."""


def outline(graph: Graph, sizes: Mapping[str, int] | None = None) -> list[OutlineLine]:
    """Return the tree of a graph, with a line for each node; templates are listed once.

    Args:
        graph: the graph.
        sizes: axis to its length, for FLOPs; by default those of `default_sizes`.
    """
    tied, again = Counter[str](), Counter[str]()
    shapes = graph.root.weights() if graph.ties else {}
    for group in graph.ties:
        size = prod(shapes[group[0]])
        lines = [[*above(find_weight(graph.root, weight).line)] for weight in group]
        for line, times in Counter(line for group in lines for line in group).items():
            again[line] += size * (times - 1)
            tied[line] += 0 if line in lines[0] else size
    work: Counter[str] = Counter()
    for path, cost in flops_by_node(graph, sizes or default_sizes(graph)).items():
        for line in above(path.partition("/")[0]):
            work[line] += cost
    return [*_lines(marked_frozen(graph), tied, again, work)]


def above(line: str) -> Iterator[str]:
    """Yield the path of a line and the paths of the lines that it is indented under.

    >>> list(above("stack.*.one/f.map"))
    ['stack.*.one/f.map', 'stack.*.one/f', 'stack.*.one', 'stack']
    """
    names = re.split(r"([./])", line)
    for count in range(len(names), 0, -2):
        if names[count - 1] != "*" and not names[count - 1].isdecimal():
            yield "".join(names[:count])


def _lines(
    graph: Graph, tied: Mapping[str, int], again: Mapping[str, int], work: Mapping[str, int]
) -> Iterator[OutlineLine]:
    """Yield the lines of a graph; arguments as of `_line`."""
    depths: dict[str, int] = {}
    scopes = {"": graph.root}
    for visit in visits(graph.root):
        if visit.parent is not None and not visit.parent.sets:
            continue  # inside a node that applies the module of another
        around = visit.parent.path if visit.parent is not None else ""
        depth = depths[around] + 1 if visit.parent is not None else 0
        if visit.body is not None:
            scopes[visit.path] = visit.body
        if visit.kind == "index" and not (
            isinstance(visit.node, RepeatNode) and visit.node.instead
        ):
            depths[visit.path] = depths[around]  # identical copies have no line of their own
            continue
        depths[visit.path] = depth
        line = _line(visit, scopes.get(around, graph.root), depth, tied, work)
        yield _counted_once(line, again[line.path]) if visit.kind != "index" else line


def _line(
    visit: Visit, scope: Scope, depth: int, tied: Mapping[str, int], work: Mapping[str, int]
) -> OutlineLine:
    """Return the line of a visit.

    Args:
        visit: the visit to describe.
        scope: the enclosing scope.
        depth: indentation level of the line.
        tied: path to the number of parameters that are counted elsewhere.
        work: path to the FLOPs of all copies.
    """
    node, part, repeat = visit.node, visit.part, None
    name = visit.pieces[-1][1]
    params: Mapping[str, Any] = {}
    shown, weights = "", _NO_WEIGHTS
    if part is not None:
        use, inputs, outputs = part.key, part.inputs, part.outputs
        per_copy = part.parameters() if isinstance(part, Part) else part.body.parameters()
        total = per_copy * visit.sets
        if isinstance(part, Part):
            params, shown = _params(part), _shown_params(part)
            shown = f"{shown} frozen".lstrip() if visit.kind == "name" and node.frozen else shown
            weights = part.own_weights() if visit.sets else {}
    elif visit.kind == "index" and visit.body is not None:
        use, inputs, outputs = visit.body.name, visit.body.inputs, visit.body.gives()
        per_copy = visit.body.parameters()
        total = per_copy * visit.sets
        around = visit.parent.runs if visit.parent is not None else 1
        repeat = visit.runs // around if visit.runs > around else None
    else:
        use = visit.body.name if visit.body is not None else ""
        use = f"shares {node.shares}" if node.shares else use
        shown = "frozen" if node.frozen else ""
        inputs = {port: scope.type_of(value) for port, value in node.wires.items()}
        outputs = node.outputs
        total = node.parameters() * visit.sets
        copies = 1
        if isinstance(node, RepeatNode):
            repeat, copies = node.repeat, 1 if node.share else node.repeat
        differ = isinstance(node, RepeatNode) and bool(node.instead)
        per_copy = 0 if differ or not visit.sets else total // (visit.sets * copies)
    return OutlineLine(
        depth=depth,
        path=visit.path,
        name=name,
        use=use,
        params=params,
        shown=shown,
        repeat=repeat,
        inputs=inputs,
        outputs=outputs,
        weights=weights,
        per_copy=per_copy,
        parameters=total,
        tied=0 if visit.kind == "index" else tied.get(visit.path, 0),
        flops=work.get(visit.path, 0),
    )


def _counted_once(line: OutlineLine, again: int) -> OutlineLine:
    """Return a line without the parameters that are tied to others of the line.

    Args:
        line: the line.
        again: how many there are in all copies; none of a copy alone if copies share tensors.
    """
    if not again:
        return line
    total = line.parameters - again
    copies = line.parameters // line.per_copy if line.per_copy else 1
    per_copy = total // copies if line.per_copy and total % copies == 0 else 0
    return replace(line, parameters=total, per_copy=per_copy)


_NO_WEIGHTS: Mapping[str, tuple[int, ...]] = {}


@last_result
def _params(part: Part) -> Mapping[str, Any]:
    return part.params.model_dump()


@last_result
def _shown_params(part: Part) -> str:
    """Return the distinguishing params as `name=value`."""
    words = (
        f"{name}={str(value).lower() if isinstance(value, bool) else number(value)}"
        for name, value in salient(part)
    )
    return "".join(char if char.isprintable() else "?" for char in " ".join(words))


def render(graph: Graph) -> str:
    """Return the outline as text in columns."""
    lines = outline(graph)
    total = graph.parameters()
    rows = [("node", "block", "types", "each", "parameters", "share", "MFLOP")]
    for line in lines:
        times = f" × {line.repeat}" if line.repeat is not None else ""
        share = "tied" if line.tied and line.tied == line.parameters else ""
        if not share and line.parameters and total:
            share = f"{(line.parameters - line.tied) / total:.1%}"
        rows.append(
            (
                "  " * line.depth + line.name + times,
                f"{line.use} {line.shown}".rstrip(),
                f"{_types(line.inputs)} -> {_types(line.outputs)}",
                f"{line.per_copy:,}" if line.per_copy and line.per_copy != line.parameters else "",
                f"{line.parameters:,}" if line.parameters else "",
                share,
                _millions(line.flops) if line.flops else "",
            )
        )
    work = sum(line.flops for line in lines if line.depth == 0)
    rows.append(("total", "", "", "", f"{total:,}", "100.0%" if total else "", _millions(work)))
    width = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    aligned = [
        "  ".join(
            text.ljust(width[column]) if column < _NUMBERS else text.rjust(width[column])
            for column, text in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, aligned))
    table = [aligned[0], rule, *aligned[1:-1], rule, aligned[-1]]
    return "\n".join([*_head(graph), "", *table, "", *_foot(graph)]) + "\n"


_NUMBERS = 3
"""Index of the first numeric column; numeric columns are right-aligned."""


def _millions(count: int) -> str:
    """Return a number in millions with one decimal, however large it is.

    >>> _millions(4_068_737_024)
    '4,068.7'
    """
    tenths = (count + 50_000) // 100_000
    return f"{tenths // 10:,}.{tenths % 10}"


def _types(types: Mapping[str, ValueType]) -> str:
    """Format the types of some ports, each once."""
    return ", ".join(dict.fromkeys(map(str, types.values()))) or "nothing"


def _head(graph: Graph) -> list[str]:
    """Return the lines before the table: doc, inputs and outputs."""
    doc = "".join(char if char.isprintable() else " " for char in graph.doc)
    ends = [("in", graph.inputs), ("out", graph.outputs)]
    rows = [(what, name, str(type_)) for what, types in ends for name, type_ in types.items()]
    width = max((len(name) for _, name, _ in rows), default=0)
    total, fixed = graph.parameters(), _fixed(graph)
    trained = f", of which {total - fixed:,} train" if fixed else ""
    return [
        f"{graph.name}: {total:,} parameters{trained}",
        *([doc] if doc else []),
        "",
        *(f"{what:<3}  {name.ljust(width)}  {type_}" for what, name, type_ in rows),
    ]


def _fixed(graph: Graph) -> int:
    """Return the number of parameters that rules of the spec freeze; tied ones count once."""
    fixed = fixed_weights(graph)
    return (
        sum(prod(shape) for path, shape in graph.weights().items() if path in fixed) if fixed else 0
    )


def _foot(graph: Graph) -> list[str]:
    """Return the lines after the table: ties, axes, decoding, unpadding."""
    axes = ", ".join(f"{axis} {kind}" for axis, kind in graph.spec.axes.items())
    axis = graph.step_axis
    sizes = " ".join(f"{name}={size}" for name, size in default_sizes(graph).items())
    decodes = f"step by step along {axis}" if axis else "no: the spec names no axis in 'step'"
    return [
        *(f"tied     {' = '.join(group)}" for group in graph.ties),
        f"axes     {axes}",
        f"decodes  {decodes}",
        f"unpads   {_unpads(graph)}",
        f"MFLOP    of matrix products in one forward pass of {sizes}",
    ]


def _unpads(graph: Graph) -> str:
    """Describe which axes training can unpad, and which blocks still get padded inputs."""
    plan = plan_unpad(graph)
    if not plan.axes:
        return f"no: {plan.why}"
    padded = ", ".join(dict.fromkeys(around.block for around in plan.blocks.values()))
    exceptions = "".join(f"; not {axis}: {why}" for axis, why in plan.padded.items())
    but = f", except in {padded}" if padded else ""
    return f"{' and '.join(plan.axes)} in training{but}{exceptions}"


def weights_of(graph: Graph) -> list[dict[str, Any]]:
    """Return the parameters of a graph as plain data, each tensor once.

    Returns:
        The `path` of each, as in a checkpoint, its `shape`, and the paths that are `tied` to it.
    """
    tied = {group[0]: list(group[1:]) for group in graph.ties}
    return [
        {"path": path, "shape": list(shape), "tied": tied.get(path, [])}
        for path, shape in graph.weights().items()
    ]


def render_weights(graph: Graph) -> str:
    """Return the paths of the parameters of a graph as text in columns, with their shapes."""
    rows = weights_of(graph)
    width = max((len(row["path"]) for row in rows), default=0)
    lines = []
    for row in rows:
        shape = " × ".join(map(str, row["shape"])) or "scalar"
        lines.append("  ".join([row["path"].ljust(width), shape, *(f"= {p}" for p in row["tied"])]))
    return "\n".join([f"{graph.name}: {graph.parameters():,} parameters", "", *lines]) + "\n"


def as_json(graph: Graph) -> dict[str, Any]:
    """Return the outline as nested plain data."""
    root: list[dict[str, Any]] = []
    open_: list[list[dict[str, Any]]] = [root]
    for line in outline(graph):
        del open_[line.depth + 1 :]
        item = _line_json(line)
        open_[-1].append(item)
        open_.append(item["nodes"])
    return {
        "name": graph.name,
        "doc": graph.doc,
        "source": graph.source,
        "parameters": graph.parameters(),
        "trained": graph.parameters() - _fixed(graph),
        "flops": {"sizes": default_sizes(graph), "total": flops(graph, default_sizes(graph))},
        "inputs": _types_json(graph.inputs),
        "outputs": _types_json(graph.outputs),
        "axes": dict(graph.spec.axes),
        "step": graph.step_axis,
        "tie": [list(group) for group in graph.ties],
        "nodes": root,
    }


def _line_json(line: OutlineLine) -> dict[str, Any]:
    return {
        "name": line.name,
        "path": line.path,
        "use": line.use,
        "params": dict(line.params),
        "repeat": line.repeat,
        "inputs": _types_json(line.inputs),
        "outputs": _types_json(line.outputs),
        "each": line.per_copy,
        "parameters": line.parameters,
        "tied": line.tied,
        "flops": line.flops,
        "weights": {name: list(shape) for name, shape in line.weights.items()},
        "nodes": [],
    }


def _types_json(types: Mapping[str, ValueType]) -> dict[str, str]:
    return {port: str(type_) for port, type_ in types.items()}
