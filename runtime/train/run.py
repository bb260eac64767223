"""Settings of a run: what is trained on which data, and how, as a JSON document.

A run names an objective, the columns of its data, and what is measured; the docstring of each
number gives its unit.  `--set path=value` overrides any setting on the command line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    Tag,
    field_validator,
    model_serializer,
)

from ...graphs.json_schema import DRAFT
from ...specs.findings import Finding, SpecError, pointer
from ...specs.lost_settings import ReadSettings, read_settings
from ...specs.reader import FOR_EDITORS, RUNS, refuse_other, upgrade_format
from ...specs.wording import SettingError
from ..checkpoint.curve import BY_FORM, Curve, OfPieces, curve_at, stretches
from ..checkpoint.mapping.line import Parts
from ..checkpoint.task import Positive, Task
from ..data.settings import BatchSettings, PathText, Settings, possible_path
from ..system.plugins import Selected
from .distributed.parallel_settings import ParallelSettings
from .recipe.groups import Parametrization
from .recipe.optimizers import Adam, AnyOptimizer
from .recipe.schedule import Schedule, of_small_data
from .trackers import TRACKERS, TensorBoard, TrackerSettings

AnyTracker = Annotated[TrackerSettings, Selected(TRACKERS)]
LeftOut = Literal["merge", "unpad", "fuse", "kernels", "casts"]
"""A pass of training that a run may leave out."""
_KEPT = {
    "checkpoint": (
        "it runs only for the parts that 'activation_checkpointing' selects",
        "remove it, and these parts",
    ),
    "parallel": (
        "without it, each process would train another model with its share of the data",
        "remove it, and train without torchrun for a training of one process",
    ),
}
"""Any other pass of training to the reason why it cannot be left out, and a way out."""


class KernelSettings(Settings):
    """Choice among kernels that compute the same function; see docs/training.md."""

    product: Literal["auto", "torch", "onednn"] = "auto"
    """Kernel of float32 matrix products on the CPU; `auto` measures once per machine."""
    attention: Literal["auto", "fused", "plain", "blocked", "flex", "varlen"] = "auto"
    """Attention backend; `auto` measures `fused`, `plain` and, on the CPU, `blocked` at several
    lengths, and on CUDA `varlen` without padding."""
    loss: Literal["auto", "torch", "triton"] = "auto"
    """Kernel of the softmax and its gradient in losses that compute the output projection; `auto`
    is `triton` on CUDA if Triton is installed, which the CUDA builds of torch do."""


Factor = Annotated[Annotated[float, Field(ge=0, le=1), Tag("number")] | OfPieces, BY_FORM]
"""A number from 0 to 1, or the pieces in which it changes."""
Batches = Annotated[Annotated[Positive, Tag("number")] | OfPieces, BY_FORM]
"""A number of batches, or the pieces in which it changes, rounded to whole batches."""


Tokens = Annotated[Annotated[int, Field(ge=2), Tag("number")] | OfPieces, BY_FORM]
"""A number of tokens, or the pieces in which it changes."""
_DIGITS = 4
"""Binary digits of a number of tokens that changes gradually, rounded down: eight sizes from one
power of two to the next, so that the rows of an epoch are planned again rarely."""


class RunBatch(BatchSettings):
    """Size of a batch, which may change over the updates."""

    tokens: Tokens = 4096  # type: ignore[assignment]  # `Run.batch_at` has a number
    """Maximum number of tokens on each side, end tokens included, or pieces in which it changes, at
    once or, in eight sizes from one power of two to the next, gradually; `count` says which."""


class CheckpointSettings(Settings):
    """Settings of the checkpoints of a run."""

    every: Positive = 250
    """Updates between checkpoints."""
    seconds: float = Field(default=600.0, gt=0)
    """Seconds after which an additional checkpoint is written; each of these replaces the previous
    one, and they are not averaged."""
    keep: Positive = 5
    """Number of newest checkpoints to keep; the newest two are always kept and can be resumed."""
    average: int = Field(default=5, ge=0)
    """Number of newest checkpoints whose mean is written at the end; 0 disables averaging."""
    ema: float | None = Field(default=None, gt=0.0, lt=1.0)
    """Decay of an exponential moving average of the weights, updated after each update, which is
    written at the end instead of a mean of checkpoints; then set `average` to 0 or leave it out."""
    sharded: bool = False
    """Whether each process writes its shards of a checkpoint instead of sending them to the main
    process: for weights that do not fit into one process.  `best` and `averaged` are never
    sharded."""


class Start(Settings):
    """Weights that a training begins with; a text is the folder alone."""

    checkpoint: PathText
    """Checkpoint folder whose weights initialize the model, as far as they fit its spec."""
    weights: dict[str, Parts | None] = Field(default_factory=dict)
    """Weights of the model that come from weights of the checkpoint with another path or shape, as
    lines of a table; `null` draws a weight anew."""
    vocabulary: Literal["same", "by_piece"] = "same"
    """Whether the tokenizers must be those of the checkpoint; with `by_piece`, the weights of a
    piece that both have follow the piece, and those of others are drawn."""
    freeze: bool = False
    """Whether weights that come from the checkpoint completely do not train."""

    @model_serializer(mode="wrap")
    def _short(self, handler: SerializerFunctionWrapHandler) -> str | dict[str, Any]:
        """Return the folder alone if nothing else is set."""
        record: dict[str, Any] = handler(self)
        return record if self != Start(checkpoint=self.checkpoint) else self.checkpoint


def _start(value: Any) -> Any:
    return {"checkpoint": possible_path(value)} if isinstance(value, str) else value


class Run(Task):
    """Settings of a run."""

    freeze: tuple[str, ...] = ()
    """Weights that do not train, as selections of parts, such as `model.encoder.*`, or of weights,
    such as `**.bias`; `[dim=2]` at the end of a selection keeps those with two axes."""
    train: tuple[str, ...] = ()
    """Weights among those of `freeze` that train nevertheless, as selections, such as
    `**.lora.**`."""
    trackers: tuple[AnyTracker, ...] = (TensorBoard(),)
    """Where values, sample outputs and pictures are logged besides `metrics.jsonl`."""
    start: Annotated[
        Start | None, BeforeValidator(_start, json_schema_input_type=PathText | Start | None)
    ] = None
    """Checkpoint folder whose weights initialize the model, as far as they fit its spec, or an
    object that says more."""
    batch: RunBatch = RunBatch(tokens=1024)
    accumulate: Batches = 4
    """Batches per update (gradient accumulation), or pieces in which they change.  A batch contains
    sentences of similar length, which needs little padding; an update of several batches mixes
    lengths, without which training on small corpora works badly."""
    dropout: Factor = 1.0
    """Factor of every probability of dropout, or pieces in which it changes.  Late dropout, such
    as `[{"over": 1600}, {"from": 1}]`, speeds up training on small corpora a lot; see
    docs/decisions/0006."""
    updates: Positive = 3000
    """Total number of updates."""
    optimizer: AnyOptimizer = Adam()
    """Optimizer and its options; its `groups` have other optimizers, rates or options."""
    parametrization: Parametrization | None = None
    """How initial weights and rates follow the width of the model; `null` leaves them as they
    are."""
    schedule: Schedule = of_small_data()
    """Learning rate over the updates; the default rises in the first tenth of the run, then falls
    to 0 at its end, along a cosine."""
    precision: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of matrix products; weights stay float32.  `auto` uses bfloat16 if it is fast, and
    `float16` with loss scaling on GPUs that have only that.  Predictions of a float16 run are
    computed in float32."""
    deterministic: bool = False
    """Whether to use only deterministic algorithms, so that a GPU too computes the same bits in
    every run, and no kernel chosen by a measurement.  An operator without one is an error."""
    compile: Literal["auto", "layers", "eager"] = "auto"
    """Mode of torch.compile; see `weft.compile`."""
    kernels: KernelSettings = KernelSettings()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device of the training; `auto` uses a GPU if one is available."""
    padding: Literal["auto", "unpadded"] = "auto"
    """`unpadded` computes only non-padding tokens, everywhere except in the attention kernel;
    `auto` does so if at least 5 % of all positions are padding, unless `without` names `unpad`.
    Dropout then draws other random numbers."""
    activation_checkpointing: str | tuple[str, ...] = ()
    """Parts with activation checkpointing: the backward pass computes their activations again
    instead of storing them.  Selections as in patches, such as `model.encoder.*`.  Less memory,
    more time, the same results."""
    without: tuple[LeftOut, ...] = ()
    """Passes over the graph to leave out, such as `["fuse"]`; see docs/passes.md.  Results are the
    same up to rounding, but without `unpad` dropout draws other random numbers."""
    parallel: ParallelSettings = ParallelSettings()
    """Distributed training with torchrun; see docs/scaling.md."""
    threads: Positive | None = None
    """Number of CPU threads; `null` leaves the choice to torch."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Seed of the initial weights, the order of the data and dropout."""

    def batches_at(self, update: int) -> int:
        """Return the number of batches of an update, from its number, counted from 1."""
        return max(1, round(curve_at(self.accumulate, update, self.updates)))

    def batch_range(self) -> tuple[int, int]:
        """Return the least and the greatest number of batches of an update."""
        return self._range(self.accumulate, self.batches_at)

    def tokens_at(self, update: int) -> int:
        """Return the limit of the tokens of a batch in an update, counted from 1."""
        tokens: Curve = self.batch.tokens
        limit = round(curve_at(tokens, update, self.updates))
        if not isinstance(tokens, tuple):
            return limit
        placed = stretches(tokens, self.updates)
        if limit in {round(end) for stretch in placed for end in (stretch.start, stretch.end)}:
            return limit
        unit = 1 << max(0, limit.bit_length() - _DIGITS)
        return limit // unit * unit

    def token_range(self) -> tuple[int, int]:
        """Return the least and the greatest limit of the tokens of a batch."""
        return self._range(self.batch.tokens, self.tokens_at)

    def batch_at(self, update: int) -> BatchSettings:
        """Return the size of a batch in an update, from its number, counted from 1."""
        return self.batch.model_copy(update={"tokens": self.tokens_at(update)})

    @property
    def largest_batch(self) -> BatchSettings:
        """The size of a batch where it is largest."""
        return self.batch.model_copy(update={"tokens": self.token_range()[1]})

    def _range(self, curve: Curve, value_at: Callable[[int], int]) -> tuple[int, int]:
        """Return the least and the greatest value of a curve, which are at the ends of pieces."""
        if not isinstance(curve, tuple):
            return value_at(1), value_at(1)
        ends = {1, self.updates}
        for stretch in stretches(curve, self.updates):
            if stretch.after < min(stretch.until, self.updates):
                ends |= {stretch.after + 1, min(stretch.until, self.updates)}
        numbers = [value_at(update) for update in sorted(ends)]
        return min(numbers), max(numbers)

    def __repr__(self) -> str:
        """Return the name, the objective and the number of updates; `model_dump()` has all."""
        return f"<Run {self.name}: {self.objective}, {self.updates:,} updates>"

    __str__ = __repr__

    @field_validator("without", mode="before")
    @classmethod
    def _check_without(cls, names: Any) -> Any:
        """Check that each pass to leave out is named once and is not required.

        Raises:
            SettingError: one is not.
        """
        for at, name in enumerate(names if isinstance(names, list | tuple) else ()):
            if isinstance(name, str) and name in _KEPT:
                why, help_ = _KEPT[name]
                raise SettingError(f"the pass '{name}' cannot be left out: {why}", at, help_=help_)
            if name in names[:at]:
                raise SettingError(f"'{name}' is named twice", at, help_="remove it")
        return tuple(names) if isinstance(names, list) else names

    def _mistakes(self) -> Iterator[SettingError]:
        """Yield an error for each setting that does not fit others, or has no effect."""
        yield from super()._mistakes()
        if self.train and not (self.freeze or (self.start and self.start.freeze)):
            msg = "'train' has no effect without 'freeze': all weights train"
            yield SettingError(msg, "train", help_="remove it, or freeze parts")


