"""Fuse: let losses compute the linear maps that their logits come from.

The losses then never hold all logits: one loss over one map is
`blocks/kernels/losses/fused_linear_cross_entropy.py`, several over the same maps, such as those of
R-Drop, are `blocks/kernels/losses/chunked_losses.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...specs.findings import InputError
from ..ir.execution import PLAIN, Execution, Fused, FusedGroup
from ..ir.graph import BlockNode, Graph, Node, TemplateNode


def fuse(graph: Graph) -> Graph:
    """Return an objective whose losses compute the linear maps that they read in training.

    A map may be the last node of a model, or a node of the objective.

    Args:
        graph: a checked graph.

    Raises:
        InputError: it has no loss over a linear map that only losses read.
    """
    groups = _groups(graph)
    if not groups:
        raise InputError(
            f"'{graph.name}' has no loss over a linear map that only losses read",
            location=graph.source,
            help="a cross_entropy@1 that reads a linear map or the logits of a model can be fused",
        )
    calls = [node.module for node in graph.root.nodes]
    alone = {
        node.name
        for node in graph.root.nodes
        if isinstance(node, BlockNode) and node.part.block.takes_linear_output
    }
    fused, together = dict[str, Fused](), list[FusedGroup]()
    for group in groups:
        loss, *others = group.losses
        if not others and loss in alone and calls.count(group.maps[0].module) == 1:
            fused[loss] = group.maps[0]
        else:
            together.append(group)
    models = dict(graph.execution.models)
    for linear in (*fused.values(), *(map_ for group in together for map_ in group.maps)):
        before: Execution = models.get(linear.module, PLAIN)
        if linear.head is not None and linear.head not in before.deferred:
            models[linear.module] = replace(before, deferred=(*before.deferred, linear.head))
    execution = replace(graph.execution, fused=fused, groups=tuple(together), models=models)
    return replace(graph, execution=execution)


def is_fusible(graph: Graph) -> bool:
    """Return whether losses of a graph can compute a linear map of a model."""
    return bool(_groups(graph))


def leave_projection(graph: Graph, output: str = "logits") -> Graph:
    """Return a graph whose module may leave the last linear map to a loss.

    Its `forward` takes `projected`; if that is false, the output is the input of the map.

    Args:
        graph: a checked graph.
        output: the output that the map computes.

    Raises:
        InputError: the output is not computed by a linear map, or something else reads it.
    """
    head = head_of(graph, output)
    if head is None:
        problem = f"no linear map that nothing else reads computes the output '{output}'"
        raise InputError(problem, location=graph.source)
    deferred = (*graph.execution.deferred, head)
    return replace(graph, execution=replace(graph.execution, deferred=deferred))


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Linear maps, and losses that may compute them."""

    maps: dict[str, Fused]
    """Value that a map computes to the map."""
    losses: dict[str, tuple[str, ...]]
    """Node of a loss to the values that it reads as logits."""

    def without_others(self, graph: Graph) -> _Candidates:
        """Return those of which each map is read by these losses alone, and the other way round."""
        maps, losses = self.maps, self.losses
        while True:
            exclusive = {
                value: linear
                for value, linear in maps.items()
                if value not in graph.root.outputs.values()
                and all(
                    node.name in losses and wire in losses[node.name]
                    for node in graph.root.nodes
                    for wire in node.wires.values()
                    if wire == value
                )
            }
            read = {
                name: values for name, values in losses.items() if exclusive.keys() >= {*values}
            }
            if (exclusive.keys(), read.keys()) == (maps.keys(), losses.keys()):
                return _Candidates(maps, losses)
            maps, losses = exclusive, read


def _groups(graph: Graph) -> list[FusedGroup]:
    """Return the linear maps that only losses read, together with the losses that read them.

    Nothing but the objective may read the outputs of these losses, and each is applied once.
    """
    import networkx as nx  # noqa: PLC0415 - only a training needs it

    candidates = _Candidates(_maps(graph), _losses(graph)).without_others(graph)
    related = nx.Graph(
        [(value, loss) for loss, values in candidates.losses.items() for value in values]
    )
    groups = []
    for members in nx.connected_components(related):
        values = [value for value in candidates.maps if value in members]
        losses = {
            node.name: {
                port: values.index(node.wires[port])
                for port in node.part.block.logits_ports
                if port in node.wires
            }
            for node in graph.root.nodes
            if isinstance(node, BlockNode) and node.name in members & candidates.losses.keys()
        }
        groups.append(FusedGroup(tuple(candidates.maps[value] for value in values), losses))
    return groups


def _maps(graph: Graph) -> dict[str, Fused]:
    """Return the linear maps of an objective and of its models, by the values they compute."""
    nodes = {node.name: node for node in graph.root.nodes}
    maps = {}
    for node in graph.root.nodes:
        if is_plain_map(node):
            (port,) = node.outputs
            maps[f"{node.name}.{port}"] = Fused(node.name, node.module, None, port)
            continue
        owner = nodes.get(node.module)
        model = owner.model if isinstance(owner, TemplateNode) else None
        if not isinstance(node, TemplateNode) or model is None:
            continue
        for port in node.outputs:
            head = head_of(model, port)
            if head is not None:
                maps[f"{node.name}.{port}"] = Fused(node.name, node.module, head, port)
    return maps


def _losses(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the losses that can be computed by positions, and the values they read as logits."""
    calls = [node.module for node in graph.root.nodes]
    read = {wire for node in graph.root.nodes for wire in node.wires.values()}
    losses = {}
    for node in graph.root.nodes:
        if not isinstance(node, BlockNode) or calls.count(node.module) > 1:
            continue
        ports = node.part.block.logits_ports
        if ports and not read & {f"{node.name}.{port}" for port in node.outputs}:
            losses[node.name] = tuple(node.wires[port] for port in ports if port in node.wires)
    return losses


def head_of(graph: Graph, output: str) -> str | None:
    """Return the name of the node that computes an output with a single linear map, else None.

    The node must be a linear map (see `is_plain_map`), nothing else may read its output, and no
    other node may call its module.

    Args:
        graph: a checked graph.
        output: name of one of its outputs.
    """
    value = graph.root.outputs.get(output, "")
    name, _, _port = value.partition(".")
    node = next((node for node in graph.root.nodes if node.name == name), None)
    if node is None or not is_plain_map(node):
        return None
    if [other.module for other in graph.root.nodes].count(node.module) > 1:
        return None
    read = [wire for other in graph.root.nodes for wire in other.wires.values()]
    outputs = list(graph.root.outputs.values())
    return name if value not in read and outputs.count(value) == 1 else None


def is_plain_map(node: Node) -> bool:
    """Return whether a node is a product with a weight and nothing else: no LoRA adds to it."""
    return isinstance(node, BlockNode) and node.part.block.is_linear_map and node.part.lora is None
