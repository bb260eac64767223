"""Masks that a spec has and that a block could use, but does not."""

from __future__ import annotations

from collections.abc import Iterator

from ...specs.findings import pointer
from ...specs.text.edits import Fix, adding
from ..ir.graph import BlockNode, Graph, Part, Scope
from ..ir.traverse import scopes
from ..ir.value_type import Misfit, fit
from .remark import Remark, behaviors, placed_blocks


def unused_masks(graph: Graph) -> Iterator[Remark]:
    """Yield the blocks that read padding though an input of the spec masks it.

    A block that reads only earlier positions needs no mask: padding comes last, and what stands
    there is not used.
    """
    masks = {name: type_ for name, type_ in graph.inputs.items() if type_.kind == "mask"}
    for at, part, node, scope in placed_blocks(graph):
        full = {axis for axis, behavior in behaviors(part) if behavior == "full"}
        if _masked(part):
            continue
        for port in part.signature.inputs:
            if port.type.kind != "mask" or not port.optional or port.name in part.inputs:
                continue
            for name, type_ in masks.items():
                bound = {key: axis for key, axis in part.axes.items() if key != "..."}
                if isinstance(fit(port.type, type_, bound, {}), Misfit):
                    continue
                if not full & {axis for axis in type_.axes if isinstance(axis, str)}:
                    continue
                help_, fix = _wiring(graph, scope, node, port.name, name)
                yield Remark(
                    at=at,
                    problem=f"{part.block.key} reads padding, though there is a mask '{name}'",
                    evidence=(f"given  {type_}  by input {name}",),
                    help=help_,
                    fix=fix,
                )


def _wiring(
    graph: Graph, scope: Scope, node: BlockNode, port: str, mask: str
) -> tuple[str, Fix | None]:
    """Return how to wire a mask of the spec to a port, inside a template by its own inputs.

    Args:
        graph: the graph.
        scope: the root, or the inside of a template.
        node: the node with the port, also if a block in its slots has the port.
        port: the port.
        mask: the input of the spec.
    """
    wire = node.at + pointer("in", port)
    if scope is graph.root:
        return f"wire '{mask}' to its port '{port}'", adding(wire, mask)
    own = [name for name, type_ in scope.inputs.items() if type_ == graph.inputs[mask]]
    if own:
        help_ = f"wire '{own[0]}', an input of template '{scope.name}', to its port '{port}'"
        return help_, adding(wire, own[0])
    help_ = f"give template '{scope.name}' an input '{mask}' of type {graph.inputs[mask]}, wire"
    help_ += f" '{mask}' to it wherever it is used, and to the port '{port}' of this block"
    users = [
        (around, user)
        for around in scopes(graph.root, models=False)
        for user in around.nodes
        if any(body.name == scope.name for _, body, _ in user.insides())
    ]
    if not users or any(around is not graph.root for around, _ in users) or mask in scope.inputs:
        return help_, None
    added = adding(pointer("blocks", scope.name, "inputs", mask), str(graph.inputs[mask]))
    wires = [adding(user.at + pointer("in", mask), mask) for _, user in users]
    edits = [edit for fix in (added, *wires, adding(wire, mask)) for edit in fix.edits]
    return help_, Fix(tuple(edits))


def _masked(part: Part) -> bool:
    """Return whether a block reads a mask, or a bias that a mask may have become."""
    return any(type_.kind in ("mask", "bias") for type_ in part.inputs.values())
