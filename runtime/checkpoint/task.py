"""Settings of a task: columns, metrics, and how a model of it answers.

A run trains a model for a task; the checkpoint stores both, and answering needs the task alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationInfo, model_validator

from ...specs.findings import InputError, did_you_mean
from ...specs.reader import RUNS, parse
from ...specs.wording import SettingError, refuse
from ..data.settings import PathText, Settings, SourceName
from ..data.table_settings import DataSettings, Tokenizers, unfit_tokenizers
from ..decode.predictors.predictor import PredictorSettings
from ..decode.predictors.registry import PREDICTORS, changed_predictor
from ..metrics.losses import Loss
from ..metrics.metric import Metric
from ..metrics.registry import METRICS
from ..system.plugins import Selected
from .curve import Curve

Positive = Annotated[int, Field(ge=1)]
AnyMetric = Annotated[Metric, Selected(METRICS)]
AnyPredictor = Annotated[PredictorSettings, Selected(PREDICTORS)]

ALL = "all"
"""The rows of all sources of the validation data together."""


class Evaluation(Settings):
    """Settings of the validations during training."""

    every: Positive = 250
    """Updates between validations."""
    patience: Positive | None = None
    """Number of validations without improvement after which the run stops; `null` disables this."""
    until: dict[str, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    """Metrics of the validations to values; the run stops when one of them is reached."""
    metrics: tuple[AnyMetric, ...] = ()
    """What is measured besides the losses: names such as `bleu`, or objects with settings."""
    best: AnyMetric = Loss()
    """Metric that selects the best checkpoint: `loss`, `loss:NAME`, or one of `metrics`."""
    best_on: SourceName | None = None
    """Source of `data.valid` on which `best` is measured to select the checkpoint, or `all` for its
    rows together; required if `data.valid` has sources."""
    rows: Positive | None = None
    """Number of validation rows, from the first of each source, that are predicted for metrics;
    `null` is all."""
    samples: int = Field(default=4, ge=0)
    """Number of predictions that are logged as text at each validation."""
    pictures: int = Field(default=1, ge=0)
    """Number of predictions whose attention weights are logged to the trackers as pictures at each
    validation, of those that are predicted for `metrics` or `samples`, if the model translates with
    attention; long sentences are left out."""
    predict: dict[str, Any] = Field(default_factory=dict)
    """Settings of `predict` that validations change, such as `{"beam": 1}` for a faster search."""


class Task(Settings):
    """What a model is for: an objective over columns, what is measured, and how it answers."""

    format: Literal[1]
    """Version of the run file format."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$")]
    """Name of the run: letters, digits, `_`, `.` and `-`; its folder is `outputs/NAME`."""
    doc: str = ""
    """Description of the run."""
    objective: PathText
    """Name of a shipped objective, or path of a file in the folder of the run file."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the objective's params, such as `{"model": {"spec": "gpt2"}}`; params that are
    sizes of its inputs default to those of the columns."""
    data: DataSettings
    """Columns and files."""
    tokenizers: Tokenizers = Field(default_factory=dict)
    """Tokenizers of text columns, by name."""
    values: dict[str, Curve] = Field(default_factory=dict)
    """Inputs of the objective of type `f[]` that no column fills: numbers, or pieces in which they
    change over the updates, such as `[{"to": 0.25, "over": 10000}]`; after the training, the
    last."""
    auxiliary: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    """Weight of losses of the model that the objective does not wire, such as the load balancing
    of experts."""
    evaluate: Evaluation = Evaluation()
    predict: AnyPredictor | None = None
    """How the trained model answers, such as `{"type": "beam", "beam": 4}`; metrics of predictions
    need it."""
    answers: str | None = None
    """Column that the model predicts; `null` is the only column that `predict` can answer in."""

    @property
    def best(self) -> str:
        """Name of the metric that selects the best checkpoint."""
        return self.evaluate.best.name

    @property
    def best_value(self) -> str:
        """Name of the value of a validation that selects the best checkpoint."""
        source = self.evaluate.best_on
        return self.best if source in (None, ALL) else f"{source}/{self.best}"

    @property
    def best_is_higher(self) -> bool:
        """Whether a higher value of that metric is better."""
        return self.evaluate.best.higher_is_better

    @property
    def predict_in_validations(self) -> PredictorSettings | None:
        """The predictor with the settings that validations change."""
        if self.predict is None or not self.evaluate.predict:
            return self.predict
        return changed_predictor(self.predict, self.evaluate.predict, "evaluate.predict")

    @model_validator(mode="after")
    def _check(self, info: ValidationInfo) -> Self:
        """Check that settings which read each other fit together.

        Raises:
            CombinedSettingError: a tokenizer, a column or a predictor is missing or has no effect.
        """
        refuse(self._mistakes(), info)
        return self

    def _mistakes(self) -> Iterator[SettingError]:
        """Yield an error for each setting that does not fit others, or has no effect."""
        yield from unfit_tokenizers(self.data, self.tokenizers)
        for name in self.values.keys() & self.data.columns.keys():
            msg = f"'{name}' is a column, so 'values' cannot fill the input of this name"
            yield SettingError(msg, "values", name, help_="remove one of both")
        if self.answers is not None and self.answers not in self.data.columns:
            msg = f"there is no column '{self.answers}'"
            yield SettingError(msg, "answers", help_=did_you_mean(self.answers, self.data.columns))
        yield from self._mistakes_of_sources()
        if self.predict is None:
            yield from self._mistakes_without_predictor()
            return
        if self.answers is None:
            msg = "'predict' needs the column that the model predicts"
            yield SettingError(msg, "predict", help_="name it as 'answers'")
        try:
            _ = self.predict_in_validations
        except InputError as error:
            yield SettingError(error.problem, "evaluate", "predict", help_=error.help)

    def _mistakes_of_sources(self) -> Iterator[SettingError]:
        """Yield an error if it is unclear which rows select the best checkpoint."""
        chosen, sources = self.evaluate.best_on, self.data.valid.sources
        listed = ", ".join(f"'{name}'" for name in (*sources, ALL))
        if ALL in sources:
            msg = f"'{ALL}' means the rows of all sources together"
            yield SettingError(msg, "data", "valid", "sources", ALL, help_="rename the source")
        elif chosen is None and sources:
            msg = "the validation data has several sources, one of which must select the checkpoint"
            help_ = f"set 'best_on' to one of {listed}"
            yield SettingError(msg, "evaluate", help_=help_)
        elif chosen is not None and not sources:
            msg = "the validation data has no named sources"
            yield SettingError(msg, "evaluate", "best_on", help_="remove it")
        elif chosen is not None and chosen not in (*sources, ALL):
            msg = f"the validation data has no source '{chosen}'"
            help_ = did_you_mean(chosen, [*sources, ALL])
            yield SettingError(msg, "evaluate", "best_on", help_=help_)

    def _mistakes_without_predictor(self) -> Iterator[SettingError]:
        """Yield an error for each setting that needs a predictor."""
        help_ = 'add \'predict\', such as {"type": "argmax"}'
        for number, metric in enumerate(self.evaluate.metrics):
            if metric.needs == "predictions":
                msg = f"the metric '{metric.name}' needs predictions"
                yield SettingError(msg, "evaluate", "metrics", number, help_=help_)
        best = self.evaluate.best
        if best.needs == "predictions" and best not in self.evaluate.metrics:
            msg = f"the metric '{best.name}' needs predictions"
            yield SettingError(msg, "evaluate", "best", help_=help_)
        if self.evaluate.predict:
            msg = "there is no 'predict' whose settings could change"
            yield SettingError(msg, "evaluate", "predict", help_="remove it, or add 'predict'")

    def reached(self, values: Mapping[str, float]) -> str:
        """Return which value of `evaluate.until` a validation has reached, in words; `""` if none.

        Args:
            values: what the validation has measured, by name.
        """
        for metric in self.metrics():
            target = self.evaluate.until.get(metric.name)
            if target is not None and metric.reaches(values[metric.name], target):
                return f"{metric.name} has reached {target:g}"
        return ""

    def metrics(self) -> list[Metric]:
        """Return the metrics of a validation, each once."""
        by_name = {metric.name: metric for metric in (*self.evaluate.metrics, self.evaluate.best)}
        return list(by_name.values())


def task_of(run: Mapping[str, Any], location: str) -> tuple[Task, dict[str, Any]]:
    """Return the task of a stored run, and the run with the task's settings written out.

    Args:
        run: the run, as a checkpoint stores it; settings that are not the task's are not examined.
        location: its file, for findings.

    Raises:
        SpecError: a setting of the task is wrong.
    """
    value = {name: value for name, value in run.items() if name in Task.model_fields}
    task = parse(Task, value, location, RUNS)
    written = task.model_dump(mode="json", by_alias=True)
    return task, {**run, **{name: written[name] for name in value}}
