"""Predictors of text: search, sampling and mask-predict for encoder-decoders, and generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from ....specs.findings import InputError
from ...data.columns.values import text_of
from ...data.symbols import lacking
from ..settings import Avoiding, BeamSearch, GenerateSettings, MaskFields, Sampling, Writing
from .predictor import (
    Answer,
    Context,
    Predictor,
    PredictorSettings,
    Reads,
    Row,
    best_of,
    evaluating,
    read_value,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ...data.symbols import Vocabulary
    from ..translate import TranslationRequest, Translator
    from .feeding import Feeding, Sources

_PROMPT_TOKENS = 4096
"""Maximum tokens of a batch of prompts with their continuations."""


@dataclass(frozen=True, slots=True)
class TextPredictor:
    """Predicts texts with a translator, whose lines are the rows of a column."""

    context: Context
    translator: Translator
    sources: Sources
    """What fills the inputs of the models."""
    prefix: str | None = None
    """Column with the text that each output begins with."""
    include: str | None = None
    """Column with the phrases that each output contains, separated by tabs."""

    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Return the text for each row; an empty one for an empty text."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the best text for each row, and the others that were requested."""
        lines = [self._request(row, number) for number, row in enumerate(rows)]
        decode = self.translator.target.decode
        with evaluating(self.context.models):
            candidates = [
                [Answer(decode(hypothesis.tokens), hypothesis.score) for hypothesis in hypotheses]
                for hypotheses in self.translator.hypotheses(lines, warn=self.context.warn)
            ]
        return [best_of(answers) if answers else Answer("") for answers in candidates]

    def _request(self, row: Row, number: int) -> TranslationRequest:
        """Return the line of a row, with the values of its further columns."""
        from ..translate import TranslationRequest

        column = self.sources.source
        text = "" if column is None else text_in(row, column, number)
        others, length = self.sources.encoded(row, number)
        begin = "" if self.prefix is None else text_in(row, self.prefix, number)
        phrases = "" if self.include is None else text_in(row, self.include, number)
        if not self.sources.feeding.columns:  # the model reads only what it writes
            length = max(1, len(self.translator.target.encode(begin)))
        return TranslationRequest(
            text,
            begin,
            [phrase for phrase in phrases.split("\t") if phrase.strip()],
            others=others,
            other_length=length,
        )


def text_in(row: Row, column: str, number: int) -> str:
    """Return the text of a column in a row.

    Raises:
        InputError: the value is missing or not a text; the place is the row.
    """
    return read_value(row, column, number, lambda value: text_of(value, column))


def text_predictor(context: Context, search: BeamSearch | Sampling) -> TextPredictor:
    """Return the predictor of a model that writes text token by token.

    Raises:
        InputError: columns cannot fill its inputs, or the answers have no vocabulary.
    """
    from ..translate import Translator
    from .feeding import Sources

    sources = Sources.of(context)
    first, *others = context.models
    vocabularies = _vocabularies(context, sources)
    translator = Translator(first, *vocabularies, search, context.half, tuple(others), sources)
    return TextPredictor(context, translator, sources)


def _vocabularies(context: Context, sources: Sources) -> tuple[Vocabulary, Vocabulary]:
    """Return the vocabularies of the source and of the answers; of the latter without a source."""
    target = context.vocabulary(context.answers)
    return (target if sources.source is None else context.vocabulary(sources.source)), target


