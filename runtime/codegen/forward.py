"""Statements: the lines of generated methods that run nodes, return values and weigh losses.

A loss is a sum over items, such as tokens, and its weight is their number.  Training divides the
sum of an update by its weight, which it must know before the first backward pass.  So the weight
may not need the outputs of models: `weights` runs only the nodes that it depends on, such as noise.
`forward` runs these nodes first and in the same order, so that both draw the same random numbers.
The class of a template has this method for its losses.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

from ...blocks.registry import full_path
from ...graphs.ir.execution import PLAIN, Execution, Fused, FusedGroup
from ...graphs.ir.graph import BlockNode, Graph, Node, Part, RepeatNode, Scope
from ...graphs.ir.losses import ItemCounter, counters, counting_ports, needed, weighing_ports
from ...graphs.ir.python_names import argument, child, is_reserved, member
from ...graphs.ir.step_axis import lead_of_axis
from ...graphs.ir.traverse import holds_model
from ...graphs.ir.value_type import DTYPES, KINDS, ValueType, dtype_of

PROJECTED = "projected"
"""Argument of a model whose last linear map a caller may leave to a loss."""
WIDTH = 100
"""Preferred maximum length of a generated line."""
_MEANINGS = {"f": "vectors", "mask": "true at positions that may be attended"}
"""Meanings of kinds where that of `KINDS` would repeat the dtype."""


def signature_line(
    scope: Scope, outputs: int, *, root: bool, method: str = "forward", projected: bool = False
) -> str:
    """Return the line `def METHOD(...)`, with annotations; two or more lines if it is long."""
    gives = "dict[str, Tensor]" if root else "Tensor" if outputs == 1 else "tuple[Tensor, ...]"
    more = [f"{PROJECTED}: bool = True"] if projected else []
    arguments = ", ".join(
        by_name("self", [*(f"{argument(port)}: Tensor" for port in scope.inputs), *more])
    )
    line = f"    def {method}({arguments}) -> {gives}:"
    if len(line) <= WIDTH:
        return line
    return (
        "\n".join(
            textwrap.wrap(
                arguments,
                WIDTH,
                initial_indent=f"    def {method}(\n        ",
                subsequent_indent=" " * 8,
            )
        )
        + f"\n    ) -> {gives}:"
    )


def by_name(first: str, others: Iterable[str]) -> list[str]:
    """Return the arguments of a method: one by position, the others by name alone."""
    keyword_only = list(others)
    return [first, "*", *keyword_only] if keyword_only else [first]


def doc_lines(scope: Scope) -> Iterable[str]:
    """Yield the docstring of the root's `forward`: type, dtype and meaning of every port."""
    yield '        """Return the outputs by name.'
    yield ""
    yield "        Args:"
    for name, type_ in scope.inputs.items():
        yield f"            {name}: {_described(type_)}"
    yield ""
    yield "        Returns:"
    for name, type_ in scope.gives().items():
        yield f"            {name}: {_described(type_)}"
    yield '        """'


def _described(type_: ValueType) -> str:
    """Return a type with its dtype and meaning, such as `ids:9[B T], int64: ...`."""
    meaning = _MEANINGS.get(type_.kind, KINDS[type_.kind])
    meaning = meaning.replace("`size`", str(type_.size)).replace("the size", str(type_.size))
    return f"{type_}, {DTYPES[dtype_of(type_.kind)]}: {meaning}."


def variables(scope: Scope, taken: Iterable[str] = ()) -> dict[str, str]:
    """Return a local variable for every value of a scope; some names are taken by functions."""
    names = {port: argument(port) for port in scope.inputs}
    taken = {"_", *taken, *names.values()}

    def add(value: str, requested: str) -> None:
        unique, number = argument(requested), 2
        while unique in taken or is_reserved(unique):
            unique, number = f"{requested}_{number}", number + 1
        taken.add(unique)
        names[value] = unique

    for node in scope.nodes:
        if holds_model(node):
            add(node.name, node.name)
            names |= {
                f"{node.name}.{port}": f'{names[node.name]}["{port}"]' for port in node.outputs
            }
            continue
        for port in node.outputs:
            add(
                f"{node.name}.{port}",
                node.name if len(node.outputs) == 1 else f"{node.name}_{port}",
            )
        for port in node.collect if isinstance(node, RepeatNode) else ():
            add(_each(node, port), f"{node.name}_{port}_each")
    return names


