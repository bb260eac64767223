"""Attention written out: its nodes are recognized by what they compute, and merged into one.

The standard form is a product of queries and keys, any number of formulas that multiply it by a
number and add what does not depend on it, a softmax over the keys, perhaps dropout, and a product
with the values; no other node may read what is between.  The kernels of `attention@1` compute it:

    scores = factor * product + added        weights = softmax(scores)        y = weights @ value

Names of nodes and axes, the order of axes, and the number of formulas do not matter.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from ...graphs.ir.block_type import Behavior, BlockType, NoParams, Port, Signature
from ...graphs.ir.graph import BlockNode, Part, Scope
from ...graphs.ir.step_axis import stored_ports
from ...graphs.ir.value_type import Axis, Bound, Misfit, ValueType, fit
from ...graphs.passes.merge import Merged, read_once
from ...specs.expressions import CONSTANTS, Call, Expression, leaves, parsed
from .broadcast import broadcast
from .elementwise import ELEMENTWISE, ElementwiseParams
from .formula_source import number_of, text_of
from .masking import expanded, names_of_mask
from .patterns import LEAD, Names, axis_names, lower

HIDDEN = -1e9
"""Score from which a key counts as masked: in float32, no other score can be told from it."""


@dataclass(frozen=True, slots=True)
class AffineForm:
    """A formula as a factor times one of its names, plus what does not depend on it."""

    factor: float
    added: Expression | None = None
    """What is added; None for 0."""
    hides: bool = False
    """Whether it has the score of masked keys, so that it cannot be multiplied any more."""


def renamed(tree: Expression, names: Mapping[str, Any]) -> Expression:
    """Return a tree with other names, or numbers, in the place of names."""
    if isinstance(tree, Call):
        return Call(tree.function, tuple(renamed(part, names) for part in tree.arguments))
    return names.get(tree, tree) if isinstance(tree, str) else tree


def plus(first: Expression | None, second: Expression | None) -> Expression | None:
    """Return a sum, of which None is 0."""
    if first is None or second is None:
        return second if first is None else first
    return Call("+", (first, second))


def times(tree: Expression | None, factor: float) -> Expression | None:
    """Return a tree times a number."""
    return tree if tree is None or factor == 1 else Call("*", (factor, tree))


def affine(tree: Expression, name: str) -> AffineForm | None:  # noqa: PLR0911 - one for each form
    """Return a formula as a line in one of its names; None if it is none.

    `where` counts if one of its values is that of masked keys.
    """
    if tree == name:
        return AffineForm(1.0)
    if name not in leaves(tree):
        return AffineForm(0.0, tree)
    if not isinstance(tree, Call):
        return None
    parts = tuple(affine(part, name) for part in tree.arguments)
    match tree.function, tree.arguments, parts:
        case "negative", _, (AffineForm() as line,):
            return _scaled(line, -1.0)
        case "+" | "-" as sign, _, (AffineForm() as first, AffineForm() as second):
            other = _scaled(second, 1.0 if sign == "+" else -1.0)
            if other is None:
                return None
            hides = first.hides or other.hides
            return AffineForm(first.factor + other.factor, plus(first.added, other.added), hides)
        case "*", (x, z), (AffineForm() as first, AffineForm() as second):
            numbers = number_of(x), number_of(z)
            of_name, number = (second, numbers[0]) if numbers[1] is None else (first, numbers[1])
            return None if number is None else _scaled(of_name, number)
        case "/", (_, by), (AffineForm() as line, _):
            number = number_of(by)
            return _scaled(line, 1 / number) if number else None
        case "where", (condition, x, z), _ if name not in leaves(condition):
            hidden, inner = (z, parts[1]) if _hidden(z) else (x, parts[2])
            if not _hidden(hidden) or inner is None:
                return None
            added = 0 if inner.added is None else inner.added
            shown = (added, hidden) if hidden is z else (hidden, added)
            return AffineForm(inner.factor, Call("where", (condition, *shown)), hides=True)
    return None


def _scaled(line: AffineForm, factor: float) -> AffineForm | None:
    if line.hides and factor != 1:
        return None
    return AffineForm(line.factor * factor, times(line.added, factor), line.hides)


def _hidden(tree: Expression) -> bool:
    """Return whether a part of a formula is the score of masked keys."""
    if tree == Call("negative", ("inf",)):
        return True
    number = number_of(tree)
    return number is not None and number <= HIDDEN


BATCH, QUERIES, KEYS, WIDTH, VALUE = "b", "t", "s", "k", "v"
"""Names of the axes of merged attention; all others are heads, in the order of the result."""


@dataclass(frozen=True, slots=True)
class _Scores:
    """Scores as a factor times the product of queries and keys, plus what is added."""

    node: BlockNode
    """The product."""
    factor: float = 1.0
    added: Expression | None = None
    """Its names are those of `values`."""
    values: Mapping[str, tuple[str, tuple[int, ...], ValueType]] = field(default_factory=dict)
    """Name in the formula to the value, its type, and the axes of the scores that it has."""
    hides: bool = False
    """Whether the sum has the score of masked keys, which cannot be multiplied any more."""
    nodes: tuple[str, ...] = ()
    """The nodes from the product to the scores."""


@dataclass(frozen=True, slots=True)
class _Weights:
    """What turns scores into the weights of a sum over keys."""

    softmax: BlockNode
    dropout: float
    nodes: tuple[str, ...]
    """Its nodes, and the dropout after it."""


def merged_attention(node: BlockNode, scope: Scope, axis: str | None) -> Merged | None:
    """Return what computes attention that ends in a node; None if that is not its standard form.

    Args:
        node: a node of `einsum@1`.
        scope: the scope with the node.
        axis: the step axis.
    """
    nodes = {other.name: other for other in scope.nodes if isinstance(other, BlockNode)}
    for port, other in itertools.permutations(node.wires, 2):
        weights = _weights(node.wires[port], scope, nodes) if len(node.wires) == 2 else None  # noqa: PLR2004 - weights and values
        if weights is None:
            continue
        for scores in _scores(weights.softmax.wires["x"], scope, nodes):
            names = _Names.of(scores.node, weights.softmax, node, (port, other), axis)
            if names is not None:
                return _merged(node, scope, scores, weights, names, axis)
    return None


def _producer(value: str, scope: Scope, nodes: Mapping[str, BlockNode]) -> BlockNode | None:
    """Return the node that computes a value for one reader alone."""
    node = nodes.get(value.partition(".")[0]) if "." in value else None
    return node if node is not None and read_once(scope, value) else None


def _weights(value: str, scope: Scope, nodes: Mapping[str, BlockNode]) -> _Weights | None:
    """Return the softmax, and the dropout after it, that compute a value."""
    node, dropout, names = _producer(value, scope, nodes), 0.0, list[str]()
    if node is not None and node.part.block.role == "dropout":
        dropout, names = node.part.arguments["dropout"], [node.name]
        node = _producer(node.wires["x"], scope, nodes)
    if node is None or node.part.key != "softmax@1" or _params(node).kind != "softmax":
        return None
    return _Weights(node, dropout, (node.name, *names))


def _params(node: BlockNode) -> Any:
    return node.part.params


def _scores(value: str, scope: Scope, nodes: Mapping[str, BlockNode]) -> Iterator[_Scores]:
    """Yield every way to read a value as scores."""
    node = _producer(value, scope, nodes)
    if node is None:
        return
    if node.part.key == "einsum@1" and len(node.wires) == 2:  # noqa: PLR2004 - queries and keys
        yield _Scores(node, nodes=(node.name,))
    if node.part.key != ELEMENTWISE.key:
        return
    params, types = _params(node), node.part.inputs
    names = broadcast({name: types[name] for name in params.ports}, params.axes).names
    tree = renamed(parsed(params.y), params.values)
    for port in params.ports:
        line = affine(tree, port)
        if line is None or types[port].axes != node.outputs["y"].axes:
            continue
        for inner in _scores(node.wires[port], scope, nodes):
            others = [name for name in params.ports if name != port]
            places = {name: tuple(map(names[port].index, names[name])) for name in others}
            wires = {name: (node.wires[name], places[name], types[name]) for name in others}
            if (scores := _after(inner, line, wires, node.name)) is not None:
                yield scores


def _unused(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number if it is taken."""
    others = (f"{name}_{number}" for number in itertools.count(2))
    return name if name not in taken else next(other for other in others if other not in taken)