_COLUMNS = "/data/columns/*"
_MODEL = ("/objective", "/params/*", _COLUMNS)
_PREDICTIONS = ("/predict/*", "/answers", _COLUMNS)
DEPENDS = {
    "/activation_checkpointing": _MODEL,
    "/answers": (_COLUMNS,),
    "/auxiliary": _MODEL,
    "/batch": (_COLUMNS, "/data/filter/*", "/tokenizers/*", "/updates"),
    "/checkpoint": ("/checkpoint/*", "/parallel/*", "/optimizer/*", "/updates", *_MODEL),
    "/data": ("/data/root",),
    "/data/columns": ("/data/columns", "/tokenizers", *_MODEL[:2]),
    "/data/mixture": ("/data/train/*", "/updates"),
    "/data/filter": ("/batch/*", *_MODEL),
    "/accumulate": ("/updates",),
    "/dropout": ("/updates", *_MODEL),
    "/evaluate": (
        "/data/valid/*",
        *_PREDICTIONS,
        "/evaluate/metrics/*",
        "/evaluate/best",
        "/trackers/*",
    ),
    "/evaluate/best": (*_PREDICTIONS, *_MODEL),
    "/evaluate/metrics": (*_PREDICTIONS, *_MODEL),
    "/evaluate/patience": ("/evaluate/every", "/updates"),
    "/freeze": ("/train/*", *_MODEL),
    "/kernels": ("/without/*", *_MODEL),
    "/objective": ("/params/*", _COLUMNS),
    "/optimizer": ("/parallel/*", "/optimizer/*", "/updates", "/freeze/*", "/train/*", *_MODEL),
    "/parametrization": ("/parametrization/*", *_MODEL),
    "/padding": ("/without/*", *_MODEL),
    "/parallel": ("/parallel/*", *_MODEL),
    "/params": (_COLUMNS, "/objective"),
    "/precision": ("/parallel/*",),
    "/predict": _PREDICTIONS,
    "/schedule": ("/updates", "/schedule/*", *_MODEL),
    "/start": ("/tokenizers/*", "/freeze/*", "/train/*", *_MODEL),
    "/tokenizers": (_COLUMNS, "/tokenizers/*"),
    "/train": ("/freeze/*", "/start", *_MODEL),
    "/updates": (
        "/schedule/*",
        "/dropout",
        "/accumulate",
        "/batch/*",
        "/values/*",
        "/optimizer/*",
    ),
    "/values": ("/updates",),
    "/without": ("/precision", *_MODEL),
}
"""Settings to the others that are read with them, so that a wrong one may cause findings there."""


