"""Predictors of trees: CKY over span scores, trees from tags of words, and trees as sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ..data.treebank.trees import Leaf, Tree
from .predictor import Answer, Context, Predictor, PredictorSettings, Row, evaluating, values
from .settings import Searching

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_READS = ("source", "pieces")
"""Inputs of the model, of which the first that exists is filled by the column with the words."""


class Parser(Protocol):
    """A parser of sentences."""

    def parse(self, sentences: Iterable[Sequence[Leaf]]) -> Iterator[Any]:
        """Yield the parse of each sentence, in order; None for an empty sentence."""


@dataclass(frozen=True, slots=True)
class TreePredictor:
    """Predicts a parse for each row; None for one without words."""

    context: Context
    parser: Parser
    column: str
    """Column with the words: a text with spaces, a list of words, or a tree."""

    def predict(self, rows: Sequence[Row]) -> list[Any]:
        """Return the parse of each row."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the parse of each row with its score."""
        with evaluating(self.context.models):
            parses = list(self.parser.parse([self._words(row, at) for at, row in enumerate(rows)]))
        return [Answer(one, 0.0 if one is None else one.score) for one in parses]

    def _words(self, row: Row, at: int) -> list[Leaf]:
        """Return the words of a row; those of a tree with their gold tags."""
        tree = row.get(self.context.answers)
        if isinstance(tree, Tree):
            return list(tree.leaves())
        value = values(row, self.column, at)
        if isinstance(value, Tree):
            return list(value.leaves())
        words = value.split() if isinstance(value, str) else value
        return [word if isinstance(word, Leaf) else Leaf("", str(word)) for word in words]


def _words_column(context: Context, given: str | None) -> str:
    """Return the column with the words."""
    if given is not None:
        context.column(given)
        return given
    names = [name for name in _READS if name in context.graph.inputs]
    return context.fed(names[0] if names else _READS[0])


class Cky(PredictorSettings):
    """The tree with the most correct labeled spans in expectation, by CKY."""

    type: Literal["cky"] = "cky"
    words: str | None = None
    """Column with the words; null is the one that fills the input `source` or `pieces`."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from ..data.treebank.charts import Labels
        from ..data.treebank.words import Words
        from ..decode.parsing.chart_parser import ChartParser

        column = _words_column(context, self.words)
        source, target = context.vocabulary(column), context.vocabulary(context.answers)
        labels = Labels.among(target.pieces(range(target.vocab_size)))
        parser = ChartParser(context.models, source, Words(source), context.half, labels)
        return TreePredictor(context, parser, column)


class TreeTags(PredictorSettings):
    """The tree of the most probable sequence of tags that forms one."""

    type: Literal["tree_tags"] = "tree_tags"
    words: str | None = None
    """Column with the words; null is the one that fills the input `source` or `pieces`."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from ..data.treebank.tetra import TagSets
        from ..data.treebank.words import Words
        from ..decode.parsing.tag_parser import TagParser

        column = _words_column(context, self.words)
        source, target = context.vocabulary(column), context.vocabulary(context.answers)
        sets = TagSets.among(target.pieces(range(target.vocab_size)))
        parser = TagParser(context.models, source, Words(source), context.half, sets)
        return TreePredictor(context, parser, column)


class TreeBeam(Searching):
    """Beam search for the symbols of a tree, by an encoder-decoder."""

    idle: ClassVar[frozenset[str]] = frozenset({"iterations", "lengths", "sample", "nbest"})

    type: Literal["tree_beam"] = "tree_beam"
    words: str | None = None
    """Column with the words; null is the one that fills the input `source`."""
    linearization: Literal["vinyals", "tensor2tensor", "top_down"] = "vinyals"
    """How a tree is written as symbols, as in the data."""
    constrained: bool = True
    """Whether the search is restricted to trees."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from ..data.treebank.settings import ParsingSettings
        from ..decode.parsing.sequence_parser import SequenceParser

        column = _words_column(context, self.words)
        source, target = context.vocabulary(column), context.vocabulary(context.answers)
        parsing = ParsingSettings(linearization=self.linearization, constrained=self.constrained)
        parser = SequenceParser(
            context.models, source, target, parsing, self.search(), context.half
        )
        return TreePredictor(context, parser, column)
