"""Fields: kinds of numbers that the params of several blocks share."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
"""A positive whole number."""
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A probability below 1, such as that of dropping a number while training."""
Flag = Annotated[bool, Field(strict=True)]
"""True or false, and nothing that looks like it."""
Epsilon = Annotated[float, Field(gt=0.0, lt=1.0)]
"""A small number that keeps a division finite."""


class Params(BaseModel):
    """Params of a block: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)
