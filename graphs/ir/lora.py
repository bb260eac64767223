"""Low-rank adaptation (LoRA): matrices that are added to the linear maps of a block.

A linear map x W^T + b becomes x (W + alpha / rank * B A)^T + b with A [rank, inputs] and
B [outputs, rank].  A block names its linear maps in its contract (`BlockType.maps`); its module
and its formulas know nothing of the matrices.

Source: Hu et al. 2022, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ...specs.findings import did_you_mean

A, B = "lora.a.weight", "lora.b.weight"
"""Names of both matrices below the path of a linear map."""


class LoraSettings(BaseModel):
    """Low-rank matrices that are added to linear maps."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    rank: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    """Rank of the matrices."""
    alpha: Annotated[float, Field(gt=0.0, le=1e12)] = 16.0
    """Scale: their product is multiplied by alpha / rank."""
    maps: tuple[str, ...] = ()
    """Linear maps of the block, such as `["query", "value"]`; all by default."""

    @property
    def factor(self) -> float:
        """The factor of the product of both matrices."""
        return self.alpha / self.rank

    def chosen(self, maps: Iterable[str]) -> list[str]:
        """Return those maps of a block that get matrices."""
        return [name for name in maps if not self.maps or name in self.maps]

    def weights(
        self, maps: Iterable[str], weights: Mapping[str, tuple[int, ...]]
    ) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the matrices by name, given those of the weights of a block."""
        shapes: dict[str, tuple[int, ...]] = {}
        for prefix in map(prefix_of, self.chosen(maps)):
            outputs, inputs = weights[f"{prefix}weight"]
            shapes |= {f"{prefix}{A}": (self.rank, inputs), f"{prefix}{B}": (outputs, self.rank)}
        return shapes


class Adaptable(BaseModel):
    """Base class of the params of a block with linear maps, `BlockType.maps`."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    lora: LoraSettings | None = None
    """Low-rank matrices that are added to linear maps of the block; `weft lora` sets it."""


def lora_of(params: BaseModel) -> LoraSettings | None:
    """Return what the params of a block say about LoRA."""
    return params.lora if isinstance(params, Adaptable) else None


def prefix_of(name: str) -> str:
    """Return the beginning of the paths below a linear map: `query.`; "" for the block itself."""
    return f"{name}." if name else ""


def without_lora(
    params: BaseModel, arguments: Mapping[str, Any], maps: Iterable[str]
) -> Mapping[str, Any]:
    """Return the constructor arguments of a block, which knows nothing of LoRA.

    Raises:
        ValueError: the params name a linear map that the block does not have.
    """
    lora = lora_of(params)
    for name in () if lora is None else lora.maps:
        if name not in maps:
            listed = [name for name in maps if name]
            help_ = f"known: {', '.join(listed)}" if listed else "remove 'maps'"
            msg = f"'lora' names the linear map '{name}', which the block does not have"
            raise ValueError(msg, did_you_mean(name, listed) or help_)
    if not isinstance(params, Adaptable):
        return arguments
    return {name: value for name, value in arguments.items() if name != "lora"}