def _after(
    inner: _Scores,
    line: AffineForm,
    wires: Mapping[str, tuple[str, tuple[int, ...], ValueType]],
    node: str,
) -> _Scores | None:
    """Return the scores after a formula; None if it multiplies the score of masked keys."""
    if inner.hides and line.factor != 1:
        return None
    names = {name: _unused(name, inner.values) for name in wires}
    values = {**inner.values, **{names[name]: wire for name, wire in wires.items()}}
    added = None if line.added is None else renamed(line.added, names)
    before = times(inner.added, line.factor)
    hides = inner.hides or line.hides
    total = plus(before, added)
    nodes = (*inner.nodes, node)
    return _Scores(inner.node, line.factor * inner.factor, total, values, hides, nodes)


@dataclass(frozen=True, slots=True)
class _Names:
    """Names of the axes of everything that attention reads and computes."""

    query: Names
    key: Names
    value: Names
    result: Names
    scores: Names
    ports: tuple[str, str, str]
    """Ports with the queries and the keys of the product, and with the values of the sum."""
    heads: tuple[str, ...]
    shared: tuple[str, ...]
    """The heads that queries and keys have; they come first."""

    @classmethod
    def of(
        cls,
        product: BlockNode,
        softmax: BlockNode,
        total: BlockNode,
        ports: tuple[str, str],
        axis: str | None,
    ) -> _Names | None:
        """Return the names; None if the products are not those of attention.

        Args:
            product: the product of queries and keys.
            softmax: the softmax over the keys.
            total: the sum over the keys.
            ports: its ports with the weights, and with the values.
            axis: the step axis.
        """
        values, scores = _operands(product)
        over, causal = _softmax_places(softmax)
        s, t = scores[over], "" if causal is None else scores[causal]
        with_keys = [port for port, names in values.items() if s in names]
        if len(with_keys) != 1:
            return None
        (key_port,) = with_keys
        (query_port,) = values.keys() - {key_port}
        query, key = values[query_port], values[key_port]
        shared = [name for name in scores if name in query and name in key]
        summed = [name for name in query if name in key and name not in scores]
        queries = [name for name in scores if name in query and name not in key]
        axes = dict(zip(scores, product.outputs["y"].axes, strict=True))
        batch = next((name for name in shared if isinstance(axes[name], str)), "")
        if len(summed) != 1 or not batch or {*key} != {*shared, *summed, s} or not queries:
            return None
        t = t or _positions(queries, axes, axis)
        if t not in queries or {*query} != {*shared, *summed, *queries}:
            return None
        read = _read(total, ports, scores)
        if read is None:
            return None
        value, result, v = read
        if {*value} != {*shared, s, v} or {*result} != {*shared, *queries, v}:
            return None
        pair_axes = tuple(name for name in shared if name != batch)
        heads = (*pair_axes, *(name for name in queries if name != t))
        letters = {batch: BATCH, t: QUERIES, s: KEYS, summed[0]: WIDTH, v: VALUE}
        letters |= {name: f"h{number}" for number, name in enumerate(heads)}
        if len(heads) == 1:
            letters[heads[0]] = "h"
        lists = (query, key, value, result, scores, heads, pair_axes)
        q, k, values_, y, pairs, h, g = (tuple(letters[n] for n in names) for names in lists)
        return cls(q, k, values_, y, pairs, (query_port, key_port, ports[1]), h, g)


