"""Counted position: a position encoding of the number of ids in a range written so far."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Params, Probability, Several
from .position import check_even

Start = Annotated[int, Field(strict=True, ge=-1_000_000, le=1_000_000)]
"""Initial value of the count; may be negative."""


class CountedPositionParams(Params):
    """Params of `counted_position`."""

    first: Several = 0
    """Smallest id that is counted."""
    below: Count
    """Upper bound, exclusive, of the ids that are counted."""
    start: Start = 0
    """Count before the first id."""
    dropout: Probability = 0.0
    """Dropout probability of the sum."""
    form: Literal["interleaved", "concatenated", "halves"] = "interleaved"
    """Layout of the sines and cosines, as in `sinusoidal_position`."""


def _signature(_: CountedPositionParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("ids", "ids:vocab[b t]", "ids to count; each position counts itself and earlier"),
        ),
        outputs=(port("y", "f[b t d_model]", "input vectors plus the encoding of the count"),),
        behavior={"t": "causal"},
    )


def _arguments(params: CountedPositionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    check_even(sizes)
    if params.first >= params.below:
        msg = f"'first' is {params.first}, but it must be less than 'below', {params.below}"
        raise ValueError(msg, "use a 'first' that is less than 'below'")
    return params.model_dump()


COUNTED_POSITION = BlockType(
    name="counted_position",
    family="position",
    doc="Add a sinusoidal encoding of the number of ids in [first, below) so far, such as copied "
    "words, which gives the source position of the next copy; y = x + PE(start + count).",
    source="after Ma et al. 2017, section 3, where attention is on the next word; encoding: "
    "Vaswani et al. 2017, section 3.5",
    params=CountedPositionParams,
    signature=_signature,
    arguments=_arguments,
    hops=never,
    module=".position.copy_position_module:CountedPosition",
    dropout=("dropout",),
    steps=True,
    state=lambda _, sizes, __: {"count": StateTensor((sizes["b"], 1), "int64")},
    example={"first": 2, "below": 7},
    example_inputs={"x": "f[B T 8]", "ids": "ids:9[B T]"},
)
