"""Run: how one model is trained, as a JSON document.

A run names a spec and data; the same spec can be trained in many ways.  Every number
says its unit.  `--set path=value` changes any of them from outside.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ...specs.findings import Finding, InputError, SpecError, did_you_mean, pointer
from ...specs.reader import find, parse, read_json, read_text
from ...specs.upgrade import RUN_FORMATS, upgrade_format
from ..data.settings import BatchSettings, DataSettings, Settings, TokenizerSettings
from ..data.treebank.settings import ParsingSettings
from ..decode.settings import SearchSettings
from .distributed.settings import ParallelSettings
from .optimize import OptimizerSettings
from .schedule import Noam, Schedule

FOLDER = "runs"
"""Folder of `specs/` that holds shipped runs."""

Positive = Annotated[int, Field(ge=1)]


class LossSettings(Settings):
    """What is minimised."""

    smoothing: float = Field(default=0.1, ge=0.0, lt=1.0)
    """Probability taken from the right word and spread over others."""
    spread: Literal["vocabulary", "others"] = "vocabulary"
    """Over all V words (torch) or the V - 1 others (tensor2tensor, fairseq)."""
    auxiliary: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    """Times which the outputs of kind `loss` are added, such as the balance of experts."""


class EvaluateSettings(Settings):
    """How the run is watched."""

    every: Positive = 1000
    """Updates between validations."""
    bleu: bool = True
    """Whether validation text is translated, or parsed, and scored too."""
    beam: Positive = 1
    """Beam of those translations or parses."""
    sentences: Positive | None = None
    """Validation lines to translate, or trees to parse, from the first; None is all."""
    best: Literal["bleu", "f1", "nll"] | None = None
    """What the best checkpoint is best at; None is BLEU, or for parsing F1."""
    patience: Positive | None = None
    """Validations without a new best after which the run stops; None never stops it."""
    lowercase: bool = False
    """Whether the validation BLEU ignores case (sacreBLEU -lc)."""


class KernelSettings(Settings):
    """Which of several ways to compute the same thing is used; see docs/training.md."""

    product: Literal["auto", "torch", "onednn"] = "auto"
    """What multiplies float32 matrices on the CPU; `auto` measures, once for a machine."""
    attention: Literal["auto", "fused", "plain", "flex", "varlen"] = "auto"
    """The core of attention; `auto` measures `fused` and `plain` by length."""


class CheckpointSettings(Settings):
    """When the run is saved."""

    every: Positive = 1000
    """Updates between checkpoints."""
    seconds: float = Field(default=600.0, gt=0)
    """Seconds after which one more is written; it replaces itself and is not averaged."""
    keep: Positive = 5
    """Newest checkpoints that are kept."""
    average: int = Field(default=5, ge=0)
    """Newest checkpoints whose plain mean is written at the end; 0 writes none."""
    sharded: bool = False
    """Whether each process writes a part of a checkpoint instead of sending it to the first:
    for weights that do not fit into one process.  `best` and `averaged` are whole all the same."""


class Run(Settings):
    """A run, whole."""

    format: Literal[2]
    """Version of the format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    """What it is called: letters, digits, `_`, `.` and `-`; its folder is `outputs/NAME`."""
    doc: str = ""
    """What it is, for people."""
    task: Literal["translation", "mask_predict", "parsing"] = "translation"
    """`mask_predict` writes all words of an output at once, and the unlikely ones again;
    `parsing` learns from treebanks."""
    parsing: ParsingSettings = ParsingSettings()
    """What the task `parsing` makes of trees."""
    spec: str
    """A shipped spec, or a file beside the run."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the spec's params; `vocab` is the tokenizer's unless set."""
    start: str | None = None
    """A checkpoint folder whose weights the run begins with, as far as they fit its spec."""
    data: DataSettings
    tokenizer: TokenizerSettings
    batch: BatchSettings = BatchSettings(tokens=1024)
    accumulate: Positive = 4
    """Batches in one update.  A batch holds sentences of one length, which pads little; an
    update of several batches mixes lengths, without which small corpora are learnt badly."""
    dropout_from: int = Field(default=0, ge=0)
    """First update at which anything is dropped: late dropout, Liu et al. 2023, section 5.
    A small corpus is learnt much sooner so; see docs/decisions/0006."""
    updates: Positive = 100_000
    """Updates in all."""
    optimizer: OptimizerSettings = OptimizerSettings()
    schedule: Schedule = Noam()
    """The learning rate of each update; `type` says which."""
    loss: LossSettings = LossSettings()
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay float32. `auto` is bfloat16 where that is fast."""
    compile: Literal["auto", "layers", "eager"] = "auto"
    """See `weft.compile`."""
    kernels: KernelSettings = KernelSettings()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where it is trained; `auto` is a GPU where there is one."""
    padding: Literal["auto", "padded", "unpadded"] = "auto"
    """`unpadded` computes positions that are no padding alone, everywhere but in the core of
    attention; `auto` does where 5 % of all is padding.  What is dropped falls elsewhere."""
    activation_checkpointing: str | tuple[str, ...] = ()
    """Parts whose activations are not kept but computed again by the backward pass: selections
    as of patches, such as `encoder.*`.  Less memory, more time, the same numbers."""
    parallel: ParallelSettings = ParallelSettings()
    """How processes that torchrun starts share the work; see docs/scaling.md."""
    threads: Positive | None = None
    """Threads on the CPU; None is torch's own choice."""
    evaluate: EvaluateSettings = EvaluateSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    search: SearchSettings = SearchSettings()
    """How the finished model translates."""
    seed: int = Field(default=1, ge=0, lt=2**31)
    """Decides initial weights, order of the data and dropout, nothing else."""

    @property
    def best(self) -> str:
        """What the best checkpoint is best at."""
        return self.evaluate.best or ("f1" if self.task == "parsing" else "bleu")

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        """Refuse data and measures of another task.

        Raises:
            ValueError: they are.
        """
        parsing = self.task == "parsing"
        other = "bleu" if parsing else "f1"
        if self.evaluate.best == other:
            msg = f"the task '{self.task}' is not measured by {other}"
            raise ValueError(msg)
        files = [self.data.train, self.data.valid, *self.data.test.values()]
        if any(bool(one.trees) != parsing for one in files):
            wanted = "trees" if parsing else "source and target files"
            msg = f"the task '{self.task}' takes {wanted}"
            raise ValueError(msg)
        return self


