"""Fields: kinds of numbers that the params of several blocks share."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializationInfo,
    SerializerFunctionWrapHandler,
    model_serializer,
)

Count = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
"""A positive whole number."""
Several = Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
"""A whole number that may be 0."""
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
"""A probability below 1, such as that of dropping a number while training."""
Flag = Annotated[bool, Field(strict=True)]
"""True or false, and nothing that looks like it."""
Epsilon = Annotated[float, Field(gt=0.0, lt=1.0)]
"""A small number that keeps a division finite."""
Base = Annotated[float, Field(gt=0.0, le=1e12)]
"""A positive number of which powers are taken."""
Number = Annotated[float, Field(allow_inf_nan=False)]
"""Any finite number."""

LATER = "later"
"""Marks a param that a block got after its first specs, as `Annotated[Flag, LATER]`.

Its default means what the block did before, and the full form of a spec leaves it out
while it has that: so fingerprints stay, and old checkpoints open.
"""


class Params(BaseModel):
    """Params of a block: frozen, and strict about names."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @model_serializer(mode="wrap")
    def _write(
        self, handler: SerializerFunctionWrapHandler, info: SerializationInfo
    ) -> dict[str, Any]:
        """Return the params; as JSON without the later ones that have their default."""
        values: dict[str, Any] = handler(self)
        if info.mode != "json":
            return values
        fields = type(self).model_fields
        return {
            name: value
            for name, value in values.items()
            if LATER not in fields[name].metadata or getattr(self, name) != fields[name].default
        }
