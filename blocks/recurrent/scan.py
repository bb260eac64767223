"""Scan: a template or block that is applied to one position after another and carries state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, field_validator

from ...graphs.ir.block_type import BlockType, Port, Signature, Slot, port
from ...graphs.ir.python_names import argument
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Params

TAKEN = ("x", "mask")
"""Names that no carried value can have."""


class ScanParams(Params):
    """Params of `scan`."""

    carry: dict[str, Count | list[Count]] = Field(min_length=1)
    """Values that the cell passes to the next position, each with its width, such as `{"h": 64}`,
    or its widths, such as `{"memory": [16, 64]}`."""

    @field_validator("carry")
    @classmethod
    def _names(cls, carry: dict[str, Any]) -> dict[str, Any]:
        """Refuse names that cannot be ports, and values without a width."""
        for name, widths in carry.items():
            if not name.isidentifier() or name in TAKEN:
                msg = f"'{name}' cannot be the name of a carried value"
                raise ValueError(msg)
            if widths == []:
                msg = f"'{name}' has no widths"
                raise ValueError(msg)
        return carry

    @property
    def widths(self) -> dict[str, tuple[int, ...]]:
        """The widths of each carried value, by name in order."""
        return {
            name: tuple(widths) if isinstance(widths, list) else (widths,)
            for name, widths in sorted(self.carry.items())
        }


def _signature(params: ScanParams, _: frozenset[str]) -> Signature:
    texts = {name: " ".join(map(str, widths)) for name, widths in params.widths.items()}
    inside = [port(name, f"f[b 1 {text}]") for name, text in texts.items()]
    starts = (
        port(name, f"f[b {text}]?", f"'{name}' before the first position; zero if not wired")
        for name, text in texts.items()
    )
    return Signature(
        inputs=(
            port("x", "f[b t d_in]", "vectors, of which the cell gets those of one position"),
            *starts,
            port("mask", "mask[b t]?", "true at positions that update the carried values"),
        ),
        outputs=tuple(
            port(name, f"f[b t {text}]", f"'{name}' after each position")
            for name, text in texts.items()
        ),
        slots=(
            Slot(
                "cell",
                Port("x", port("x", "f[b 1 d_in]").type),
                inside[0],
                "computes the carried values after a position from those before it; it receives "
                "the other wires at that position",
                others=tuple(inside),
                more=tuple(inside[1:]),
                steps_over="t",
            ),
        ),
        behavior={"t": "causal"},
    )


def _arguments(params: ScanParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return {"carry": {argument(name): widths for name, widths in params.widths.items()}}


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the carried values."""
    carry: Mapping[str, tuple[int, ...]] = arguments["carry"]
    return {name: StateTensor((sizes["b"], 1, *widths)) for name, widths in carry.items()}


SCAN = BlockType(
    name="scan",
    family="recurrent",
    mixes="recurrence",
    doc="Loop over positions: a cell, such as a template, computes the carried values after each "
    "position from those before it and the vectors at the position; h_t = cell(x_t, h_{t-1}).",
    source="Elman 1990, for any cell",
    params=ScanParams,
    signature=_signature,
    arguments=_arguments,
    sequential=lambda _, __: 0,
    loops=True,
    module=".recurrent.scan_module:Scan",
    steps=True,
    state=_state,
    example={"carry": {"y": 8}},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
    example_fill={"cell": {"use": "elementwise@1", "params": {"y": "tanh(x + y / 2)"}}},
)
