"""Predictors of trees: CKY over span scores, trees from tags of words, and trees as sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from ...plugin import (
    Answer,
    BeamFields,
    Context,
    InputError,
    Predictor,
    PredictorSettings,
    Reads,
    Row,
    evaluating,
    read_value,
)
from .trees.sentences import leaves_of
from .trees.trees import Leaf, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from torch import Tensor

    from ...plugin import Vocabulary
    from .decode.parse import Parser
    from .decode.word_parser import Feed
    from .trees.parsing_settings import ParsingSettings


_OF_WORDS = ("pieces", "pieces_mask", "characters", "characters_mask")
"""Tensors of words that a column of trees has too, besides their mask."""


class _OfTrees(PredictorSettings):
    """Settings of a predictor of trees."""

    command: ClassVar[str] = "parse"


class Trees(Protocol):
    """A column of trees, as far as parsers use it."""

    name: str
    source: Vocabulary
    """Tokenizer of the words."""
    target: Vocabulary
    """Vocabulary of the symbols."""
    parsing: ParsingSettings
    words: Any
    """Column with the words as text."""


@dataclass(frozen=True, slots=True)
class TreePredictor:
    """Predicts a parse for each row; None for one without words."""

    context: Context
    parser: Parser
    column: str
    """Column with the words: a text with spaces, or a list of words."""

    def predict(self, rows: Sequence[Row]) -> list[Any]:
        """Return the parse of each row."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the parse of each row with its score."""
        with evaluating(self.context.models):
            words = [self._words(row, at) for at, row in enumerate(rows)]
            parses = list(self.parser.parse(words, warn=self.context.warn))
        return [Answer(parse, 0.0 if parse is None else parse.score) for parse in parses]

    def parse(self, sentences: Iterable[str | Iterable[str | Leaf]]) -> list[Any]:
        """Return the parse of each sentence: a line, words, or leaves."""
        with evaluating(self.context.models):
            return list(self.parser.parse(map(leaves_of, sentences), warn=self.context.warn))

    def _words(self, row: Row, at: int) -> list[Leaf]:
        """Return the words of a row: the leaves of its tree, with gold tags, or those of its text.

        The parser does not see the tags, but keeps them in its tree, because EVALB needs them.
        """
        tree = row.get(self.context.answers)
        if isinstance(tree, Tree):
            return list(tree.leaves())
        return read_value(row, self.column, at, leaves_of)


def _trees(context: Context, decoder: str, predictor: str) -> Trees:
    """Return the column of trees that a predictor answers in.

    Raises:
        InputError: the answers are no trees, or trees for another decoder.
    """
    column: Any = getattr(context.column(context.answers), "column", None)
    settings = getattr(column, "parsing", None)
    if settings is None or settings.decoder != decoder:
        what = "no trees" if settings is None else f"trees for the decoder '{settings.decoder}'"
        raise InputError(
            f"the predictor '{predictor}' needs trees for the decoder '{decoder}', but the column"
            f" '{context.answers}' has {what}",
            help=f'answer in a column {{"type": "tree", "decoder": "{decoder}"}}',
        )
    trees: Trees = column
    return trees


def _feed(context: Context, trees: Trees, predictor: str) -> Feed:
    """Return what computes the inputs of models that read words.

    Raises:
        InputError: the models read something else.
    """
    from ...plugin import Feeding

    if context.objective is None:
        return dict
    feeding = Feeding.of(context)
    names = {f"{trees.name}_mask": "source_mask"}
    names |= {f"{trees.name}_{name}": name for name in _OF_WORDS}
    _refuse_others(context, sorted({*feeding.reads} - names.keys()), trees, predictor)

    def feed(words: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        tensors = {port: words[name] for port, name in names.items()}
        return feeding(tensors, words["source_mask"].device)

    return feed


def _refuse_others(context: Context, others: Sequence[str], trees: Trees, predictor: str) -> None:
    """Raise an error if models read more than words.

    Raises:
        InputError: they do.
    """
    if others:
        raise InputError(
            f"the predictor '{predictor}' feeds a model with words, but '{context.graph.name}' also"
            f" reads '{others[0]}'",
            location=context.graph.source,
            help=f"wire its inputs to the words of '{trees.name}' alone",
        )


class Cky(_OfTrees):
    """The tree with the most correct labeled spans in expectation, by CKY."""

    reads: ClassVar[Reads] = "all"

    type: Literal["cky"] = "cky"

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .decode.chart_parser import ChartParser
        from .trees.charts import Labels
        from .trees.words import Words

        trees = _trees(context, "chart", self.type)
        labels = Labels.among(trees.target.pieces(range(trees.target.vocab_size)))
        words = Words(trees.source)
        feed = _feed(context, trees, self.type)
        parser = ChartParser(context.models, trees.source, words, context.half, feed, labels)
        return TreePredictor(context, parser, trees.words.name)


class TreeTags(_OfTrees):
    """The tree of the most probable sequence of tags that forms one."""

    reads: ClassVar[Reads] = "all"

    type: Literal["tree_tags"] = "tree_tags"

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .decode.tag_parser import TagParser
        from .trees.tetra import TagSets
        from .trees.words import Words

        trees = _trees(context, "tags", self.type)
        sets = TagSets.among(trees.target.pieces(range(trees.target.vocab_size)))
        words, feed = Words(trees.source), _feed(context, trees, self.type)
        parser = TagParser(context.models, trees.source, words, context.half, feed, sets)
        return TreePredictor(context, parser, trees.words.name)


class TreeBeam(_OfTrees, BeamFields):
    """Beam search for the symbols of a tree, by an encoder-decoder."""

    reads: ClassVar[Reads] = "fixed"

    type: Literal["tree_beam"] = "tree_beam"
    constrained: bool = True
    """Whether the search is restricted to trees; needs a vocabulary of symbols."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from ...plugin import Sources
        from .decode.sequence_parser import SequenceParser

        trees = _trees(context, "sequence", self.type)
        parsing = trees.parsing.model_copy(update={"constrained": self.constrained})
        sources = Sources.of(context)
        _refuse_others(context, [*sources.further], trees, self.type)
        parser = SequenceParser(
            context.models,
            trees.source,
            trees.target,
            parsing,
            self.search(),
            context.half,
            sources,
        )
        return TreePredictor(context, parser, trees.words.name)
