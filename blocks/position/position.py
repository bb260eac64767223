"""Position: where in the sequence a vector stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, NoParams, Signature, port
from ..params import Count, Params, Probability


class SinusoidalPositionParams(Params):
    """Params of `sinusoidal_position`."""

    dropout: Probability = 0.0
    """Probability of dropping a number of the sum while training."""
    form: Literal["interleaved", "concatenated", "halves"] = "interleaved"
    """The paper's sin, cos, sin, cos; the released code's all sines, then all cosines, of slightly
    other lengths; or the paper's waves with all sines first (Marian)."""


class LearnedPositionParams(Params):
    """Params of `learned_position`."""

    max_length: Count = 1024
    """Positions that the table has; longer input is an error."""
    dropout: Probability = 0.0
    """Probability of dropping a number of the sum while training."""


def _signature(_: Params, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b t d_model]", "vectors"),),
        outputs=(port("y", "f[b t d_model]", "vectors that know their position"),),
    )


def check_even(sizes: Mapping[str, Any]) -> None:
    """Refuse a width that no waves fill.

    Raises:
        ValueError: it is odd; with a way out.
    """
    if sizes["d_model"] % 2:
        msg = f"width {sizes['d_model']} is odd, but sines and cosines come in pairs"
        raise ValueError(msg, "use an even d_model")


def _sinusoidal_arguments(
    params: SinusoidalPositionParams, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    check_even(sizes)
    return params.model_dump()


def _learned_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["max_length"], arguments["d_model"])}


SINUSOIDAL_POSITION = BlockType(
    name="sinusoidal_position",
    doc="Add fixed waves: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same.",
    source="Vaswani et al. 2017, section 3.5",
    params=SinusoidalPositionParams,
    signature=_signature,
    arguments=_sinusoidal_arguments,
    module=".position.position_module:SinusoidalPosition",
    steps=True,
    example={},
    example_inputs={"x": "f[B T 8]"},
)

LEARNED_POSITION = BlockType(
    name="learned_position",
    doc="Add a learned vector for each position; y = x + weight[position].",
    source="Vaswani et al. 2017, table 3 row E; Gehring et al. 2017, section 3.1",
    params=LearnedPositionParams,
    signature=_signature,
    weights=_learned_weights,
    module=".position.position_module:LearnedPosition",
    steps=True,
    example={"max_length": 32},
    example_inputs={"x": "f[B T 8]"},
)


def _step_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... d_model]", "vectors"),
            port("clock", "f[... d_model]", "how many steps were made, in every place"),
        ),
        outputs=(
            port("y", "f[... d_model]", "vectors that know which step this is"),
            port("clock", "f[... d_model]", "one step more"),
        ),
    )


STEP_POSITION = BlockType(
    name="step_position",
    doc="Add the waves of the number of this step, counted from 1, and count on; "
    "y = x + PE(clock + 1).",
    source="Dehghani et al. 2019, section 2.1, equations 6 and 7",
    signature=_step_signature,
    arguments=lambda _, __: {},
    module=".position.position_module:StepPosition",
    example_inputs={"x": "f[B T 8]", "clock": "f[B T 8]"},
)
