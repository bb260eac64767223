"""Settings of a run: how one model is trained, as a JSON document.

A run names a spec and data; the same spec can be trained in many ways.  The docstring of
each number gives its unit.  `--set path=value` overrides any setting on the command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ...specs.findings import Finding, InputError, SpecError, did_you_mean, pointer
from ...specs.reader import find, parse, read_file
from ...specs.upgrade import OBJECTIVE_FORMAT, RUN_FORMATS, upgrade_format
from ...specs.wording import SettingError
from ..data.settings import (
    DataSettings,
    Files,
    PathText,
    TokenizerSettings,
)
from ..data.treebank.settings import ParsingSettings
from ..decode.settings import SearchSettings
from .loss import LossSettings
from .objective.settings import ObjectiveRun
from .run_base import BaseRun, Positive, Validations

FOLDER = "runs"
"""Folder of `specs/` that contains the shipped runs."""


class EvaluateSettings(Validations):
    """Settings of the validations during training."""

    bleu: bool = True
    """Whether to also translate (or parse) the validation text and compute BLEU (or F1)."""
    beam: Positive = 1
    """Beam size of these translations or parses."""
    sentences: Positive | None = None
    """Number of validation lines to translate, or trees to parse, from the first; None is all."""
    best: Literal["bleu", "f1", "nll"] | None = None
    """Metric that selects the best checkpoint; None means BLEU, or F1 for parsing."""
    lowercase: bool = False
    """Whether validation BLEU ignores case (sacreBLEU -lc)."""


class Run(BaseRun):
    """Settings of a run."""

    format: Literal[2]
    """Version of the run file format."""
    task: Literal["translation", "mask_predict", "parsing"] = "translation"
    """Task of the model: `mask_predict` predicts all tokens of an output in parallel and the
    unlikely ones again; `parsing` learns from treebanks."""
    parsing: ParsingSettings = ParsingSettings()
    """How the task `parsing` represents trees."""
    spec: PathText
    """Name of a shipped spec, or path of a file in the folder of the run file."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the spec's params; `vocab` defaults to the size of the tokenizer."""
    data: DataSettings
    tokenizer: TokenizerSettings
    loss: LossSettings = LossSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    search: SearchSettings = SearchSettings()
    """Search settings with which the trained model decodes."""

    def __repr__(self) -> str:
        """Return the name, the spec and the number of updates; `model_dump()` has everything."""
        return f"<Run {self.name}: {self.spec}, {self.updates:,} updates>"

    __str__ = __repr__

    @property
    def best(self) -> str:
        """Metric that selects the best checkpoint."""
        return self.evaluate.best or ("f1" if self.task == "parsing" else "bleu")

    @property
    def best_is_higher(self) -> bool:
        """Whether a higher value of that metric is better."""
        return self.best != "nll"

    @model_validator(mode="after")
    def _fits_its_task(self) -> Self:
        """Check that the data and the metric belong to the task.

        Raises:
            ValueError: they belong to another task.
        """
        parsing = self.task == "parsing"
        other = "bleu" if parsing else "f1"
        if self.evaluate.best == other:
            msg = f"the task '{self.task}' does not support the metric '{other}'"
            own = "f1" if parsing else "bleu"
            help_ = f"set it to '{own}' or 'nll'"
            raise SettingError(msg, "evaluate", "best", help_=help_)
        parts: dict[tuple[str, ...], Files] = {
            ("train",): self.data.train,
            ("valid",): self.data.valid,
        }
        parts |= {("test", name): files for name, files in self.data.test.items()}
        wrong = [where for where, files in parts.items() if bool(files.trees) != parsing]
        if wrong:
            wanted = "'trees'" if parsing else "'source' and 'target'"
            msg = f"the task '{self.task}' needs {wanted}, which 'data.{'.'.join(wrong[0])}' lacks"
            at = ("task",) if len(wrong) == len(parts) else ("data", *wrong[0])
            help_ = f"name files under {wanted}, or set 'task' to another one"
            raise SettingError(msg, *at, help_=help_)
        return self


def load_run(
    name: str | Path, overrides: Mapping[str, Any] | None = None
) -> tuple[Run | ObjectiveRun, str]:
    """Read a run file or a shipped run.

    Args:
        name: path of a run file, or name of a shipped run such as `multi30k-en-de`.
        overrides: values by dotted path, such as `{"optimizer.clip": 1.0}`.

    Returns:
        The run, and the file it was read from.

    Raises:
        InputError: the file does not exist.
        SpecError: the file is not valid JSON or not a valid run.
    """
    value, source = read_file(find(str(name), FOLDER))
    return run_of(value, source, overrides), source


def run_of(
    value: Any, source: str, overrides: Mapping[str, Any] | None = None
) -> Run | ObjectiveRun:
    """Return the run in a JSON value.

    Args:
        value: content of a run file.
        source: its name, for findings.
        overrides: as of `load_run`.

    Raises:
        SpecError: it is not a valid run.
    """
    if isinstance(value, dict):
        value, _ = upgrade_format(value, RUN_FORMATS)
    for dotted, new in (overrides or {}).items():
        _set(value, dotted.split("."), new, source)
    if isinstance(value, dict) and value.get("format") == OBJECTIVE_FORMAT:
        return parse(ObjectiveRun, value, source, strict=True)
    return parse(Run, value, source, RUN_FORMATS, strict=True)


def _set(value: Any, keys: list[str], new: Any, source: str) -> None:
    """Set one override in a JSON value, creating missing objects along the path."""
    if not isinstance(value, dict):
        raise InputError(
            "'--set' needs an object at this path", place=f"{source}#{pointer(*keys[:-1])}"
        )
    target: dict[str, Any] = value
    for depth, key in enumerate(keys[:-1]):
        inner = target.setdefault(key, {})
        if not isinstance(inner, dict):
            at = pointer(*keys[: depth + 1])
            problem = f"'{key}' is not an object, so nothing inside it can be set"
            raise SpecError([Finding(code="P04", at=at, problem=problem, source=source)])
        target = inner
    target[keys[-1]] = new


def spec_of(run: Run, source: str) -> str:
    """Return the spec of a run: a shipped name, or the path of a file in the run's folder.

    Raises:
        InputError: the path leaves the run's folder, or there is no such spec of a model.
    """
    shipped = not run.spec.endswith(".json")
    if shipped and (not run.spec or Path(run.spec).name != run.spec):
        raise InputError(
            f"'{run.spec}' is neither a shipped spec nor a file",
            place=f"{source}#/spec",
            help="end the path of a file with '.json', or name a shipped spec",
        )
    if shipped:
        find(run.spec, "models", "variants")
        return run.spec
    folder = Path(source).resolve().parent
    path = (folder / run.spec).resolve()
    if not path.is_relative_to(folder):
        raise InputError(
            f"spec '{run.spec}' is outside the run's folder",
            place=f"{source}#/spec",
            help="move the spec into the folder of the run file, or name a shipped spec",
        )
    if path == Path(source).resolve():
        raise InputError("this is the run itself, not a spec", help="name the spec of its model")
    if not path.is_file():
        near = [p.name for p in folder.glob("*.json") if p.name != Path(source).name]
        raise InputError(
            f"no spec '{run.spec}' in the run's folder",
            place=f"{source}#/spec",
            help=did_you_mean(run.spec, near) or "name a shipped spec, see 'weft list specs'",
        )
    return str(path)