def call(target: str, names: Mapping[str, str], wires: Mapping[str, str], *more: str) -> str:
    """Return a call that passes every port by name.

    Args:
        target: the expression to call.
        names: value to local variable.
        wires: port to value, or to a Python expression when the value has no variable.
        *more: further arguments as Python.
    """
    arguments = (f"{argument(p)}={names.get(value, value)}" for p, value in wires.items())
    return f"{target}({', '.join([*arguments, *more])})"


def targets(
    node: Node,
    names: Mapping[str, str],
    begun: Set[str] = frozenset(),
    *,
    begin: bool = False,
) -> str:
    """Return the variables that receive the outputs of a node, or of one copy of it.

    Args:
        node: the node.
        names: value to local variable.
        begun: its outputs that its `begin` returns.
        begin: whether they are the ones to receive, or the others.
    """
    if holds_model(node):
        return names[node.name]
    ports = node.outputs if isinstance(node, BlockNode) else given_ports(node.body)
    ports = [port for port in ports if (port in begun) is begin]
    collect = node.collect if isinstance(node, RepeatNode) else ()
    values = [_each(node, port) if port in collect else f"{node.name}.{port}" for port in ports]
    return ", ".join(names.get(value, "_") for value in values)


def given_ports(scope: Scope) -> list[str]:
    """Return the outputs of a template, in the order in which its class returns them."""
    return sorted(scope.outputs)


def run_lines(
    node: Node, names: Mapping[str, str], indent: str, execution: Execution = PLAIN
) -> Iterable[str]:
    """Yield the lines that run a node for all positions."""
    yield from merged_lines(node, indent)
    if not isinstance(node, RepeatNode):
        wires = dict(node.wires)
        if node.name in execution.fused:
            wires["logits"] = linear_output(node.name)
        deferred = execution.leaves_map(node.name)
        if deferred and holds_model(node):
            wires[PROJECTED] = "not self.training"
        text = call(child(node.module), names, wires)
        if deferred and isinstance(node, BlockNode):
            (value,) = node.wires.values()
            text = f"{names[value]} if self.training else {text}"
        if node.name in execution.deferred:
            (value,) = node.wires.values()
            text = f"{text} if {PROJECTED} else {names[value]}"
        yield f"{indent}{targets(node, names)} = {text}"
        return
    yield from loop_lines(node, names, node.wires, indent)


def merged_lines(node: Node, indent: str) -> Iterable[str]:
    """Yield the comment before a node that stands for several, which names them."""
    if isinstance(node, BlockNode) and node.replaced:
        text = f"One kernel computes the nodes {', '.join(node.replaced)}."
        mark = f"{indent}# "
        yield from textwrap.wrap(text, WIDTH, initial_indent=mark, subsequent_indent=mark)


def loop_lines(
    node: RepeatNode,
    names: Mapping[str, str],
    wires: Mapping[str, str],
    indent: str,
    *,
    step: str = "",
    begun: Set[str] = frozenset(),
) -> Iterable[str]:
    """Yield the lines that run the copies of a repeat, one after the other.

    Args:
        node: the repeat.
        names: value to local variable.
        wires: port to value; carried ports are updated in the loop.
        indent: spaces before each line.
        step: if each copy calls `step` with its state, the position that it gets.
        begun: outputs that each copy's `begin` returns, and its `step` does not.
    """
    collect = [port for port in node.collect if port not in begun]
    yield from enter_loop(node, names, begun, indent)
    inside = wires_inside(node, wires)
    copies, states = child(node.module), f'state["{node.name}"]'
    if node.share and step:
        yield f"{indent}for layer_state in {states}:"
    elif node.share:
        yield f"{indent}for _ in range({node.repeat}):"
    elif step:
        yield f"{indent}for layer, layer_state in zip({copies}, {states}, strict=True):"
    else:
        yield f"{indent}for layer in {copies}:"
    more = ("state=layer_state", f"position={step}") if step else ()
    target = (copies if node.share else "layer") + (".step" if step else "")
    yield f"{indent}    {targets(node, names, begun)} = {call(target, names, inside, *more)}"
    yield from leave_loop(node, names, collect, indent)


def enter_loop(
    node: RepeatNode, names: Mapping[str, str], others: Set[str], indent: str
) -> Iterable[str]:
    """Yield the lines before the loop over the copies of a repeat, but of some other outputs."""
    for port in node.carry:
        if port not in others:
            yield f"{indent}{names[f'{node.name}.{port}']} = {names[node.wires[port]]}"
    for port in node.collect:
        if port not in others:
            yield f"{indent}{names[f'{node.name}.{port}']} = []"