class _Text(PredictorSettings, Writing):
    """Settings of a predictor that writes texts token by token."""

    reads: ClassVar[Reads] = "fixed"
    command: ClassVar[str] = "translate"

    prefix: str | None = None
    """Column with the text that each output begins with, such as a prompt; `null` for none."""
    include: str | None = None
    """Column with phrases that each output contains, separated by tabs; `null` for none."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        for name in filter(None, (self.prefix, self.include)):
            context.vocabulary(name)
        predictor = text_predictor(context, self.search())
        return replace(predictor, prefix=self.prefix, include=self.include)


class Beam(_Text, BeamSearch):
    """Beam search."""

    type: Literal["beam"] = "beam"


class Greedy(_Text, Avoiding):
    """Greedy search: the most probable token at each step."""

    type: Literal["greedy"] = "greedy"

    def search(self) -> BeamSearch:
        """Return a beam search with one hypothesis."""
        return BeamSearch(beam=1, **self.model_dump(exclude={"type", "prefix", "include"}))


class Sample(_Text, Sampling):
    """Sampling; the answer is the most probable of `samples` texts."""

    type: Literal["sample"] = "sample"


class MaskPredict(PredictorSettings, MaskFields):
    """Mask-predict: all tokens at once, then the least probable ones again."""

    reads: ClassVar[Reads] = "fixed"
    command: ClassVar[str] = "translate"

    type: Literal["mask_predict"] = "mask_predict"

    def make(self, context: Context) -> TextPredictor:
        """Return the predictor."""
        from ..mask_predict import MaskPredictor
        from .feeding import Sources

        model = context.one_model(self.type)
        sources = Sources.of(context, steps=False)
        if not sources.written_masks or "lengths" not in context.graph.outputs:
            raise InputError(
                "mask-predict needs a mask of the ids that it writes, and an output 'lengths'",
                location=context.graph.source,
                help="use the predictor 'beam' for a model that decodes step by step",
            )
        vocabularies = _vocabularies(context, sources)
        search = BeamSearch()  # its settings have no effect
        translator = MaskPredictor(
            model, *vocabularies, search, context.half, (), sources, masks=self
        )
        return TextPredictor(context, translator, sources)


class Generate(PredictorSettings, GenerateSettings):
    """Continuation of a prefix by a decoder-only model: by beams, greedily or by sampling."""

    reads: ClassVar[Reads] = "fixed"
    command: ClassVar[str] = "generate"

    type: Literal["generate"] = "generate"
    prefix: str | None = None
    """Column with the text that is continued; `null` continues an empty text."""
    include: str | None = None
    """Column with phrases that each continuation contains, separated by tabs; `null` for none."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from ..generate import check_generates
        from .feeding import Feeding

        model, graph = context.one_model(self.type), context.graph
        fixed = [name for name, type_ in graph.inputs.items() if graph.step_axis not in type_.axes]
        check_generates(graph, fixed)
        feeding = Feeding.of(context, fixed)
        context.vocabulary(context.answers)
        for name in filter(None, (self.prefix, self.include)):
            context.vocabulary(name)
        settings = GenerateSettings(**self.model_dump(include=set(GenerateSettings.model_fields)))
        return Continuing(context, model, feeding, settings, self.prefix, self.include)


@dataclass(frozen=True, slots=True)
class Continuing:
    """Continues the text of a column."""

    context: Context
    model: nn.Module
    feeding: Feeding
    """Computes the inputs that do not depend on what is written."""
    settings: GenerateSettings
    prefix: str | None
    include: str | None

    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Return the continuation of each row."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the most probable continuation of each row, and the others."""
        from ..generate import ColumnPrompts, generate_with

        target = self.context.vocabulary(self.context.answers)
        tokenizer = ColumnPrompts(target, target.vocab_size)
        prompts = [[target.bos, *ids] for ids in self._prefixes(rows)]
        include = [self._phrases(row, number) for number, row in enumerate(rows)]
        order = sorted(range(len(rows)), key=lambda at: len(prompts[at]), reverse=True)
        columns, device = self.context.columns, next(self.model.parameters()).device
        encoded = {
            name: [read_value(row, name, at, columns[name].encode) for at, row in enumerate(rows)]
            for name in self.feeding.columns
        }
        results: list[Answer] = [Answer("")] * len(rows)
        together = self.settings.search().rows
        with evaluating(self.context.models):
            while order:
                width = (len(prompts[order[0]]) + self.settings.max_new) * together
                count = max(1, _PROMPT_TOKENS // width)
                places, order = order[:count], order[count:]
                tensors: dict[str, Tensor] = {}
                for name, column in encoded.items():
                    tensors |= columns[name].collate([column[at] for at in places])
                written = generate_with(
                    self.model,
                    self.context.graph,
                    [prompts[at] for at in places],
                    self.settings,
                    eos=(target.eos,),
                    include=[include[at] for at in places],
                    tokenizer=tokenizer,
                    fixed=self.feeding(tensors, device),
                    half=self.context.half,
                )
                for at, hypotheses in zip(places, written, strict=True):
                    sampled = self.settings.temperature > 0
                    candidates = [
                        Answer(
                            target.decode(hypothesis.tokens),
                            hypothesis.log_probability if sampled else hypothesis.score,
                        )
                        for hypothesis in hypotheses
                    ]
                    results[at] = best_of(sorted(candidates, key=lambda answer: -answer.score))
        return results

    def _phrases(self, row: Row, number: int) -> list[list[int]]:
        """Return the ids of the phrases that the continuation of a row contains."""
        text = "" if self.include is None else text_in(row, self.include, number)
        encode = self.context.vocabulary(self.context.answers).encode
        return [encode(phrase) for phrase in text.split("\t") if phrase.strip()]

    def _prefixes(self, rows: Sequence[Row]) -> list[list[int]]:
        """Return the ids of the text that each row begins with."""
        if self.prefix is None:
            return [[] for _ in rows]
        texts = [text_in(row, self.prefix, number) for number, row in enumerate(rows)]
        vocabulary = self.context.vocabulary(self.prefix)
        prefixes = vocabulary.encode_many(texts)
        for row, (text, ids) in enumerate(zip(texts, prefixes, strict=True), 1):
            problem = lacking(vocabulary, text, ids, "the prefix")
            if problem and self.context.warn is not None:
                self.context.warn(row, problem)
        return prefixes
