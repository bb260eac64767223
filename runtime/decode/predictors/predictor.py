"""Contract of a predictor: from the raw values of a table's columns to the model's answers.

The settings of a predictor are a class whose fields appear in a run file; `make` returns the
predictor for given models and columns.  Prepared columns encode values and decode answers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from ....specs.findings import InputError, did_you_mean
from ...system.plugins import Named
from ..settings import Hypothesis, different

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ....graphs.ir.graph import Graph
    from ...data.prompts import PromptTokenizer
    from ...data.symbols import Vocabulary

T = TypeVar("T")
Row = Mapping[str, Any]
"""Raw values of one example, by column."""
Reads = Literal["all", "fixed", ""]
"""Which inputs of a model columns must fill: all, or those without its step axis, because the
predictor writes the others; empty if the predictor does not tell before it is made."""


class PreparedColumn(Protocol):
    """A prepared column, as far as predictors use it."""

    def encode(self, value: Any) -> Any:
        """Return a raw value in the form that `collate` takes."""

    def collate(self, values: Sequence[Any]) -> Mapping[str, Tensor]:
        """Return padded tensors by input: the column's name, or NAME_FIELD such as NAME_mask."""

    def decode(self, prediction: Any) -> Any:
        """Return the raw value of a prediction: a class of its index, a text of its ids."""


@runtime_checkable
class PreparedText(Protocol):
    """A column of texts or symbols with a vocabulary."""

    @property
    def vocabulary(self) -> Vocabulary:
        """Conversion of text to ids and back."""


@runtime_checkable
class PromptColumn(Protocol):
    """A column of prompts and their continuations, whose tokenizer need not be a vocabulary."""

    @property
    def prompts(self) -> PromptTokenizer:
        """The tokenizer."""

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a continuation; empty if the model has none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model answers for one row."""

    value: Any
    """The answer in the form of its column: a text, a class, a list of tags, a number, a parse."""
    score: float = 0.0
    """Score by which it was chosen; comparable among the answers of one row."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """Probability of each class, for predictors of classes."""
    others: tuple[Answer, ...] = ()
    """Further answers, best first, where several were requested."""
    hypothesis: Hypothesis | None = None
    """Of a text that was written token by token: its tokens, its log probability and whether it
    ended."""


def best_of(answers: Sequence[Answer]) -> Answer:
    """Return the first of some answers, best first, with the others whose values differ."""
    best, *others = different(answers, lambda answer: answer.value)
    return replace(best, others=tuple(others))


class Predictor(Protocol):
    """A model that is ready to answer."""

    def predict(self, rows: Sequence[Row]) -> list[Any]:
        """Return the answer for each row, as metrics take it."""

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the answer for each row with its score."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a predictor is made from."""

    models: tuple[nn.Module, ...]
    """Models with the same inputs and outputs, whose probabilities are averaged."""
    columns: Mapping[str, PreparedColumn]
    """Prepared columns by name."""
    answers: str
    """Column whose values are predicted."""
    objective: Graph | None = None
    """Objective of the models, which says what its columns fill; None if it is unknown, and columns
    have the names of the inputs."""
    half: bool = False
    """Whether to run matrix products in bfloat16."""
    warn: Callable[[int, str], None] | None = None
    """Called with the number of each row, from 1, whose text is truncated, and a message."""
    feeding_graphs: dict[frozenset[str], Graph] = field(default_factory=dict)
    """What computes inputs of the models, by their names; shared with contexts of other models that
    `replace` makes of this one, so that each graph is type-checked once."""

    @classmethod
    def of(
        cls,
        graph: Graph | None,
        models: tuple[nn.Module, ...],
        columns: Mapping[str, PreparedColumn],
        answers: str,
        *,
        half: bool,
    ) -> Context:
        """Return what a predictor is made from, with an objective if it is that of the models.

        Args:
            graph: graph of the objective; None if it is unknown.
            models: modules of the deployed model.
            columns: columns as predictors use them.
            answers: column that is predicted.
            half: whether matrix products run in bfloat16.
        """
        from ....graphs.passes.objective import deployed_graph

        answering = cls(models=models, columns=columns, answers=answers, half=half)
        if graph is None or graph.deploy is None:
            return answering
        # A model that was adapted to another spec may have inputs that its objective does not fill.
        if models and answering.graph.inputs.keys() != deployed_graph(graph).inputs.keys():
            return answering
        return replace(answering, objective=graph)

    @property
    def graph(self) -> Graph:
        """Graph of the models."""
        from ...codegen.generated import program_of

        return program_of(self.models[0]).graph

    @property
    def filled(self) -> Mapping[str, str]:
        """Inputs of the models to the inputs of the objective whose values they have."""
        from ....graphs.passes.objective import feeds_of

        if self.objective is None:
            return {name: name for name in self.graph.inputs}
        return feeds_of(self.objective)

    def column(self, name: str) -> PreparedColumn:
        """Return a column.

        Raises:
            InputError: it does not exist.
        """
        if name not in self.columns:
            raise InputError(f"no column '{name}'", help=did_you_mean(name, self.columns))
        return self.columns[name]

    def vocabulary(self, column: str) -> Vocabulary:
        """Return the vocabulary of a column of text.

        Raises:
            InputError: the column does not exist, or has no vocabulary.
        """
        text_column = self.column(column)
        if not isinstance(text_column, PreparedText):
            raise InputError(
                f"the column '{column}' has no vocabulary",
                help="select a predictor that fits the type of the column",
            )
        return text_column.vocabulary

    def prompts(self, column: str) -> tuple[PromptTokenizer, tuple[int, ...]]:
        """Return the tokenizer of prompts of a column, and the tokens that end a continuation.

        Raises:
            InputError: the column does not exist, or has no text.
        """
        from ...data.prompts import VocabularyPrompts

        prompt_column = self.column(column)
        if isinstance(prompt_column, PromptColumn):
            return prompt_column.prompts, prompt_column.ends
        vocabulary = self.vocabulary(column)
        return VocabularyPrompts(vocabulary), (vocabulary.eos,)

    def one_model(self, predictor: str) -> nn.Module:
        """Return the only model.

        Raises:
            InputError: there are several.
        """
        if len(self.models) != 1:
            raise InputError(
                f"the predictor '{predictor}' cannot average {len(self.models)} models",
                help="predict with one model",
            )
        return self.models[0]


