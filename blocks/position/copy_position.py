"""Counted position: where a reader stands in what it reads, told by what was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ..params import Count, Params, Probability, Several
from .position import check_even

Start = Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)]
"""A whole number that a count begins with."""


class CountedPositionParams(Params):
    """Params of `counted_position`."""

    first: Several = 0
    """The least id that is counted."""
    below: Count
    """Ids from here on are not counted."""
    start: Start = 0
    """What the count is before the first id."""
    dropout: Probability = 0.0
    """Probability of dropping a number of the sum while training."""
    form: Literal["interleaved", "concatenated", "halves"] = "interleaved"
    """The waves, as in `sinusoidal_position`."""


def _signature(_: CountedPositionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("ids", "ids:vocab[b t]", "what was written up to each of them"),
        ),
        outputs=(port("y", "f[b t d_model]", "vectors that know the count"),),
        behavior={"t": "causal"},
    )


def _arguments(params: CountedPositionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    check_even(sizes)
    if params.first >= params.below:
        msg = f"no id is from {params.first} on and below {params.below}"
        raise ValueError(msg, "give a 'first' that is less than 'below'")
    return params.model_dump()


COUNTED_POSITION = BlockType(
    name="counted_position",
    doc="Add the waves of how many ids of a range were written so far, such as copied words: "
    "where the next of them stands in what is copied; y = x + PE(start + count).",
    source="after Ma et al. 2017, section 3, where attention is on the next word; waves: "
    "Vaswani et al. 2017, section 3.5",
    params=CountedPositionParams,
    signature=_signature,
    arguments=_arguments,
    hops=never,
    module=".position.copy_position_module:CountedPosition",
    steps=True,
    example={"first": 2, "below": 7},
    example_inputs={"x": "f[B T 8]", "ids": "ids:9[B T]"},
)
