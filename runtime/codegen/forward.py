"""Statements: the lines of generated methods that run nodes and return values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Set

from ...graphs.ir.arguments import argument, is_reserved
from ...graphs.ir.execution import PLAIN, Execution
from ...graphs.ir.graph import BlockNode, Node, RepeatNode, Scope
from ...graphs.ir.traverse import holds_model
from ...graphs.ir.value_type import DTYPES, KINDS, ValueType, dtype_of
from .names import child

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