class PredictorSettings(Named):
    """Base class of the settings of a predictor."""

    short: ClassVar[str] = ""
    reads: ClassVar[Reads] = ""
    """Which inputs of a model columns must fill."""
    outputs: ClassVar[tuple[str, ...]] = ()
    """Settings that name outputs of the model; null is none."""
    command: ClassVar[str] = "predict"
    """Command of weft that presents the answers best."""

    @abstractmethod
    def make(self, context: Context) -> Predictor:
        """Return the predictor.

        Raises:
            InputError: the models or the columns do not fit.
        """


def owner(name: str, columns: Collection[str]) -> str | None:
    """Return the column that collates a tensor: NAME, or the longest column of NAME_FIELD."""
    if name in columns:
        return name
    owners = [column for column in columns if name.startswith(f"{column}_")]
    return max(owners, key=len, default=None)


def values(row: Row, column: str, number: int) -> Any:
    """Return the raw value of a column.

    Raises:
        InputError: the row lacks it.
    """
    if column not in row:
        raise InputError(
            f"the row has no value for the column '{column}'",
            location=f"row {number + 1}",
            help=did_you_mean(column, row) or "give a value for each column that the model reads",
        )
    return row[column]


def read_value(row: Row, column: str, number: int, read: Callable[[Any], T]) -> T:
    """Return what a function reads from the value of a column; an error names the row.

    Args:
        row: raw values.
        column: the column.
        number: index of the row.
        read: the function.

    Raises:
        InputError: the row lacks the value, or the function refuses it.
    """
    value = values(row, column, number)
    try:
        return read(value)
    except InputError as error:
        location = error.location or f"row {number + 1}"
        raise InputError(error.problem, location=location, help=error.help) from error


@contextmanager
def evaluating(models: Sequence[nn.Module]) -> Iterator[None]:
    """Put models into evaluation mode; restore their modes afterwards."""
    with ExitStack() as stack:
        for model in models:
            stack.callback(model.train, model.training)
            model.eval()
        yield
