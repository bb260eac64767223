"""Model: an opened checkpoint, ready for use; its files are in `checkpoint.py`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..decode.settings import BUFFER

if TYPE_CHECKING:
    from torch import nn

    from ...graphs.diff.weight_transfer import WeightTransfer
    from ...graphs.ir.graph import Graph
    from ...specs.load import LoadedSpec
    from ..analysis.alignment import Alignment
    from ..analysis.attention_weights import AttentionMaps
    from ..checkpoint.checkpoint import Checkpoint
    from ..decode.decode import SpecialTokens
    from ..decode.predictors.continuing import Continuing
    from ..decode.predictors.predictor import Context, Predictor, PredictorSettings
    from ..decode.predictors.text import TextPredictor, Warn
    from ..decode.score import Scored
    from ..decode.settings import BeamSearch, GenerateSettings, Hypothesis, Sampling
    from ..spec.check import Source
    from .answering import Answering
    from .modules import TokenizerFiles


@dataclass(frozen=True, slots=True, repr=False)
class Model:
    """An opened checkpoint, ready for use."""

    checkpoint: Checkpoint
    module: nn.Module
    strategy: PredictorSettings | None
    """How it answers: the predictor of its run, or as it was opened; None if neither says."""
    half: bool
    """Whether matrix products run in bfloat16."""
    trained: Answering | None
    """Run and columns of the model; None if it was imported or built."""
    others: tuple[nn.Module, ...] = field(default=(), kw_only=True)
    """Further models of an ensemble; all models' probabilities are averaged."""

    def __repr__(self) -> str:
        """Return the folder, the name of the spec, the number of parameters and the device."""
        size = f"{self.graph.parameters():,} parameters on {_device(self.module)}"
        size += f", with {len(self.others)} more models" if self.others else ""
        return f"<{type(self).__name__} {str(self.checkpoint.folder)!r}: {self.graph.name}, {size}>"

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        spec: Source | Graph | None = None,
        tokenizers: TokenizerFiles | None = None,
    ) -> Model:
        """Return the model of a module that a loop of your own has trained; `save` writes it.

        Args:
            module: a module with the weights of a spec, such as one of `weft.build`.
            spec: the spec; default: that from which the module was built.
            tokenizers: SentencePiece model of both sides, as a file or its content, or those of
                `source` and `target`; without it, the model reads and writes ids.

        Raises:
            InputError: weights are missing or have other shapes, or a tokenizer does not fit.
            SpecError: the spec has errors; all of them are listed.
        """
        from .modules import checkpoint_of

        return ready(checkpoint_of(module, spec, tokenizers), _device(module), half=False)

    def line_predictor(self) -> TextPredictor:
        """Return the predictor of lines of text: `translate` with tokens and scores.

        Its rows have a `source` and, optionally, a `prefix`, with which the output begins, and
        phrases that it must `include`.

        Raises:
            InputError: the model has no tokenizers, or does not translate.
        """
        if self.strategy is not None and self.strategy.command == "parse":
            raise InputError(
                "the checkpoint is a parser, not a translation model",
                location=str(self.checkpoint.folder),
                help="use 'weft parse', or its parse() from Python",
            )
        predictor = self._reader()
        for name in ("prefix", "include"):
            if column := getattr(self.strategy, name, None):
                raise InputError(
                    f"'{name}' of the predictor reads the column '{column}', but lines of text have"
                    " one text each",
                    location=str(self.checkpoint.folder),
                    help="use 'weft predict', or predict() in Python",
                )
        return predictor

    @property
    def search(self) -> BeamSearch | Sampling:
        """The search that writes texts; beam search if the model answers in another way."""
        from ..decode.settings import search_of

        return search_of(self.strategy)

    def _reader(self) -> TextPredictor:
        """Return the predictor of lines, whose targets may be the symbols of trees."""
        from ..decode.predictors.search import MaskPredict, text_predictor
        from ..decode.settings import risk_of
        from .answering import cannot_translate, translates

        if self.trained is None and not translates(self.checkpoint):
            raise cannot_translate(self.checkpoint)
        context = self._context(None if self.trained is None else self._written())
        if isinstance(self.strategy, MaskPredict):
            predictor = self.strategy.make(context)
        else:
            drafts = getattr(self.strategy, "drafts", ())
            risk = risk_of(self.strategy)
            predictor = text_predictor(context, self.search, drafts=drafts, risk=risk)
        return replace(predictor, text="source", prefix="prefix", include="include", what="line")

    def _written(self) -> str:
        """Return the column of the text that a trained model writes."""
        return self.answering.sides((self.module, *self.others))[1]

    def _context(self, answers: str | None = None) -> Context:
        """Return what a predictor of the model is made from.

        A model without a run has the columns `source` and `target`, or `text`.

        Args:
            answers: the column that is predicted; default: that of the run.

        Raises:
            InputError: there is no such column, or an imported model has no tokenizer.
        """
        from .answering import imported_context

        models = (self.module, *self.others)
        if self.trained is not None:
            return self.trained.context(models, answers, half=self.half)
        return imported_context(self.checkpoint, models, answers, half=self.half)

    @property
    def answering(self) -> Answering:
        """The run and the columns of the model; an error if it was imported or built."""
        if self.trained is None:
            raise InputError(
                "the checkpoint has no run, so it names no data and no metrics",
                location=str(self.checkpoint.folder),
                help="give the data, as to predict() or translate()",
            )
        return self.trained

    def predictor(
        self,
        predict: str | Mapping[str, Any] | None = None,
        *,
        answers: str | None = None,
        warn: Warn | None = None,
    ) -> Predictor:
        """Return the predictor of the run, or another one.

        Args:
            predict: a predictor, such as `"argmax"` or `{"type": "beam", "beam": 8}`, or without
                `type` changes of the settings of the run's, such as `{"beam": 8}`.
            answers: the column that is predicted; default: that of the run.
            warn: called with the number of each row, from 1, whose text is truncated.

        Raises:
            InputError: the predictor does not fit the model, or there is no tokenizer.
        """
        settings = self.predictor_settings(predict)
        return settings.make(replace(self._context(answers), warn=warn))

    def predictor_settings(
        self, predict: str | Mapping[str, Any] | None = None
    ) -> PredictorSettings:
        """Return the settings of the predictor that `predictor` returns.

        Raises:
            InputError: no predictor is named, or a setting is wrong.
        """
        from ..decode.predictors.registry import PREDICTORS, chosen_predictor

        if predict and (self.strategy or isinstance(predict, str) or "type" in predict):
            return chosen_predictor(self.strategy, predict, "predict")
        if self.strategy is None:
            raise InputError(
                f"the run '{self.answering.run.name}' does not say how its model predicts",
                help=f"name a predictor: {', '.join(PREDICTORS.names())}",
            )
        return self.strategy

    def predict(
        self,
        rows: Sequence[Mapping[str, Any]],
        predict: str | Mapping[str, Any] | None = None,
        *,
        answers: str | None = None,
    ) -> list[Any]:
        """Return the answer for each row.

        Args:
            rows: raw values by column, as in the data; the predicted column may be missing.  A
                model without a run reads `source`, or the `text` that it continues.
            predict: as for `predictor`.
            answers: as for `predictor`.

        Raises:
            InputError: as for `predictor`, or a value is missing or invalid.
        """
        return self.predictor(predict, answers=answers).predict(rows)

    def parse(
        self, sentences: Iterable[Any], predict: str | Mapping[str, Any] | None = None
    ) -> list[Any]:
        """Return the parse of each sentence, in order; None for one without words.

        Args:
            sentences: each a line with words separated by spaces, or words, or leaves with or
                without tags.  Words stay as they are, but round brackets are escaped.
            predict: as for `predictor`, such as `{"constrained": False}`.

        Raises:
            InputError: the model does not parse, or a word has white space inside.
        """
        if self.predictor_settings(predict).command != "parse":
            raise InputError(
                "the checkpoint does not parse: its predictor does not answer with trees",
                location=str(self.checkpoint.folder),
                help="train a run such as parsing-craft",
            )
        predictor: Any = self.predictor(predict)
        parses: list[Any] = predictor.parse(sentences)
        return parses

    @property
    def graph(self) -> Graph:
        """The graph that the weights belong to."""
        return self.checkpoint.graph

    def translate(
        self,
        lines: Iterable[str | Mapping[str, Any]],
        *,
        buffer: int = BUFFER,
        warn: Warn | None = None,
    ) -> list[str]:
        """Return the translation of each line, in order; an empty one of an empty line.

        Args:
            lines: texts, or rows with `source` and, optionally, `prefix`, the text with which the
                translation begins, and `include`, phrases that it contains.
            buffer: lines to read ahead.
            warn: called for each line that is truncated, has unknown characters, or must contain
                what `avoid` bans.

        Raises:
            InputError: `lines` is one text instead of several, or the model does not translate.
        """
        if isinstance(lines, str):
            problem = "'lines' is one text, not a list of texts"
            raise InputError(problem, help="write translate([text])")
        from ..decode.predictors.text import FIRST_ROWS, row_of_line

        predictor, rows = self.line_predictor(), map(row_of_line, lines)
        outputs = predictor.stream(rows, buffer=buffer, first=FIRST_ROWS, warn=warn)
        return [answers[0].value if answers else "" for answers in outputs]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        eos: int | Collection[int] | None = None,
        include: Sequence[Sequence[Sequence[int]]] = (),
        **settings: Any,
    ) -> list[list[Hypothesis]]:
        """Continue each prompt of ids, for a decoder-only model.

        Args:
            prompts: ids, at least one each; they may differ in length.
            eos: the tokens that end an output; default: those of the checkpoint.
            include: for each prompt, phrases of ids that its continuations contain.
            **settings: those of `GenerateSettings`: `max_new`, `beam`, `nbest`, `temperature`,
                `samples` and others; default: those of the model's predictor, if it generates.

        Returns:
            The continuations of each prompt: `samples` as they were drawn or, at temperature 0,
            `nbest`, best first.

        Raises:
            InputError: the spec has inputs other than ids, or a prompt is empty or has ids outside
                the vocabulary.
            SpecError: a setting is wrong.
        """
        from ..decode.decode import Request

        predictor = self.prompt_predictor(settings, ids=True)
        if eos is not None:
            ends = (eos,) if isinstance(eos, int) else tuple(sorted(eos))
            predictor = replace(predictor, ends=ends)
        phrases = include or [()] * len(prompts)
        return predictor.decode_requests(
            [
                Request((), prompt=prompt, include=required)
                for prompt, required in zip(prompts, phrases, strict=True)
            ]
        )

    def generation(self, settings: Mapping[str, Any]) -> GenerateSettings:
        """Return the settings with which `generate` continues prompts.

        Raises:
            SpecError: a setting is wrong.
        """
        from ...specs.reader import parse
        from ..decode.predictors.search import Generate
        from ..decode.settings import GenerateSettings

        defaults: dict[str, Any] = {}
        if isinstance(self.strategy, Generate):
            fields = {*GenerateSettings.model_fields}
            defaults = self.strategy.model_dump(exclude_unset=True, include=fields)
        return parse(GenerateSettings, {**defaults, **settings}, "generate")

    def prompt_predictor(self, settings: Mapping[str, Any], *, ids: bool = False) -> Continuing:
        """Return the predictor of prompts: `generate_text` with tokens and scores.

        Its rows have a `prompt` and phrases that its continuations must `include`.

        Args:
            settings: as for `generate`.
            ids: whether prompts and continuations are ids, written as numbers.

        Raises:
            InputError: the model cannot generate from text alone, or has no tokenizer.
            SpecError: a setting is wrong.
        """
        from ..checkpoint.tokenizers import ends_of, prompts_of
        from ..data.prompts import WrittenIds
        from ..decode.predictors.continuing import Continuing, check_generates
        from ..decode.predictors.predictor import Context
        from .answering import TEXT, PromptText

        check_generates(self.graph)
        prompts = WrittenIds() if ids else prompts_of(self.checkpoint)
        column = PromptText(prompts, tuple(sorted(ends_of(self.checkpoint))))
        context = Context((self.module,), {TEXT: column}, TEXT, half=self.half)
        predictor = Continuing.of(context, self.generation(settings), "prompt", "include")
        # Its callers divide prompts into batches.
        return replace(predictor, what="line", batch_tokens=sys.maxsize)

    def generate_text(
        self, prompts: Sequence[str], *, include: Sequence[Sequence[str]] = (), **settings: Any
    ) -> list[str]:
        """Continue each text, for a decoder-only model whose checkpoint has a tokenizer.

        Args:
            prompts: text; the returned texts do not include it.
            include: for each prompt, phrases that its continuations contain.
            **settings: as for `generate`.

        Raises:
            InputError: as for `generate`, or there is no tokenizer.
        """
        phrases = include or [()] * len(prompts)
        rows = [
            {"prompt": prompt, "include": required}
            for prompt, required in zip(prompts, phrases, strict=True)
        ]
        outputs = self.prompt_predictor(settings).stream(rows, buffer=max(1, len(rows)))
        return [answer.value for answers in outputs for answer in answers]

    def decode(
        self, sources: Sequence[Sequence[int]], special_tokens: SpecialTokens | None = None
    ) -> list[list[Hypothesis]]:
        """Return the outputs of an encoder-decoder as ids; for each source, best first.

        Args:
            sources: ids, including the end token, at least one each; they may differ in length.
            special_tokens: ids that begin, end and pad outputs; default: the checkpoint's.

        Raises:
            InputError: the model is not an encoder-decoder over ids, a source is empty or has ids
                outside the vocabulary, or the checkpoint does not define the special tokens.
        """
        from ..checkpoint.tokenizers import special_tokens_of
        from ..decode.decode import Request, check_ids, decode_ids, refuse_ids

        inputs = None
        if self.trained is None:
            check_ids(self.graph, sources)
        else:
            reader = self._reader()
            inputs = reader.inputs
            refuse_ids("source", sources, reader.source.vocab_size)
        special = special_tokens_of(self.checkpoint) if special_tokens is None else special_tokens
        if not sources:
            return []
        requests = [Request(source) for source in sources]
        models = (self.module, *self.others)
        return decode_ids(models, requests, special, self.search, inputs=inputs, half=self.half)

    def score(self, pairs: Iterable[tuple[str, str]], *, warn: Warn | None = None) -> list[Scored]:
        """Return the probability of each output given its source, token by token.

        Args:
            pairs: sources and outputs.
            warn: called for each pair whose source is truncated, as `translate` truncates it, or
                that has unknown characters.
        """
        from ..decode.predictors.text import row_of_line
        from ..decode.score import score_pairs

        rows = ((row_of_line(source), target) for source, target in pairs)
        return list(score_pairs(self._reader(), rows, warn=warn))

    def adapt(
        self,
        spec: LoadedSpec | str | Path,
        *,
        seed: int = 1,
        weights: Mapping[str, Any] | None = None,
    ) -> Adapted:
        """Return a model of another spec with this model's weights, as far as they fit.

        Args:
            spec: the result of `load`, a path, or a shipped name; params for the vocabulary size
                follow the tokenizer unless they are set.
            seed: seed of the new weights; each weight depends on it and on its path.
            weights: lines of a table, as in `start` of a run, for weights with another path or
                shape in this model.

        Raises:
            InputError: the spec has another vocabulary, or does not fit the task.
            SpecError: the spec or a line has errors; all of them are listed.
        """
        from ..checkpoint.transfer import adapted, graph_with_sizes

        graph = graph_with_sizes(self.checkpoint, spec)
        adapted_checkpoint, weight_transfer = adapted(self.checkpoint, graph, seed, weights)
        other = ready(
            adapted_checkpoint, _device(self.module), half=self.half, strategy=self.strategy
        )
        return Adapted(
            other.checkpoint,
            other.module,
            self.strategy,
            self.half,
            other.trained,
            weight_transfer,
        )

    def attention(
        self, sources: Sequence[str], targets: Sequence[str] | None = None
    ) -> list[AttentionMaps]:
        """Return the attention weights of every head, for each pair of sentences.

        Args:
            sources: sentences, none empty.
            targets: the decoder's input for each; default: the model's translations.

        Raises:
            InputError: the lists differ in length, or a source is empty.
        """
        from ..analysis.alignment import check_inputs
        from ..analysis.attention_weights import maps_of

        translations = self.translate(sources) if targets is None else targets
        check_inputs(self.graph)
        reader = self._reader()
        return maps_of(self.module, (reader.source, reader.target), sources, translations)

    def align(
        self, sources: Sequence[str], targets: Sequence[str] | None = None
    ) -> list[Alignment]:
        """Return the source token that each target token is aligned to.

        The arguments are those of `attention`; the alignment of an empty sentence is empty.

        Raises:
            InputError: the lists differ in length, or no attention reads the source.
        """
        from ..analysis.alignment import alignments_of

        translations = self.translate(sources) if targets is None else targets
        reader = self._reader()
        vocabularies = reader.source, reader.target
        return alignments_of(self.module, self.graph, vocabularies, sources, translations)

    def prune(self, heads: Mapping[str, Collection[int]]) -> Model:
        """Return a copy of this model without some of its attention heads.

        Args:
            heads: path of an attention, such as `encoder.0.self_attention.f`, to the heads to
                remove, counted from 0.

        Raises:
            InputError: a path is not an attention, a head does not exist, or no head would be left.
            SpecError: the spec has errors without these heads.
        """
        from ..checkpoint.prune import pruned

        pruned_checkpoint = pruned(self.checkpoint, heads)
        return ready(
            pruned_checkpoint, _device(self.module), half=self.half, strategy=self.strategy
        )

    def save(self, folder: Path | str) -> Path:
        """Write a checkpoint, which can be opened and trained further like any other.

        Raises:
            InputError: the folder cannot be written.
        """
        from ..checkpoint.saving import Contents, save, weights_of

        checkpoint = self.checkpoint
        contents = Contents(
            graph=checkpoint.graph,
            weights=weights_of(self.module, checkpoint.graph),
            objective=checkpoint.objective,
            run=checkpoint.run,
            state=checkpoint.state,
            tokenizers=checkpoint.tokenizers,
        )
        return save(Path(folder), contents)


def ready(
    checkpoint: Checkpoint,
    device: str,
    *,
    half: bool,
    strategy: PredictorSettings | None = None,
) -> Model:
    """Build the module of a checkpoint and return its model.

    Args:
        checkpoint: the checkpoint.
        device: device of the module.
        half: whether matrix products run in bfloat16.
        strategy: how it answers; default: as its run or its import says.
    """
    from .answering import Answering, imported_predictor

    trained = Answering.of(checkpoint) if checkpoint.task else None
    if strategy is None:
        strategy = imported_predictor(checkpoint) if trained is None else trained.run.predict
    return Model(checkpoint, checkpoint.build(device), strategy, half, trained)


@dataclass(frozen=True, slots=True, repr=False)
class Adapted(Model):
    """A model with the weights of another model, as far as they fit."""

    weight_transfer: WeightTransfer
    """Which weights were carried over, and from where; the others are newly initialized."""


def _device(module: nn.Module) -> str:
    return str(next(module.parameters()).device)
