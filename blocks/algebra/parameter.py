"""Learned and constant arrays, which do not depend on any input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ...graphs.ir.block_type import BlockType, Port, Signature, port
from ...graphs.ir.value_type import ValueType
from ..params import Count, Flag, Number, Params, only_params

ROWS = "a value of vectors, of which only the rows, the precision and the device matter"
_PLANE = 2
"""Number of axes of an identity."""


class ParameterParams(Params):
    """Params of `parameter`."""

    shape: Annotated[list[Count], Field(max_length=8)]
    """The sizes of the axes, such as `[4, "=d_model"]`; `[]` for a single number."""
    init: Literal["normal", "zeros", "ones", "identity", "range"] = "normal"
    """The values at first: `normal` has a variance of 1 / the last size, as embeddings have,
    `identity` is 1 where the last two indices are equal, and `range` counts from 0 along the last
    axis."""
    factor: Number = 1.0
    """A factor of these values."""
    learned: Flag = True
    """Whether training changes the values; otherwise they are constants."""
    rows: Flag = False
    """Whether each row of the batch of `x` has the array, which then begins with that axis."""

    @model_validator(mode="after")
    def _exists(self) -> Self:
        """Refuse random constants, and arrays with too few axes."""
        if not self.learned and self.init == "normal":
            msg = "a constant has no random values; set 'init' to zeros, ones, identity or range"
            raise ValueError(msg)
        if self.init == "range" and not self.shape:
            msg = "'range' counts along the last axis, and 'shape' has none"
            raise ValueError(msg)
        if self.init == "identity" and len(self.shape) < _PLANE:
            msg = f"'identity' has two axes, and 'shape' has {len(self.shape)}"
            raise ValueError(msg)
        if self.init == "zeros" and self.factor != 1:
            msg = f"'factor' is {self.factor:g}, but zeros stay zeros"
            raise ValueError(msg)
        return self


def _signature(params: ParameterParams, _: frozenset[str]) -> Signature:
    """Return the ports before the rank of x is known."""
    lead = ("b",) if params.rows else ()
    output = Port("y", ValueType("f", (*lead, *params.shape)), doc="the array")
    reads = params.rows or not params.learned
    inputs = (port("x", "f[...]", ROWS),) if reads else ()
    return Signature(inputs=inputs, outputs=(output,), measured=("x",) if reads else ())


def _typed(params: ParameterParams, types: Mapping[str, ValueType]) -> Signature:
    """Return the ports for the number of axes of x, of which the first is that of the batch."""
    signature = _signature(params, frozenset())
    if not signature.inputs:
        return signature
    names = ["b", *(f"n_{index}" for index in range(1, len(types["x"].axes)))]
    x = ValueType("f", tuple(names[: len(types["x"].axes)]))
    return replace(signature, inputs=(Port("x", x, doc=ROWS),))


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": tuple(arguments["shape"]) or (1,)} if arguments["learned"] else {}


PARAMETER = BlockType(
    name="parameter",
    mixes="",
    doc="An array that does not depend on the input, learned or constant, such as latents, "
    "queries, prompts, or weights of layers; y = w.",
    source="Jaegle et al. 2021, section 3.1 (latents); Carion et al. 2020, section 3.2 (queries); "
    "Lester et al. 2021, section 2 (prompts)",
    params=ParameterParams,
    signature=_signature,
    typed=_typed,
    arguments=only_params,
    weights=_weights,
    fans={"weight": "?"},
    module=".algebra.parameter_module:Parameter",
    example={"shape": [3, 5], "rows": True},
    example_inputs={"x": "f[B S 8]"},
)
