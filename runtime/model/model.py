"""Model: an opened checkpoint, ready for use; its files are in `checkpoint.py`."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...specs.findings import InputError
from ..decode.translate import BUFFER

if TYPE_CHECKING:
    from torch import nn

    from ...graphs.diff.weight_transfer import WeightTransfer
    from ...graphs.ir.graph import Graph
    from ...specs.load import LoadedSpec
    from ..analysis.alignment import Alignment
    from ..analysis.attention_weights import AttentionMaps
    from ..checkpoint.checkpoint import Checkpoint
    from ..data.hub import Prompts
    from ..decode.decode import SpecialTokens
    from ..decode.predictors.predictor import Predictor, PredictorSettings
    from ..decode.score import Scored
    from ..decode.settings import BeamSearch, GenerateSettings, Hypothesis, Sampling
    from ..decode.translate import TranslationRequest, Translator, Warn
    from .answering import Answering


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

    @property
    def translator(self) -> Translator:
        """The model with its tokenizers.

        Raises:
            InputError: it has no tokenizers, or does not translate.
        """
        if self.strategy is not None and self.strategy.command == "parse":
            raise InputError(
                "the checkpoint is a parser, not a translation model",
                location=str(self.checkpoint.folder),
                help="use 'weft parse', or its parse() from Python",
            )
        for name in ("prefix", "include"):
            if column := getattr(self.strategy, name, None):
                raise InputError(
                    f"'{name}' of the predictor reads the column '{column}', but lines of text have"
                    " one text each",
                    location=str(self.checkpoint.folder),
                    help="use 'weft predict', or predict() in Python",
                )
        return self._reader()

    @property
    def search(self) -> BeamSearch | Sampling:
        """The search that writes texts; beam search if the model answers in another way."""
        from ..decode.settings import search_of

        return search_of(self.strategy)

    def _reader(self) -> Translator:
        """Return the model with its source and target vocabularies: of text, or of tree symbols."""
        from ..decode.predictors.search import MaskPredict, text_predictor

        if self.trained is not None:
            models = (self.module, *self.others)
            answers = self.trained.sides(models)[1]
            context = self.trained.context(models, answers, half=self.half)
            if isinstance(self.strategy, MaskPredict):
                return self.strategy.make(context).translator
            return text_predictor(context, self.search).translator
        has_tokenizer = "tokenizer.model" in self.checkpoint.tokenizers
        if not {"source", "target"} <= self.graph.inputs.keys() or not has_tokenizer:
            raise InputError(
                "the checkpoint cannot translate text: its tokenizer, 'source' or 'target' is "
                "missing",
                location=str(self.checkpoint.folder),
                help="add tokenizer.model to it, or call its module with ids",
            )
        from ..checkpoint.tokenizers import tokenizers_of
        from ..decode.translate import Translator

        sides = tokenizers_of(self.checkpoint)
        return Translator(self.module, *sides, self.search, self.half, self.others)

    @property
    def answering(self) -> Answering:
        """The run and the columns of the model; an error if it was imported or built."""
        if self.trained is None:
            raise InputError(
                "the checkpoint has no run, so it has no columns and no predictor",
                location=str(self.checkpoint.folder),
                help="use translate(), generate() or decode(), or call its module with ids",
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
            InputError: the model was imported or built, or the predictor does not fit.
        """
        settings = self.predictor_settings(predict)
        context = self.answering.context((self.module, *self.others), answers, half=self.half)
        return settings.make(replace(context, warn=warn))

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
        """Return the answer for each row, for a model that was trained by a run.

        Args:
            rows: raw values by column, as in the data; the predicted column may be missing.
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
        lines: Iterable[str | TranslationRequest],
        *,
        buffer: int = BUFFER,
        warn: Warn | None = None,
    ) -> list[str]:
        """Return the translation of each line, in order.

        A line may be a `TranslationRequest`, with a forced prefix and required phrases.

        Raises:
            InputError: `lines` is one text instead of several.
        """
        if isinstance(lines, str):
            problem = "'lines' is one text, not a list of texts"
            raise InputError(problem, help="write translate([text])")
        return list(self.translator.translate(lines, buffer=buffer, warn=warn))

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        eos: int | Collection[int] | None = None,
        include: Sequence[Sequence[Sequence[int]]] = (),
        tokenizer: Prompts | None = None,
        **settings: Any,
    ) -> list[list[Hypothesis]]:
        """Continue each prompt, for a decoder-only model.

        Args:
            prompts: ids, at least one each; they may differ in length.
            eos: the tokens that end an output; default: those of the checkpoint.
            include: for each prompt, phrases of ids that its continuations contain.
            tokenizer: which texts are different; needed for `avoid`.
            **settings: those of `GenerateSettings`: `max_new`, `beam`, `nbest`, `temperature`,
                `samples`, `avoid` and others; default: those of an imported model.

        Returns:
            The continuations of each prompt: `samples` as they were drawn or, at temperature 0,
            `nbest`, best first.

        Raises:
            InputError: the spec has inputs other than ids, or a prompt is empty or has ids outside
                the vocabulary.
            SpecError: a setting is wrong.
        """
        from ..checkpoint.tokenizers import ends_of
        from ..decode.generate import generate_with

        parsed = self.generation(settings)
        ends = ends_of(self.checkpoint) if eos is None else {eos} if isinstance(eos, int) else eos
        return generate_with(
            self.module,
            self.graph,
            prompts,
            parsed,
            eos=frozenset(ends),
            include=include,
            tokenizer=tokenizer,
            half=self.half,
        )

    def generation(self, settings: Mapping[str, Any]) -> GenerateSettings:
        """Return the settings with which `generate` continues prompts.

        Raises:
            SpecError: a setting is wrong.
        """
        from ...specs.reader import parse
        from ..decode.settings import GenerateSettings

        defaults = self.checkpoint.state.get("imported", {}).get("generate", {})
        return parse(GenerateSettings, {**defaults, **settings}, "generate")

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
        from ..checkpoint.tokenizers import prompts_of
        from ..decode.generate import check_generates

        check_generates(self.graph)
        tokenizer = prompts_of(self.checkpoint)
        continuations = self.generate(
            [tokenizer.prompt(prompt) for prompt in prompts],
            include=[[tokenizer.encode(phrase) for phrase in phrases] for phrases in include],
            tokenizer=tokenizer,
            **settings,
        )
        return [
            tokenizer.decode(hypothesis.tokens)
            for hypotheses in continuations
            for hypothesis in hypotheses
        ]

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
        from ..decode.score import score_pairs

        return list(score_pairs(self._reader(), pairs, warn=warn))

    def adapt(self, spec: LoadedSpec | str | Path, *, seed: int = 1) -> Adapted:
        """Return a model of another spec with this model's weights, as far as they fit.

        Args:
            spec: the result of `load`, a path, or a shipped name; params for the vocabulary size
                follow the tokenizer unless they are set.
            seed: seed of the new weights; each weight depends on it and on its path.

        Raises:
            InputError: the spec has another vocabulary, or does not fit the task.
            SpecError: the spec has errors; all of them are listed.
        """
        from ..checkpoint.transfer import adapted, graph_with_sizes

        graph = graph_with_sizes(self.checkpoint, spec)
        adapted_checkpoint, weight_transfer = adapted(self.checkpoint, graph, seed)
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
        from .attending import attention_of

        translations = self.translate(sources) if targets is None else targets
        return attention_of(self.module, self.graph, self._reader(), sources, translations)

    def align(
        self, sources: Sequence[str], targets: Sequence[str] | None = None
    ) -> list[Alignment]:
        """Return the source token that each target token is aligned to.

        The arguments are those of `attention`; the alignment of an empty sentence is empty.

        Raises:
            InputError: the lists differ in length, or no attention reads the source.
        """
        from .attending import alignments_of

        translations = self.translate(sources) if targets is None else targets
        return alignments_of(self.module, self.graph, self._reader(), sources, translations)

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
    from ..decode.predictors.registry import PREDICTORS
    from .answering import Answering

    trained = Answering.of(checkpoint) if checkpoint.run else None
    if strategy is None and trained is None:
        imported = checkpoint.state.get("imported", {}).get("search", {})
        strategy = PREDICTORS.parse({"type": "beam", **imported}, str(checkpoint.folder))
    elif strategy is None and trained is not None:
        strategy = trained.run.predict
    return Model(checkpoint, checkpoint.build(device), strategy, half, trained)


@dataclass(frozen=True, slots=True, repr=False)
class Adapted(Model):
    """A model with the weights of another model, as far as they fit."""

    weight_transfer: WeightTransfer
    """Which weights were carried over, and from where; the others are newly initialized."""


def _device(module: nn.Module) -> str:
    return str(next(module.parameters()).device)
