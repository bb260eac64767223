"""Checkpoints of runs: columns and predictors rebuilt from their files, and test sets.

A checkpoint has everything that is needed to answer: the run, tokenizers, classes, and the
objective, which says which column fills which input of the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...graphs.passes.objective import feeds_of
from ...specs.findings import InputError, did_you_mean
from ..checkpoint.tokenizers import ends_of, has_tokenizers, prompts_of, tokenizers_of
from ..codegen.build import build_empty
from ..data.columns.column_settings import AudioSettings, ImageSettings, TextSettings
from ..data.columns.registry import columns_of
from ..data.columns.values import text_of
from ..data.vocabularies import vocabularies_of
from ..decode.predictors.columns import for_predictors
from ..decode.predictors.feeding import Sources
from ..decode.predictors.predictor import Answer, Context
from ..decode.predictors.registry import PREDICTORS
from ..decode.predictors.search import MaskPredict

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..checkpoint.checkpoint import Checkpoint
    from ..checkpoint.task import Task
    from ..data.columns.column import Column
    from ..data.prompts import PromptTokenizer
    from ..decode.predictors.predictor import PredictorSettings, PreparedColumn

SIDES = ("source", "target")
"""Columns of a model that translates and has no run."""
TEXT = "text"
"""Column of a model that continues text and has no run."""


@dataclass(frozen=True, slots=True)
class Answering:
    """The task of a checkpoint with its columns."""

    checkpoint: Checkpoint
    run: Task
    columns: Mapping[str, Column]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Answering:
        """Rebuild the columns of a checkpoint that has a run.

        Raises:
            InputError: one of its files is missing, or its tokenizer does not fit its model.
            SpecError: its run is damaged.
        """
        folder = str(checkpoint.folder)
        run = checkpoint.task
        if run is None:
            raise InputError("no run has trained the checkpoint", location=folder)
        files = checkpoint.tokenizers
        vocabularies = vocabularies_of(files, run.tokenizers, folder)
        answering = cls(checkpoint, run, columns_of(run.data.columns, vocabularies, files))
        answering._refuse_other_sizes()
        return answering

    def _refuse_other_sizes(self) -> None:
        """Check that the model has as many ids as the tokenizer of each column that it reads.

        Raises:
            InputError: it has fewer.
        """
        for port, type_ in self.checkpoint.graph.inputs.items():
            column = self.columns.get(self._feeds().get(port, port))
            size = getattr(getattr(column, "vocabulary", None), "vocab_size", None)
            if type_.kind == "ids" and size is not None and size > int(type_.size or 0):
                raise InputError(
                    f"'{port}' of the spec has size {type_.size}, but the tokenizer has {size}",
                    location=str(self.checkpoint.folder),
                    help="restore the tokenizer with which the model was trained",
                )

    def context(self, models: tuple[nn.Module, ...], answers: str | None, *, half: bool) -> Context:
        """Return what a predictor is made from.

        Args:
            models: modules of the model, whose probabilities are averaged.
            answers: the column that is predicted; default: that of the run, or the only one.
            half: whether matrix products run in bfloat16.

        Raises:
            InputError: there is no such column, or no single one.
        """
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
        return Context.of(objective, models, for_predictors(self.columns), column, half=half)

    def sides(self, models: tuple[nn.Module, ...] = ()) -> tuple[str, str]:
        """Return the column of the text that the model reads, and of the text that it writes.

        Args:
            models: modules of the model, if they are built.

        Raises:
            InputError: the model does not read one text and write another.
        """
        location, graph = str(self.checkpoint.folder), self.checkpoint.graph
        models = models or (build_empty(graph, device="meta"),)
        answers = str(self.run.answers)
        columns = for_predictors(self.columns)
        context = Context.of(self.checkpoint.objective, models, columns, answers, half=False)
        why, help_ = (
            "it does not read one text and write another",
            "use 'weft predict', or predict() in Python",
        )
        try:
            drafts = getattr(self.run.predict, "drafts", ())
            steps = not isinstance(self.run.predict, MaskPredict)
            sources = Sources.of(context, steps=steps, drafts=drafts)
        except InputError as error:
            sources, why, help_ = None, error.problem, error.help
        written = None if sources is None else context.filled.get(sources.written)
        if sources is None or sources.source is None or written not in columns:
            raise InputError(
                f"the checkpoint cannot translate text: {why}",
                location=location,
                help=help_,
            )
        sources.refuse_further("lines of text")
        return sources.source, written

    def _feeds(self) -> Mapping[str, str]:
        objective = self.checkpoint.objective
        return {} if objective is None or objective.deploy is None else feeds_of(objective)

    def fields(self) -> list[str]:
        """Return the fields of a row that the model reads."""
        feeds = self._feeds()
        names = dict.fromkeys(feeds.get(port, port) for port in self.checkpoint.graph.inputs)
        return [self.columns[name].field for name in names if name in self.columns]

    def rows(self, test: str, root: str | None = None) -> list[dict[str, Any]]:
        """Return the raw values of a test set, by column.

        Args:
            test: name of a test set of the run, `train` or `valid`.
            root: folder of the files; default: `data.root` of the run.

        Raises:
            InputError: there is no such test set, or a file cannot be read.
        """
        from ..data.prepare import records_of
        from ..data.records import values_of

        data = self.run.data
        if root is not None:
            data = data.model_copy(update={"root": root, "prepared": None})
        records = records_of(data, test, self.columns)
        return [values_of(self.columns, record) for record in records]

    def raw(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values by column of a row of JSON values, as in the files of the run.

        A column has the value of its field, as in training, or of its name if there is no such
        field.  Paths of images and sounds become paths.
        """
        files = (ImageSettings, AudioSettings)
        fields = {name: column.field for name, column in self.columns.items()}
        values = {**row, **{name: row[key] for name, key in fields.items() if key in row}}
        return {
            name: Path(value)
            if isinstance(value, str) and isinstance(self.run.data.columns.get(name), files)
            else value
            for name, value in values.items()
        }


