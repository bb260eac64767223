"""Checkpoints of objectives: columns and predictors rebuilt from their files, and test sets.

A checkpoint has everything that is needed to answer: the run, tokenizers, classes, and the
objective, which says which column fills which input of the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import InputError, did_you_mean
from ..checkpoint.tokenizers import is_of_objective
from ..codegen.build import build_empty
from ..data.columns.registry import columns_of
from ..data.columns.settings import AudioSettings, ImageSettings
from ..data.preparing.records import values_of
from ..data.preparing.tables import records_of
from ..data.table import Batch, batch_of
from ..data.vocabularies import vocabularies_of
from ..decode.settings import SearchSettings
from ..metrics.metric import Measured
from ..predict.columns import for_predictors
from ..predict.predictor import Answer, Context, PredictorSettings
from ..predict.registry import PREDICTORS
from ..predict.search import MaskPredict, TextPredictor, text_predictor
from ..predict.settings import Searching
from ..train.objective.settings import ObjectiveRun
from ..train.objective.task import ObjectiveTask
from ..train.objective.validation import context_of
from ..train.run import run_of

if TYPE_CHECKING:
    from torch import nn

    from ..checkpoint.checkpoint import Checkpoint
    from ..data.columns.column import Column
    from ..decode.translate import Translator
    from ..predict.predictor import Predictor

_ROWS = 32
"""Rows of a batch in which losses are measured."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The run of a checkpoint with its columns."""

    checkpoint: Checkpoint
    run: ObjectiveRun
    columns: Mapping[str, Column]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Answering:
        """Rebuild the columns of a checkpoint.

        Raises:
            InputError: it was not trained by an objective, or one of its files is missing.
            SpecError: its run is damaged.
        """
        if not is_of_objective(checkpoint):
            raise InputError(
                "the checkpoint was not trained by an objective, so it has no columns",
                place=str(checkpoint.folder),
                help="use the command of its task, such as 'weft translate' or 'weft parse'",
            )
        place = str(checkpoint.folder)
        run = run_of(dict(checkpoint.run), f"{place}/run.json")
        if not isinstance(run, ObjectiveRun):
            raise TypeError(run)
        files = checkpoint.tokenizers
        vocabularies = vocabularies_of(files, run.tokenizers, place)
        return cls(checkpoint, run, columns_of(run.data.columns, vocabularies, files))

    def predictor(
        self,
        models: tuple[nn.Module, ...],
        predict: str | Mapping[str, Any] | None = None,
        answers: str | None = None,
        *,
        half: bool = False,
    ) -> Predictor:
        """Return the predictor.

        Args:
            models: modules of the model, whose probabilities are averaged.
            predict: a predictor, or changes of the settings of the run's; default: the run's.
            answers: the column that is predicted; default: that of the run, or the only one.
            half: whether matrix products run in bfloat16.

        Raises:
            InputError: no predictor is named, or it does not fit the model.
        """
        settings = self._predicting(predict)
        return settings.make(self._context(models, answers, half=half))

    def _predicting(self, predict: str | Mapping[str, Any] | None) -> PredictorSettings:
        """Return the settings of the predictor."""
        own, place = self.run.predict, "predict"
        if isinstance(predict, str) or (predict is not None and "type" in predict):
            return PREDICTORS.parse(predict, place)
        if own is None:
            raise InputError(
                f"the run '{self.run.name}' does not say how its model predicts",
                help=f"name a predictor: {', '.join(PREDICTORS.names())}",
            )
        if not predict:
            return own
        return PREDICTORS.parse({**own.model_dump(mode="json"), **predict}, place)

    def _context(
        self, models: tuple[nn.Module, ...], answers: str | None, *, half: bool
    ) -> Context:
        """Return what a predictor is made from."""
        column = answers or self.run.answers
        if column is None and len(self.columns) == 1:
            [column] = self.columns
        if column is None:
            raise InputError(
                f"the run '{self.run.name}' does not say which column its model predicts",
                help=f"name it as 'answers': {', '.join(self.columns)}",
            )
        if column not in self.columns:
            help_ = did_you_mean(column, self.columns)
            raise InputError(f"there is no column '{column}'", help=help_)
        objective = self.checkpoint.objective
        return context_of(objective, models, for_predictors(self.columns), column, half=half)

    def translator(
        self, models: tuple[nn.Module, ...], search: SearchSettings, *, half: bool
    ) -> Translator:
        """Return a translator with the columns that the inputs `source` and `target` read.

        Raises:
            InputError: the model does not read one text and write another.
        """
        feeds = self._feeds()
        answers = self.run.answers or feeds.get("target", "target")
        context = self._context(models, answers, half=half)
        if isinstance(self.run.predict, MaskPredict):
            kept = {"iterations", "lengths", "max_length"}
            changed = self.run.predict.model_copy(update=search.model_dump(include=kept))
            made = changed.make(context)
        else:
            made = text_predictor(context, search)
        if not isinstance(made, TextPredictor):
            raise TypeError(made)
        return made.translator

    def _feeds(self) -> Mapping[str, str]:
        context = context_of(self.checkpoint.objective, (), {}, "", half=False)
        return context.feeds

    def rows(self, test: str, root: str | None = None) -> list[dict[str, Any]]:
        """Return the raw values of a test set, by column.

        Args:
            test: name of a test set of the run, `train` or `valid`.
            root: folder of the files; default: `data.root` of the run.

        Raises:
            InputError: there is no such test set, or a file cannot be read.
        """
        data = self.run.data
        if root is not None:
            data = data.model_copy(update={"root": root})
        records = records_of(data, test, self.columns)
        return [values_of(self.columns, record) for record in records]

    def raw(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of JSON values as a reader gives it: paths of images and sounds as paths."""
        files = (ImageSettings, AudioSettings)
        return {
            name: Path(value)
            if isinstance(value, str) and isinstance(self.run.data.columns.get(name), files)
            else value
            for name, value in row.items()
        }

    def losses(self, module: nn.Module, rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
        """Return the mean losses and scores of the objective over rows, by name.

        They are empty if the objective has weights besides those of its deployed model, such as a
        second head, which the checkpoint does not have.
        """
        graph = self.checkpoint.objective
        if graph is None or not rows or not _complete(graph, self.checkpoint.graph):
            return {}
        whole = build_empty(graph, device=str(next(module.parameters()).device))
        whole.get_submodule(str(graph.deploy)).load_state_dict(module.state_dict())
        whole.eval()
        task = ObjectiveTask(graph, self.run.auxiliary)
        device = next(module.parameters()).device
        return task.measured(whole, self._batches(rows), device)

    def _batches(self, rows: Sequence[Mapping[str, Any]]) -> Iterator[Batch]:
        for start in range(0, len(rows), _ROWS):
            yield batch_of(self.columns, rows[start : start + _ROWS])

    def measured(
        self,
        models: tuple[nn.Module, ...],
        rows: Sequence[Mapping[str, Any]],
        predict: str | Mapping[str, Any] | None = None,
        *,
        half: bool = False,
        progress: Callable[[int], None] = lambda _: None,
    ) -> tuple[dict[str, Measured], list[Any]]:
        """Return the metrics of the run over rows by name, and the answers.

        Args:
            models: as for `predictor`.
            rows: raw values by column.
            predict: as for `predictor`.
            half: whether matrix products run in bfloat16.
            progress: called with the number of further rows that are predicted.

        Raises:
            InputError: a metric does not fit the answers.
        """
        metrics = self.run.metrics()
        losses = self.losses(models[0], rows)
        found: dict[str, Measured] = {}
        answers: list[Any] = []
        if self.run.predict is not None or predict is not None:
            predictor = self.predictor(models, predict, half=half)
            for start in range(0, len(rows), _BUFFER):
                part = rows[start : start + _BUFFER]
                answers += predictor.predict(part)
                progress(len(part))
        for metric in metrics:
            if metric.needs == "losses":
                if losses:
                    found[metric.name] = metric.measure_losses(losses)  # type: ignore[attr-defined]
            else:
                column = metric.column or str(self.run.answers)
                found[metric.name] = metric.measure(answers, [row[column] for row in rows])
        own = {name: Measured(value) for name, value in losses.items() if name not in found}
        return {**found, **own}, answers


_BUFFER = 1000
"""Rows that are predicted between two reports of progress."""


def _complete(objective: Graph, model: Graph) -> bool:
    """Return whether a model has all weights of an objective."""
    start = f"{objective.deploy}."
    known = {f"{start}{path}" for path in model.weights()}
    same = fingerprint(deployed_graph(objective)) == fingerprint(model)
    return same and objective.weights().keys() <= known


def searching_of(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the search settings of a stored run of an objective."""
    given = run.get("predict") or {}
    try:
        found = PREDICTORS.find(str(given.get("type")))
    except InputError:
        return {}
    if not issubclass(found, Searching):
        return {}
    known = {key: value for key, value in given.items() if key in SearchSettings.model_fields}
    return {"beam": 1, **known} if given["type"] != "beam" else known


def as_json(value: Any) -> Any:
    """Return an answer as JSON data: numbers, texts, lists; a tree as text."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        tree = getattr(value, "tree", None)
        return str(tree if tree is not None else value)
    return value


def record_of(answer: Answer) -> dict[str, Any]:
    """Return an answer with its score, probabilities and alternatives as JSON data."""
    found: dict[str, Any] = {"answer": as_json(answer.value), "score": round(answer.score, 6)}
    if answer.probabilities:
        found["probabilities"] = {k: round(v, 6) for k, v in answer.probabilities.items()}
    if answer.others:
        found["others"] = [record_of(one) for one in answer.others]
    return found
