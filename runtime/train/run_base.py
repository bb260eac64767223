"""Settings that all runs have: how weights are updated, on which device, and what is saved."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ..data.settings import BatchSettings, PathText, Settings
from .distributed.settings import ParallelSettings
from .optimize import OptimizerSettings
from .schedule import Noam, Schedule

Positive = Annotated[int, Field(ge=1)]


class KernelSettings(Settings):
    """Choice among kernels that compute the same function; see docs/training.md."""

    product: Literal["auto", "torch", "onednn"] = "auto"
    """Kernel of float32 matrix products on the CPU; `auto` measures once per machine."""
    attention: Literal["auto", "fused", "plain", "flex", "varlen"] = "auto"
    """Attention backend; `auto` measures `fused` and `plain` at several lengths."""


class CheckpointSettings(Settings):
    """Settings of the checkpoints of a run."""

    every: Positive = 1000
    """Updates between checkpoints."""
    seconds: float = Field(default=600.0, gt=0)
    """Seconds after which an additional checkpoint is written; each of these replaces the previous
    one, and they are not averaged."""
    keep: Positive = 5
    """Number of newest checkpoints to keep; the newest two are always kept and can be resumed."""
    average: int = Field(default=5, ge=0)
    """Number of newest checkpoints whose mean is written at the end; 0 disables averaging."""
    sharded: bool = False
    """Whether each process writes its shards of a checkpoint instead of sending them to the main
    process: for weights that do not fit into one process.  `best` and `averaged` are never
    sharded."""


class Validations(Settings):
    """Settings of the validations during training that all runs have."""

    every: Positive = 1000
    """Updates between validations."""
    patience: Positive | None = None
    """Number of validations without improvement after which the run stops; None disables this."""


class BaseRun(Settings):
    """Settings that all runs have."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    """Name of the run: letters, digits, `_`, `.` and `-`; its folder is `outputs/NAME`."""
    doc: str = ""
    """Description of the run."""
    start: PathText | None = None
    """Checkpoint folder whose weights initialize the model, as far as they fit its spec."""
    batch: BatchSettings = BatchSettings(tokens=1024)
    accumulate: Positive = 4
    """Batches per update (gradient accumulation).  A batch contains sentences of similar length,
    which needs little padding; an update of several batches mixes lengths, without which training
    on small corpora works badly."""
    dropout_from: int = Field(default=0, ge=0)
    """First update with dropout: late dropout, Liu et al. 2023, section 5.
    It speeds up training on small corpora a lot; see docs/decisions/0006."""
    updates: Positive = 100_000
    """Total number of updates."""
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: Schedule = Noam()
    """Learning rate schedule, selected by `type`."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; weights stay float32.  `auto` uses bfloat16 if it is fast."""
    compile: Literal["auto", "layers", "eager"] = "auto"
    """Mode of torch.compile; see `weft.compile`."""
    kernels: KernelSettings = KernelSettings()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the training; `auto` uses a GPU if one is available."""
    padding: Literal["auto", "padded", "unpadded"] = "auto"
    """`unpadded` computes only non-padding tokens, everywhere except in the attention kernel;
    `auto` does so if at least 5 % of all positions are padding.  Dropout then draws other random
    numbers."""
    activation_checkpointing: str | tuple[str, ...] = ()
    """Parts with activation checkpointing: the backward pass computes their activations again
    instead of storing them.  Selections as in patches, such as `encoder.*`.  Less memory, more
    time, the same results."""
    parallel: ParallelSettings = ParallelSettings()
    """Distributed training with torchrun; see docs/scaling.md."""
    threads: Positive | None = None
    """Number of CPU threads; None leaves the choice to torch."""
    evaluate: Validations = Validations()
    checkpoint: CheckpointSettings = CheckpointSettings()
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of the initial weights, the order of the data and dropout."""

    @property
    def best(self) -> str:
        """Metric that selects the best checkpoint."""
        raise NotImplementedError

    @property
    def best_is_higher(self) -> bool:
        """Whether a higher value of that metric is better."""
        raise NotImplementedError