def _operands(node: BlockNode) -> tuple[dict[str, Names], Names]:
    """Return the names of all axes of the values of a product, by port, and of the result."""
    pattern, types = _params(node).pattern, node.part.inputs
    values = {
        port: expanded(names, type_)
        for (port, type_), names in zip(types.items(), pattern.values, strict=True)
    }
    lead = next(
        (
            values[port][: len(values[port]) - len(names) + 1]
            for port, names in zip(types, pattern.values, strict=True)
            if LEAD in names
        ),
        (),
    )
    result = tuple(
        inner for name in pattern.result for inner in (lead if name == LEAD else (name,))
    )
    return values, result


def _softmax_places(node: BlockNode) -> tuple[int, int | None]:
    """Return the axes of the scores that are those of keys, and of queries if it is causal."""
    params = _params(node)
    names = expanded(axis_names(params.y), node.part.inputs["x"])
    return names.index(params.over_name), names.index(params.causal) if params.causal else None


def _positions(queries: list[str], axes: Mapping[str, Axis], axis: str | None) -> str:
    """Return the axis of queries that counts positions; the others are heads."""
    stepped = [name for name in queries if axis is not None and axes[name] == axis]
    symbols = [name for name in queries if isinstance(axes[name], str)]
    return (stepped or symbols or queries)[-1]


