"""Settings of distributed training."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...data.settings import Settings


class ParallelSettings(Settings):
    """Settings of data and tensor parallelism; without several processes, they are ignored.

    They do not change the results except for rounding.
    """

    processes: Annotated[int, Field(ge=1)] | None = None
    """Number of processes on this machine, which `weft train` starts; `null` is one, or those that
    torchrun has started."""

    data: Literal["auto", "ddp", "fsdp"] = "auto"
    """Data parallelism: `ddp` replicates all weights; `fsdp` shards weights, gradients and
    optimizer state.  `auto` means ddp, or fsdp if `tensor` is above 1."""
    shard: Annotated[int, Field(ge=2)] | None = None
    """Number of processes over which `fsdp` shards the weights; groups of so many replicate them
    (HSDP), so that only gradients travel between groups.  `null` shards over all."""
    tensor: Annotated[int, Field(ge=1)] = 1
    """Tensor parallelism: number of processes that share the heads of each attention and the width
    of each feed-forward map.  The processes of such a group read the same batches."""
    patience: Annotated[float, Field(ge=10)] = 180.0
    """Seconds after which a process that sends no heartbeat ends the training.  Without it, the
    others would wait two hours for a process that was stopped or hangs."""