@dataclass(frozen=True, slots=True)
class PromptText:
    """The column of a model that continues text and has no run."""

    prompts: PromptTokenizer
    ends: tuple[int, ...]

    def encode(self, value: Any) -> list[int]:
        """Return the ids of a prompt."""
        return self.prompts.prompt(text_of(value, TEXT))

    def collate(self, values: Sequence[Any]) -> Mapping[str, Tensor]:
        """Return no tensors: the model reads only what it writes."""
        del values
        return {}

    def decode(self, prediction: Any) -> str:
        """Return the text of ids."""
        return self.prompts.decode(prediction)


def imported_predictor(checkpoint: Checkpoint) -> PredictorSettings:
    """Return how a model answers that no run trained: as its import says.

    Raises:
        SpecError: the settings are damaged.
    """
    imported, graph = checkpoint.state.get("imported", {}), checkpoint.graph
    settings = {"type": "beam", **imported.get("search", {})}
    if graph.step_axis is not None and "source" not in graph.inputs:
        settings = {"type": "generate", "prefix": TEXT, **imported.get("generate", {})}
    return PREDICTORS.parse(settings, str(checkpoint.folder))


def translates(checkpoint: Checkpoint) -> bool:
    """Return whether a model without a run reads a text `source` and writes a text `target`."""
    return {*SIDES} <= checkpoint.graph.inputs.keys() and has_tokenizers(checkpoint)


def cannot_translate(checkpoint: Checkpoint) -> InputError:
    """Return the error of a model without a run that does not translate text."""
    return InputError(
        "the checkpoint cannot translate text: its tokenizer, 'source' or 'target' is missing",
        location=str(checkpoint.folder),
        help="import it from a folder that has its tokenizer, or call its module with ids",
    )


def imported_context(
    checkpoint: Checkpoint, models: tuple[nn.Module, ...], answers: str | None, *, half: bool
) -> Context:
    """Return what a predictor of a model is made from that no run trained.

    Its columns are `source` and `target`, or the `text` that a decoder-only model continues.

    Args:
        checkpoint: the checkpoint.
        models: modules of the model, whose probabilities are averaged.
        answers: the column that is predicted; default: `target`, or `text`.
        half: whether matrix products run in bfloat16.

    Raises:
        InputError: there is no tokenizer, or no such column.
    """
    graph = checkpoint.graph
    columns: dict[str, PreparedColumn] = {}
    if graph.step_axis is not None and "source" not in graph.inputs:
        columns[TEXT] = PromptText(prompts_of(checkpoint), tuple(sorted(ends_of(checkpoint))))
    elif translates(checkpoint):
        vocabularies = dict(zip(SIDES, tokenizers_of(checkpoint), strict=True))
        settings = {name: TextSettings(tokenizer=name) for name in SIDES}
        columns |= for_predictors(columns_of(settings, vocabularies))
    else:
        raise cannot_translate(checkpoint)
    column = answers or next(reversed(columns))
    if column not in columns:
        raise InputError(f"there is no column '{column}'", help=did_you_mean(column, columns))
    return Context(models, columns, column, half=half)


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
    record: dict[str, Any] = {"answer": as_json(answer.value), "score": round(answer.score, 6)}
    if answer.probabilities:
        record["probabilities"] = {k: round(v, 6) for k, v in answer.probabilities.items()}
    if answer.others:
        record["others"] = [record_of(other) for other in answer.others]
    return record