def _read(
    total: BlockNode, ports: tuple[str, str], scores: Names
) -> tuple[Names, Names, str] | None:
    """Return the names of the values and of the result, in terms of the scores, and of the width.

    None if the product does more than to sum over one axis.
    """
    values, result = _operands(total)
    names = dict(zip(values[ports[0]], scores, strict=True))
    others = [name for name in values[ports[1]] if name not in names]
    if len(others) != 1:
        return None
    names[others[0]] = width = f"{others[0]} of values"
    value = tuple(names[name] for name in values[ports[1]])
    return value, tuple(names[name] for name in result), width


def _merged(
    node: BlockNode,
    scope: Scope,
    scores: _Scores,
    weights: _Weights,
    names: _Names,
    axis: str | None,
) -> Merged | None:
    """Return the nodes that compute attention: what is added to the scores, then the kernel."""
    softmax, (query, key, value) = weights.softmax, names.ports
    wires = {
        "query": scores.node.wires[query],
        "key": scores.node.wires[key],
        "value": node.wires[value],
    }
    axes = {"query": names.query, "key": names.key, "value": names.value}
    if "mask" in softmax.wires:
        wires["mask"], axes["mask"] = softmax.wires["mask"], _mask_names(softmax, names.scores)
    types = {name: scope.type_of(wire) for name, wire in wires.items()}
    before: list[BlockNode] = []
    if scores.added is not None and leaves(scores.added) - CONSTANTS.keys():
        bias = _bias(node, scope, scores, names, axis)
        if bias is None:
            return None
        wires["bias"], types["bias"], axes["bias"], before = bias
    of_pairs = [{*axes[name]} & {*names.heads} for name in ("mask", "bias") if name in axes]
    if any(heads and heads != {*names.heads} for heads in of_pairs):
        return None  # one for some of the heads
    causal = bool(_params(softmax).causal)
    inputs = (
        Port(name, ValueType(types[name].kind, tuple(map(lower, axes[name])))) for name in types
    )
    behavior: dict[str, Behavior] = {QUERIES: "causal"} if causal else {KEYS: "full"}
    signature = Signature(
        inputs=tuple(inputs),
        outputs=(Port("y", ValueType("f", tuple(map(lower, names.result)))),),
        behavior=behavior,
    )
    bound = _bound(signature, types)
    stores = stored_ports(signature, bound, types, axis)
    buffers = {name: _buffer(name, axes[name], names, bound) for name in stores}
    part = Part(
        block=MERGED_ATTENTION,
        params=NoParams(),
        arguments={
            **{name: " ".join(axes[name]) for name in wires},
            "result": " ".join(names.result),
            "scale": scores.factor,
            **({"causal": True} if causal else {}),
            **({"dropout": weights.dropout} if weights.dropout else {}),
            **({"stores": buffers} if buffers else {}),
        },
        signature=signature,
        inputs=types,
        outputs=node.outputs,
        axes=bound,
        stores=stores,
    )
    replaced = (*scores.nodes, *weights.nodes, node.name)
    merged = BlockNode(
        name=node.name,
        at=node.at,
        wires=wires,
        outputs=node.outputs,
        part=part,
        replaced=replaced,
        frozen=node.frozen,
    )
    return Merged((*before, merged), replaced)


