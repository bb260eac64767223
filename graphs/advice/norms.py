"""Values that a stack of pre-norm layers accumulated and that no norm follows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...specs.findings import pointer
from ...specs.text.edits import Edit, Fix
from ..ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope
from ..ir.traverse import scopes
from .remark import Remark


def missing_norms(graph: Graph) -> Iterator[Remark]:
    """Yield the stacks whose accumulated output reaches weights or an output without a norm.

    Pre-norm layers add to their input, so that its magnitude grows with depth; a norm after the
    last layer is part of the architecture (Xiong et al. 2020, section 3.1).
    """
    for scope in scopes(graph.root, models=False):
        yield from _in_scope(scope, outermost=scope is graph.root)


def _in_scope(scope: Scope, *, outermost: bool) -> Iterator[Remark]:
    for node in scope.nodes:
        if not isinstance(node, RepeatNode):
            continue
        for port in node.carry:
            last = node.instead.get(node.repeat - 1, node.body)
            sublayer = _accumulates(last, last.outputs.get(port, ""))
            if sublayer is None:
                continue
            value = f"{node.name}.{port}"
            reader = next(_readers(scope, value, set(), outermost=outermost), None)
            if reader is not None:
                yield Remark(
                    at=node.at,
                    problem=f"no norm follows the pre-norm stack '{node.name}'",
                    evidence=(f"its output '{port}' is read by {reader}",),
                    help=f"put a norm, such as 'layer_norm@1', between '{value}' and its readers",
                    fix=_normed(scope, node, value, _norm(sublayer)),
                )


def _accumulates(scope: Scope, value: str) -> Part | None:
    """Return the block whose residual path a value of a scope is the sum of, without a norm."""
    node = _source(scope, value)
    if isinstance(node, BlockNode):
        return node.part if node.part.signature.scale == "accumulated" else None
    if node is None:
        return None
    port = value.partition(".")[2]
    bodies = [body for _, body, _ in node.insides()]
    found = (_accumulates(body, body.outputs.get(port, "")) for body in bodies)
    return next(filter(None, found), None)


def _norm(sublayer: Part) -> dict[str, Any]:
    """Return the use of a norm as it stands in a residual block."""
    kind = str(sublayer.arguments.get("norm", "layer_norm"))
    params: dict[str, Any] = {}
    if "eps" in sublayer.params.model_fields_set:
        params["eps"] = sublayer.arguments["eps"]
    if kind == "layer_norm" and sublayer.arguments.get("norm_bias") is False:
        params["bias"] = False
    return {"use": f"{kind}@1"} | ({"params": params} if params else {})


def _normed(scope: Scope, node: Node, value: str, norm: dict[str, Any]) -> Fix:
    """Return the fix that puts a norm between a value of a scope and everything that reads it."""
    name, taken = f"{node.name}_norm", {each.name for each in scope.nodes}
    while name in taken:
        name += "_"
    record = {"use": norm["use"], "in": {"x": value}, **norm}
    nodes_at = node.at.rpartition("/")[0]
    ports = [
        nodes_at + pointer(each.name, "in", port)
        for each in scope.nodes
        for port, source in each.wires.items()
        if source == value
    ]
    outputs_at = nodes_at.removesuffix("/nodes") + pointer("outputs")
    ports += [outputs_at + pointer(p) for p, source in scope.outputs.items() if source == value]
    edits = [Edit("replace", at, f"{name}.y") for at in ports]
    return Fix((Edit("add", nodes_at + pointer(name), record), *edits))


def _source(scope: Scope, value: str) -> Node | None:
    name = value.partition(".")[0]
    return next((node for node in scope.nodes if node.name == name), None)


def _readers(
    scope: Scope, value: str, seen: set[tuple[int, str]], *, outermost: bool
) -> Iterator[str]:
    """Yield what reads an accumulated value as it is, not through a norm.

    The value is followed through blocks without weights, such as dropout and sums, and through
    further pre-norm layers.  What a template returns belongs to whatever uses the template.  `seen`
    has the values that were followed, of which sums have many.
    """
    if (id(scope), value) in seen:
        return
    seen.add((id(scope), value))
    if outermost:
        for port, source in scope.outputs.items():
            if source == value:
                yield f"output {pointer(port)[1:]}"
    for node in scope.nodes:
        ports = [port for port, source in node.wires.items() if source == value]
        for port in ports:
            if isinstance(node, BlockNode):
                yield from _through(scope, node, port, seen, outermost=outermost)
                continue
            for _, body, _ in node.insides():
                yield from _readers(body, port, seen, outermost=False)


def _through(
    scope: Scope, node: BlockNode, port: str, seen: set[tuple[int, str]], *, outermost: bool
) -> Iterator[str]:
    """Yield what reads an accumulated value that enters a block, if the block does not norm it."""
    signature = node.part.signature
    main = port == signature.inputs[0].name
    if main and signature.scale:
        return  # a norm, or a residual block, which norms its input or its output
    if node.part.weights():
        yield f"'{node.name}', a {node.part.block.key}"
        return
    for output in node.outputs:
        yield from _readers(scope, f"{node.name}.{output}", seen, outermost=outermost)
