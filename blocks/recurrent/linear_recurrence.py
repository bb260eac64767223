"""Linear recurrence: a factor and a term for each element and position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, NoParams, Signature, port
from ...graphs.ir.state_tensor import StateTensor


def _signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d]", "vectors to add to the state"),
            port("a", "f[b t d]", "factors of the previous state, from -1 to 1"),
            port("start", "f[b d]?", "state before the first position; zero if not wired"),
            port("mask", "mask[b t]?", "true at positions that update the state"),
        ),
        outputs=(port("y", "f[b t d]", "state after each position"),),
        behavior={"t": "causal"},
    )


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    return {"state": StateTensor((sizes["b"], arguments["d"]), "float32")}


LINEAR_RECURRENCE = BlockType(
    name="linear_recurrence",
    family="recurrent",
    mixes="linear recurrence",
    doc="Linear recurrence of each element, without weights; y_t = a_t y_{t-1} + x_t.",
    source="Martin & Cundy 2018, section 2; in groups: Blelloch 1990, section 1.4.1",
    signature=_signature,
    module=".recurrent.linear_recurrence_module:LinearRecurrence",
    steps=True,
    state=_state,
    example_inputs={"x": "f[B T 8]", "a": "f[B T 8]", "mask": "mask[B T]"},
)
