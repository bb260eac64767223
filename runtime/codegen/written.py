"""Classes of blocks that are written out: their `forward`, and the steps of those that store."""

from __future__ import annotations

from collections.abc import Iterator

from ...graphs.ir.arguments import argument
from ...graphs.ir.graph import Part
from ...graphs.ir.leads import lead_of_axis
from ...graphs.ir.losses import weighing_ports
from ...graphs.ir.value_type import ValueType
from .forward import by_name

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
