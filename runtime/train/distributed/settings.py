"""Settings of a run that several processes train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...data.settings import Settings


class ParallelSettings(Settings):
    """How processes divide the work; without torchrun there is one, and none of it matters.

    Which numbers come out does not depend on it, but for rounding.
    """

    data: Literal["auto", "ddp", "fsdp"] = "auto"
    """How processes that read different batches stay alike: each has all weights (`ddp`), or
    weights, gradients and what the optimizer remembers are spread over them (`fsdp`).  `auto`
    is ddp, and fsdp where `tensor` is above 1."""
    tensor: Annotated[int, Field(ge=1)] = 1
    """Processes among which heads of attention and widths of feed-forward maps are divided;
    those of one such group read the same batches."""
