"""Losses: those that compute linear maps, the order of nodes, and the method that weighs losses.

A loss is a sum over items, such as tokens, and its weight is their number.  Training divides the
sum of an update by its weight, which it must know before the first backward pass.  So the weight
may not need the outputs of models: `weights` runs only the nodes that it depends on, such as noise.
`forward` runs these nodes first and in the same order, so that both draw the same random numbers.
The class of a template has this method for its losses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...blocks.registry import full_path
from ...graphs.ir.execution import Execution, Fused, FusedGroup
from ...graphs.ir.graph import BlockNode, Graph, Node, RepeatNode, Scope
from ...graphs.ir.losses import ItemCounter, counters, counting_ports, needed
from .forward import WIDTH, call, linear_output, run_lines, signature_line, targets
from .names import child, member

LINEAR_OUTPUT = ".kernels.losses.fused_linear_cross_entropy:LinearOutput"
CHUNKED = ".kernels.losses.chunked_losses"


def fused_helpers(execution: Execution) -> Iterable[str]:
    """Yield what the source of fused losses imports, as `module:name`."""
    if execution.fused or execution.groups:
        yield full_path(LINEAR_OUTPUT)
    if execution.groups:
        yield from (full_path(f"{CHUNKED}:{name}") for name in ("losses_in_chunks", "reading"))


def fused_lines(
    graph: Graph, nodes: Sequence[Node], names: Mapping[str, str], *, copied: bool
) -> dict[str, list[str]]:
    """Return the lines of the losses of a root that compute linear maps, by node.

    The lines of a group stand where its last loss would.

    Args:
        graph: the graph.
        nodes: nodes of its root, in execution order.
        names: value to local variable.
        copied: whether the losses also get the low-precision copies of the weights.
    """
    execution = graph.execution
    lines_by_node: dict[str, list[str]] = {}
    for node in nodes:
        if node.name in execution.fused:
            line = linear_output_line(node.name, execution.fused[node.name], names, copied=copied)
            lines_by_node[node.name] = [line, *run_lines(node, names, " " * 8, execution)]
    for group in execution.groups:
        losses = [n for n in nodes if isinstance(n, BlockNode) and n.name in group.losses]
        lines_by_node |= {node.name: [] for node in losses}
        lines_by_node[losses[-1].name] = _group_lines(graph, group, losses, names, copied=copied)
    return lines_by_node


def linear_output_line(
    loss: str, fused: Fused, names: Mapping[str, str], *, copied: bool = False
) -> str:
    """Return the line by which a loss gets the input of a linear map, and the map, in training.

    Args:
        loss: node of the loss.
        fused: the map.
        names: value to local variable.
        copied: whether the loss also gets the low-precision copy of the weight.
    """
    value, pad = names[f"{fused.node}.{fused.output}"], " " * 12
    arguments = _map_arguments(fused, names, copied=copied)
    if not copied:
        return (
            f"        {linear_output(loss)} = (\n"
            f"{pad}LinearOutput({arguments}) if self.training else {value}\n"
            f"        )"
        )
    return (
        f"        {linear_output(loss)} = (\n"
        f"{pad}LinearOutput(\n"
        f"{pad}    {arguments}\n"
        f"{pad})\n"
        f"{pad}if self.training\n"
        f"{pad}else {value}\n"
        f"        )"
    )


def _map_arguments(fused: Fused, names: Mapping[str, str], *, copied: bool) -> str:
    """Return the arguments of `LinearOutput` for a map."""
    value, head = names[f"{fused.node}.{fused.output}"], member(fused.path(fused.module))
    copy = f', operand({head}, "weight")' if copied else ""
    return f"{value}, {head}.weight, {head}.bias{copy}"


def _group_lines(
    graph: Graph,
    group: FusedGroup,
    losses: Sequence[BlockNode],
    names: Mapping[str, str],
    *,
    copied: bool,
) -> list[str]:
    """Return the lines that compute the losses of a group, together in training."""
    pad = " " * 12
    target_texts = [f"({targets(node, names)})" for node in losses]
    target_texts = [text if "," in text else f"{text[:-1]},)" for text in target_texts]
    lines = [
        "        if self.training:",
        f"{pad}{', '.join(target_texts)}{',' * (len(target_texts) == 1)} = losses_in_chunks(",
    ]
    lines.append(f"{pad}    [")
    lines += [
        f"{pad}        LinearOutput({_map_arguments(linear_map, names, copied=copied)}),"
        for linear_map in group.maps
    ]
    lines += [f"{pad}    ],", f"{pad}    ["]
    for node in losses:
        ports = group.losses[node.name]
        axes = graph.root.type_of(node.wires[next(iter(ports))]).axes[:-1]
        wires = {
            port: str(ports[port]) if port in ports else value
            for port, value in node.wires.items()
            if port in ports or graph.root.type_of(value).axes == axes
        }
        arguments = call("", names, wires).removeprefix("(")
        lines.append(
            f"{pad}        reading({child(node.module)}, {_weight(graph, node)!r}, {arguments},"
        )
    lines += [
        f"{pad}    ],",
        f"{pad}    kernel={child(losses[0].module)}.product_kernel,",
        f"{pad})",
    ]
    lines.append("        else:")
    for node in losses:
        lines += run_lines(node, names, pad)
    return lines


def _weight(graph: Graph, node: BlockNode) -> float:
    """Return the weight of a loss in the sum of an objective."""
    loss = f"{node.name}.{next(iter(node.outputs))}"
    return float(sum(w for name, w in graph.losses.items() if graph.root.outputs[name] == loss))


def weighing_first(scope: Scope) -> Sequence[Node]:
    """Return the nodes of a root in execution order, those that weigh its losses first."""
    first = needed(scope)
    if not first:
        return scope.nodes
    return [
        *(node for node in scope.nodes if node.name in first),
        *(node for node in scope.nodes if node.name not in first),
    ]


def weights_text(scope: Scope, names: Mapping[str, str], *, root: bool) -> list[str]:
    """Return the lines of the method `weights`; none if no output of the scope is a weighed loss.

    Args:
        scope: the root of an objective, or the inside of a template.
        names: value to local variable.
        root: whether the method takes all inputs, or those alone from which losses are weighed.
    """
    losses = counters(scope)
    if not losses:
        return []
    read = needed(scope)
    inputs = {name: type_ for name, type_ in scope.inputs.items() if root or name in read}
    lines = [
        signature_line(replace(scope, inputs=inputs), 1, root=True, method="weights"),
        '        """Return the weight of each loss: the number of items that it sums over."""',
    ]
    for node in scope.nodes:
        if node.name in read:
            lines += run_lines(node, names, " " * 8)
    weights = [f'"{output}": {_weight_text(loss, names)}' for output, loss in losses.items()]
    one_line = f"        return {{{', '.join(weights)}}}"
    if len(one_line) <= WIDTH:
        return [*lines, one_line]
    return [*lines, "        return {", *(f"            {text}," for text in weights), "        }"]


def _weight_text(loss: ItemCounter, names: Mapping[str, str]) -> str:
    """Return the expression for the number of items of a loss."""
    node, module = loss.node, child(loss.node.module)
    wires = {port: node.wires[port] for port in counting_ports(loss)}
    if isinstance(node, BlockNode):
        return call(f"{module}.weight", names, wires)
    last = f"{module}[-1]" if isinstance(node, RepeatNode) and not node.share else module
    return f'{call(f"{last}.weights", names, wires)}["{loss.output}"]'