def read_run(
    value: Any, source: str, overrides: Mapping[str, Any] | None = None
) -> ReadSettings[Run]:
    """Return the run in a JSON value as far as it can be read.

    Args:
        value: content of a run file.
        source: its name, for findings.
        overrides: values by dotted path, in the current format.

    Raises:
        SpecError: it is not a run, or of an unknown format.
    """
    refuse_other(value, source, "run")
    if isinstance(value, dict):
        value = upgrade_format(value, RUNS)
    findings: list[Finding] = []
    for dotted, new in (overrides or {}).items():
        try:
            set_dotted(value, dotted, new, source)
        except SpecError as error:
            findings += error.findings
    read = read_settings(Run, value, source, RUNS, DEPENDS)
    return replace(read, findings=(*findings, *read.findings)) if findings else read


def set_dotted(value: Any, dotted: str, new: Any, source: str, at: str = "") -> None:
    """Set one value in a JSON object by its dotted path, creating missing objects.

    Args:
        value: the object, which is changed.
        dotted: the path, such as `optimizer.clip`, or `schedule.pieces.0.over` inside a list.
        new: the new value.
        source: file of the object, for findings.
        at: pointer to where the path is written; default: the path itself.

    Raises:
        SpecError: a part of the path is no object or list that has the next one.
    """
    keys = dotted.split(".")
    target = value
    for depth, key in enumerate(keys):
        if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
            if depth == len(keys) - 1:
                target[int(key)] = new
            target = target[int(key)]
            continue
        if not isinstance(target, dict):
            path = ".".join(keys[:depth]) or "the file"
            raise SpecError(
                [
                    Finding(
                        code="P04",
                        at=at or pointer(*keys[:depth]),
                        problem=f"'{path}' has no '{key}' that could be set",
                        help="set the value that contains it",
                        source=source,
                    )
                ]
            )
        if depth == len(keys) - 1:
            target[key] = new
        else:
            target = target.setdefault(key, {})


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of a run file, with the settings in the order of the class."""
    schema = Run.model_json_schema()
    properties = {FOR_EDITORS: {"type": "string"}, **schema["properties"]}
    return {"$schema": DRAFT, **schema, "title": "A run of weft", "properties": properties}
