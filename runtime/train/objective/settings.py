"""Settings of a run that trains an objective: format 3 of run files."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ....specs.findings import did_you_mean
from ....specs.wording import SettingError
from ...data.preparing.table_settings import TableSettings, Tokenizers, refuse_unused
from ...data.settings import PathText
from ...metrics.losses import Loss
from ...metrics.metric import Metric
from ...metrics.registry import METRICS
from ...predict.predictor import PredictorSettings
from ...predict.registry import PREDICTORS
from ...system.plugins import Selected
from ..reporting.trackers.registry import TRACKERS
from ..reporting.trackers.tensorboard import TensorBoard
from ..reporting.trackers.tracker import TrackerSettings
from ..run_base import BaseRun, Positive, Validations

AnyMetric = Annotated[Metric, Selected(METRICS)]
AnyPredictor = Annotated[PredictorSettings, Selected(PREDICTORS)]
AnyTracker = Annotated[TrackerSettings, Selected(TRACKERS)]


class Evaluation(Validations):
    """Settings of the validations during training."""

    metrics: tuple[AnyMetric, ...] = ()
    """What is measured besides the losses: names such as `bleu`, or objects with settings."""
    best: AnyMetric = Loss()
    """Metric that selects the best checkpoint: `loss`, `loss:NAME`, or one of `metrics`."""
    rows: Positive | None = None
    """Number of validation rows that are predicted for metrics, from the first; None is all."""
    samples: int = Field(default=4, ge=0)
    """Number of predictions that are logged as text at each validation."""


class ObjectiveRun(BaseRun):
    """Settings of a run that trains an objective."""

    format: Literal[3]
    """Version of the run file format."""
    objective: PathText
    """Name of a shipped objective, or path of a file in the folder of the run file."""
    params: dict[str, Any] = Field(default_factory=dict)
    """Overrides of the objective's params, such as `{"model": {"spec": "gpt2"}}`; params that are
    sizes of its inputs default to those of the columns."""
    data: TableSettings
    """Columns and files."""
    tokenizers: Tokenizers = Field(default_factory=dict)
    """Tokenizers of text columns, by name."""
    auxiliary: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    """Weight of losses of the model that the objective does not wire, such as the load balancing
    of experts."""
    freeze: tuple[str, ...] = ()
    """Parts whose weights do not train, as selections such as `model.encoder.*`."""
    train: tuple[str, ...] = ()
    """Weights inside parts of `freeze` that train nevertheless, as patterns of their paths, such as
    `*.lora_?`."""
    evaluate: Evaluation = Evaluation()
    predict: AnyPredictor | None = None
    """How the trained model answers, such as `{"type": "beam", "beam": 4}`; metrics of predictions
    need it."""
    answers: str | None = None
    """Column that the model predicts; None is the only column that `predict` can answer in."""
    trackers: tuple[AnyTracker, ...] = (TensorBoard(),)
    """Where values, sample outputs and pictures are logged besides `metrics.jsonl`."""

    def __repr__(self) -> str:
        """Return the name, the objective and the number of updates."""
        return f"<Run {self.name}: {self.objective}, {self.updates:,} updates>"

    __str__ = __repr__

    @property
    def best(self) -> str:
        """Name of the metric that selects the best checkpoint."""
        return self.evaluate.best.name

    @property
    def best_is_higher(self) -> bool:
        """Whether a higher value of that metric is better."""
        return self.evaluate.best.higher_is_better

    @model_validator(mode="after")
    def _check(self) -> Self:
        """Check that settings which read each other fit together.

        Raises:
            ValueError: a tokenizer, a column or a predictor is missing or has no effect.
        """
        refuse_unused(self.data, self.tokenizers)
        if self.train and not self.freeze:
            msg = "'train' has no effect without 'freeze': all weights train"
            raise SettingError(msg, "train", help_="remove it, or freeze parts")
        if self.answers is not None and self.answers not in self.data.columns:
            msg = f"there is no column '{self.answers}'"
            raise SettingError(msg, "answers", help_=did_you_mean(self.answers, self.data.columns))
        measured = [*self.evaluate.metrics, self.evaluate.best]
        predicted = [metric for metric in measured if metric.needs == "predictions"]
        if predicted and self.predict is None:
            msg = f"the metric '{predicted[0].name}' needs predictions"
            raise SettingError(msg, "evaluate", help_='add \'predict\', such as {"type": "argmax"}')
        if self.predict is not None and self.answers is None:
            msg = "'predict' needs the column that the model predicts"
            raise SettingError(msg, "predict", help_="name it as 'answers'")
        return self

    def metrics(self) -> list[Metric]:
        """Return the metrics of a validation, each once."""
        found = {metric.name: metric for metric in (*self.evaluate.metrics, self.evaluate.best)}
        return list(found.values())