def load_run(name: str | Path, overrides: Mapping[str, Any] | None = None) -> tuple[Run, str]:
    """Read a run file or a shipped run.

    Args:
        name: a path, or a shipped name such as `multi30k-en-de`.
        overrides: dotted path to value, such as `{"optimizer.clip": 1.0}`.

    Returns:
        The run, and the file it came from.

    Raises:
        InputError: no such file.
        SpecError: the text or its form is wrong.
    """
    path = find(str(name), FOLDER)
    value = read_json(read_text(path), str(path))
    if isinstance(value, dict):
        value, _ = upgrade_format(value, RUN_FORMATS)
    for dotted, new in (overrides or {}).items():
        _set(value, dotted.split("."), new, str(path))
    return parse(Run, value, str(path), RUN_FORMATS), str(path)


def _set(value: Any, keys: list[str], new: Any, source: str) -> None:
    """Put one override into a JSON value, making objects on the way."""
    if not isinstance(value, dict):
        raise InputError("'--set' needs an object there", place=f"{source}#{pointer(*keys[:-1])}")
    here: dict[str, Any] = value
    for depth, key in enumerate(keys[:-1]):
        inner = here.setdefault(key, {})
        if not isinstance(inner, dict):
            at = pointer(*keys[: depth + 1])
            problem = f"'{key}' holds a value, so nothing inside it can be set"
            raise SpecError([Finding(code="P04", at=at, problem=problem, source=source)])
        here = inner
    here[keys[-1]] = new


def spec_of(run: Run, source: str) -> str:
    """Return the spec that a run names: shipped, or a file beside the run and nowhere else.

    Raises:
        InputError: neither.
    """
    from_shipped = not run.spec.endswith(".json")
    if from_shipped:
        return run.spec
    folder = Path(source).resolve().parent
    path = (folder / run.spec).resolve()
    if not path.is_relative_to(folder):
        raise InputError(
            f"spec '{run.spec}' leads out of the run's folder",
            place=f"{source}#/spec",
            help="put the spec beside the run, or name a shipped one",
        )
    if not path.is_file():
        near = [p.name for p in folder.glob("*.json")]
        raise InputError(
            f"no spec '{run.spec}' beside the run",
            place=f"{source}#/spec",
            help=did_you_mean(run.spec, near),
        )
    return str(path)