def _buffer(
    name: str, names: Names, attention: _Names, bound: Mapping[str, Any]
) -> tuple[int, ...]:
    """Return the sizes of what a step stores of a port, without its rows and positions.

    They are those of the axes between, and the width.
    """
    if name in ("key", "value"):
        heads = prod(bound[head] for head in attention.shared)
        return heads, bound[WIDTH if name == "key" else VALUE]
    heads = prod(bound[head] for head in attention.heads) if {*names} & {*attention.heads} else 1
    return (1,) if name == "mask" and {*names} == {BATCH, KEYS} else (heads, 1)


def _mask_names(softmax: BlockNode, scores: Names) -> Names:
    """Return the names of the axes of the mask of a softmax, in terms of the scores."""
    params, types = _params(softmax), softmax.part.inputs
    names = expanded(axis_names(params.y), types["x"])
    of_mask = names_of_mask(params.mask, names, types["x"], types["mask"])
    return tuple(scores[names.index(name)] for name in of_mask)


def _bias(
    node: BlockNode, scope: Scope, scores: _Scores, names: _Names, axis: str | None
) -> tuple[str, ValueType, Names, list[BlockNode]] | None:
    """Return what is added to the scores: value, type, names of axes, and the node before it."""
    assert scores.added is not None  # noqa: S101 - the caller has asked
    read = [name for name in scores.values if name in leaves(scores.added)]
    kinds = {scores.values[name][2].kind for name in read}
    axes = {name: tuple(names.scores[i] for i in scores.values[name][1]) for name in read}
    if not kinds <= {"f", "bias", "mask"}:
        return None
    if scores.added == read[0] and kinds <= {"f", "bias"}:
        value, _, type_ = scores.values[read[0]]
        return value, type_, axes[read[0]], []
    patterns = {name: " ".join(of_port) for name, of_port in axes.items()}
    kind = "f" if kinds == {"f"} else "bias"
    params = ElementwiseParams(y=text_of(scores.added), axes=patterns, kind=kind)
    types = {name: scores.values[name][2] for name in read}
    matched = broadcast(types, patterns)
    result = ValueType(kind, tuple(matched.axes[name] for name in matched.result))
    assert ELEMENTWISE.typed is not None  # noqa: S101 - its ports depend on the wires
    signature = ELEMENTWISE.typed(params, types)
    bound = _bound(signature, types)
    part = Part(
        block=ELEMENTWISE,
        params=params,
        arguments={},
        signature=signature,
        inputs=types,
        outputs={"y": result},
        axes=bound,
        stores=stored_ports(signature, bound, types, axis),
    )
    taken = {other.name for other in scope.nodes}
    candidates = (f"{node.name}_bias{number or ''}" for number in itertools.count())
    name = next(name for name in candidates if name not in taken)
    wires = {port: scores.values[port][0] for port in read}
    before = BlockNode(name=name, at=node.at, wires=wires, outputs={"y": result}, part=part)
    return f"{name}.y", result, matched.result, [before]


def _bound(signature: Signature, types: Mapping[str, ValueType]) -> Bound:
    """Return what the names of ports stand for, where every type is known to fit."""
    bound: Bound = {}
    for port in signature.inputs:
        result = fit(port.type, types[port.name], bound, {})
        bound = bound if isinstance(result, Misfit) else result
    return bound


MERGED_ATTENTION = BlockType(
    name="merged_attention",
    mixes="attention",
    doc="Attention whose nodes have been merged: softmax(factor q k^T + bias) v.",
    source="Vaswani et al. 2017, section 3.2.1",
    signature=lambda _, __: Signature(inputs=(), outputs=()),
    module=".algebra.attention_module:MergedAttention",
    steps=True,
    dropout=("dropout",),
)
"""What `merged_attention` makes; no spec can use it."""
