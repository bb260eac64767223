"""Field types and the base class that block params share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

PAD, END, UNKNOWN, BEGIN = 0, 1, 2, 3
"""Ids of the special tokens of Weft's tokenizers: padding, end, unknown and beginning."""

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
"""A positive integer."""
Several = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
"""A non-negative integer."""
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A probability in [0, 1), such as a dropout probability."""
Flag = Annotated[bool, Field(strict=True)]
"""A strict boolean; values such as 0 or "yes" are rejected."""
Epsilon = Annotated[float, Field(gt=0.0, lt=1.0)]
"""A small positive number, below 1, for numerical stability."""
Base = Annotated[float, Field(gt=0.0, le=1e12)]
"""A positive base of powers, such as that of rotary angles."""
Number = Annotated[float, Field(allow_inf_nan=False)]
"""Any finite number."""

Activation = Literal[
    "relu",
    "gelu",
    "gelu_tanh",
    "silu",
    "tanh",
    "sigmoid",
    "squared_relu",
    "quick_gelu",
    "elu",
    "leaky_relu",
    "softplus",
    "mish",
    "hard_swish",
    "identity",
]
"""An activation function.  `gelu_tanh` is the tanh approximation of gelu, `quick_gelu` is
x * sigmoid(1.702 x), and `squared_relu` is max(0, x)^2; below 0, `leaky_relu` is 0.01 x.
`silu` is also called swish; `identity` returns x."""


class Params(BaseModel):
    """Base class of block params; frozen, and unknown names are rejected."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def __repr_args__(self) -> Iterator[tuple[str, Any]]:
        """Yield the params that were set, for `repr`; the others have their defaults."""
        return ((name, getattr(self, name)) for name in sorted(self.model_fields_set))


def without_usual(params: BaseModel, names: Collection[str]) -> dict[str, Any]:
    """Return params as constructor arguments, without those of some names that have defaults.

    Args:
        params: the params.
        names: names of params that generated code has only where they have an effect.
    """
    usual = {name: type(params).model_fields[name].default for name in names}
    values = params.model_dump()
    return {name: v for name, v in values.items() if name not in usual or v != usual[name]}


def only_params(params: BaseModel, _: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments of a block of which sizes do not matter: its params."""
    return params.model_dump()


def no_arguments(_: BaseModel, __: Mapping[str, Any]) -> dict[str, Any]:
    """Return no constructor arguments, for a block without params or without a module."""
    return {}