def wires_inside(node: RepeatNode, wires: Mapping[str, str]) -> dict[str, str]:
    """Return what each port reads inside the loop, where carried ports are updated."""
    return {
        port: f"{node.name}.{port}" if port in node.carry else value
        for port, value in wires.items()
    }


def leave_loop(
    node: RepeatNode, names: Mapping[str, str], collect: Iterable[str], indent: str
) -> Iterable[str]:
    """Yield the last line of the loop for each collected output, then those after the loop."""
    collected = [(names[f"{node.name}.{port}"], names[_each(node, port)]) for port in collect]
    yield from (f"{indent}    {output}.append({value})" for output, value in collected)
    yield from (f"{indent}{output} = torch.stack({output})" for output, _ in collected)


def _each(node: Node, port: str) -> str:
    """Return the name of a collected output of one copy."""
    return f"{node.name}.{port}[]"


def linear_output(loss: str) -> str:
    """Return the variable with the logits of a fused loss, or what computes them."""
    return f"{loss}_logits_"


def returned(scope: Scope, names: Mapping[str, str], ports: Iterable[str], *, root: bool) -> str:
    """Return the line that returns some outputs; the root returns them by name."""
    if root:
        values = {port: scope.outputs[port] for port in ports}
        values |= {value: value for value in scope.unwired_losses()}
        pairs = ", ".join(f'"{port}": {names[value]}' for port, value in values.items())
        return f"        return {{{pairs}}}"
    return f"        return {', '.join(names[scope.outputs[port]] for port in ports)}".rstrip()


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


STORING = (".kernels.decode_state:State", ".kernels.decode_state:so_far")
"""What the steps of a block that stores values call, relative to `blocks`."""


def written_body(part: Part, step_axis: str | None) -> str:
    """Return the body of the class of a block that is written out.

    Args:
        part: a use of the block.
        step_axis: the axis along which the graph decodes.
    """
    assert part.block.written is not None  # noqa: S101 - the caller has asked
    ports = ", ".join(by_name("self", (f"{argument(name)}: Tensor" for name in part.inputs)))
    types = ", ".join(f"{name} {type_}" for name, type_ in part.inputs.items())
    outputs = ", ".join(map(str, part.outputs.values()))
    result = "Tensor" if len(part.outputs) == 1 else "tuple[Tensor, ...]"
    lines = [f'    """{part.block.name}: {types} -> {outputs}."""', ""]
    lines += ["    elementwise = True", ""] if part.block.elementwise else []
    lines += [f"    def forward({ports}) -> {result}:"]
    lines += [f"        {line}" for line in part.block.written(part)]
    for mask in weighing_ports(part):
        lines += [
            "",
            f"    def weight(self, {mask}: Tensor) -> Tensor:",
            f"        return {mask}.sum()",
        ]
    if part.stores and step_axis is not None:
        lines += _steps(part, step_axis)
    return "\n".join(lines)


def _steps(part: Part, step_axis: str) -> Iterator[str]:
    """Yield `begin` and `step` of a block that stores values of earlier positions."""
    buffers = (f'"{name}": {_buffer(part.inputs[name], step_axis)}' for name in part.stores)
    yield ""
    yield "    def begin(self, capacity):"
    yield f"        return State(appended={{{', '.join(buffers)}}})"
    yield ""
    arguments = by_name("self", (*map(argument, part.inputs), "state", "position"))
    yield f"    def step({', '.join(arguments)}):"
    for name in part.stores:
        port, dim = argument(name), _dim(part.inputs[name], step_axis)
        yield f'        {port} = so_far(state, "{name}", {port}, position, {dim})'
    passed = (f"{port}={port}" for port in map(argument, part.inputs))
    yield f"        return self.forward({', '.join(passed)})"


def _buffer(type_: ValueType, step_axis: str) -> str:
    """Return the expression for an empty buffer [R, ..., length, width] of a value."""
    before = _dim(type_, step_axis)
    widths = [*type_.axes[1:before], *type_.axes[before + 1 :]]
    width = widths.pop() if before < len(type_.axes) - 1 else 1
    shape = ", ".join(map(str, ("capacity.rows", *widths, "capacity.allocated", width)))
    zeros = f"capacity.zeros(({shape}))"
    return f"{zeros}.bool()" if type_.kind == "mask" else zeros


def _dim(type_: ValueType, step_axis: str) -> int:
    """Return the dimension of the positions of a value."""
    leads = [lead_of_axis(axis, step_axis) for axis in type_.axes]
    return next(dim for dim, lead in enumerate(leads) if lead is not None)
