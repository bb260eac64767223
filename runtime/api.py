"""Train a run and open a checkpoint: what the facade and the commands share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from ..graphs.graph import Graph
from ..graphs.survival import Survival
from ..specs.findings import InputError
from ..specs.load import LoadedSpec, load
from ..specs.reader import parse
from .adapt import adapted
from .checked import graph_of
from .checkpoint import Checkpoint, Contents, open_checkpoint, save, weights_of
from .data.prepare import Prepared, prepare
from .data.prepare import Report as PrepareReport
from .decode.generate import Continuation, GenerateSettings, generate_with
from .decode.ids import Special, check_ids, decode_ids
from .decode.search import Hypothesis, SearchSettings
from .decode.translate import BUFFER, Translator, Warn
from .maps import AttentionMaps, maps_of
from .prune import pruned
from .special import ends_of, special_of, tokenizers_of
from .tasks import translation
from .tasks.choice import make_task, task_of
from .tasks.translation import Translation
from .train.device import choose
from .train.run import Run, load_run, spec_of
from .train.setting import Listener, Result, Setting
from .train.trainer import Trainer


@dataclass(frozen=True, slots=True)
class Model:
    """An opened checkpoint, ready for use."""

    checkpoint: Checkpoint
    module: nn.Module
    search: SearchSettings
    half: bool
    """Whether matrix products run in bfloat16."""
    task: Translation | None
    """What the model was trained for; None when it reads and writes ids alone."""

    @property
    def translator(self) -> Translator:
        """The model with its tokenizers.

        Raises:
            InputError: it has none, or does not translate.
        """
        if self.task is None:
            raise InputError(
                "the checkpoint does not translate text: it has no tokenizer, or no source",
                place=str(self.checkpoint.folder),
                help="put tokenizer.model into it, or use its module with ids",
            )
        return self.task.translator(self.module, self.search, half=self.half)

    @property
    def graph(self) -> Graph:
        """The graph that the weights belong to."""
        return self.checkpoint.graph

    def translate(
        self, lines: Iterable[str], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> list[str]:
        """Return the translation of each line, in order."""
        return list(self.translator.translate(lines, buffer=buffer, warn=warn))

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        eos: int | Collection[int] | None = None,
        **settings: Any,
    ) -> list[Continuation]:
        """Go on from each prompt, for a decoder-only model.

        Args:
            prompts: ids, at least one each; they may differ in length.
            eos: the tokens that end an output; what the checkpoint says when left out.
            **settings: those of `GenerateSettings`: `max_new`, `temperature`, `top_k`, `seed`.

        Raises:
            InputError: the spec does not decode from ids alone, or a prompt is empty or has
                ids that are not the model's.
            SpecError: a setting is wrong.
        """
        wanted = parse(GenerateSettings, settings, "generate")
        ends = ends_of(self.checkpoint) if eos is None else {eos} if isinstance(eos, int) else eos
        return generate_with(
            self.module, self.graph, prompts, wanted, eos=frozenset(ends), half=self.half
        )

    def decode(
        self, sources: Sequence[Sequence[int]], special: Special | None = None
    ) -> list[list[Hypothesis]]:
        """Return the outputs of an encoder-decoder as ids, those of each source best first.

        Args:
            sources: ids, end token and all, at least one each; they may differ in length.
            special: the ids with which outputs begin and end, and which fills rows; what
                the checkpoint says when left out.

        Raises:
            InputError: the model is no encoder-decoder of ids, a source is empty or has ids
                that are not the model's, or the checkpoint does not say what is special.
        """
        check_ids(self.graph, sources)
        known = special_of(self.checkpoint) if special is None else special
        if not sources:
            return []
        return decode_ids(self.module, sources, known, self.search, half=self.half)

    def adapt(self, spec: LoadedSpec | str | Path, *, seed: int = 1) -> Adapted:
        """Return the model of another spec with the weights of this one, as far as they fit.

        Args:
            spec: what `load` gave, a path, or a shipped name; params that name the size
                of the vocabulary follow the tokenizer unless they are set.
            seed: decides the weights that are drawn anew, together with their paths.

        Raises:
            InputError: the spec has another vocabulary, or is none for this task.
            SpecError: everything that is wrong with the spec.
        """
        held = spec if isinstance(spec, LoadedSpec) else load(spec)
        tokenizers = tokenizers_of(self.checkpoint)
        params = translation.vocabulary_params(held.overrides, *tokenizers, held.form.params)
        graph = graph_of(replace(held, overrides=params))
        task_of(self.checkpoint.run, *tokenizers).check(graph)
        made, survival = adapted(self.checkpoint, graph, seed)
        ready = _ready(made, self.search, _device(self.module), half=self.half)
        return Adapted(ready.checkpoint, ready.module, self.search, self.half, ready.task, survival)

    def attention(
        self, sources: Sequence[str], targets: Sequence[str] | None = None
    ) -> list[AttentionMaps]:
        """Return how much each head reads of each position, for each pair of sentences.

        Args:
            sources: sentences, none empty.
            targets: what the decoder reads with each; the model's translations when None.

        Raises:
            InputError: the lists are not of one length, or a source is empty.
        """
        given = self.translate(sources) if targets is None else targets
        tokenizers = self.translator.source, self.translator.target
        return maps_of(self.module, tokenizers, sources, given)

    def prune(self, heads: Mapping[str, Collection[int]]) -> Model:
        """Return this model without some of its attention heads; this one stays as it is.

        Args:
            heads: path of an attention, such as `encoder.0.self_attention.f`, to the heads
                to take out, counted from 0.

        Raises:
            InputError: a path is no attention, it has no such head, or none would be left.
            SpecError: the spec does not check without these heads.
        """
        device = _device(self.module)
        return _ready(pruned(self.checkpoint, heads), self.search, device, half=self.half)

    def save(self, folder: Path | str) -> Path:
        """Write it as a checkpoint, which opens, translates and starts a run as any other.

        Raises:
            InputError: the folder cannot be written.
        """
        held = self.checkpoint
        weights = weights_of(self.module, held.graph)
        contents = Contents(
            graph=held.graph,
            weights=weights,
            run=held.run,
            state=held.state,
            tokenizers=held.tokenizers,
        )
        return save(Path(folder), contents)


@dataclass(frozen=True, slots=True)
class Adapted(Model):
    """A model with the weights of another one, as far as they fit."""

    survival: Survival
    """Which weights were carried over, and from where; the others are drawn anew."""


def open_model(
    folder: Path | str,
    *,
    search: Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: str = "float32",
) -> Model:
    """Open a checkpoint folder, with nothing but what is in it.

    Args:
        folder: such as `outputs/demo/averaged`.
        search: changes to the run's search settings, such as `{"beam": 5}`.
        device: where to compute.
        precision: `float32` or `bfloat16`.

    Raises:
        InputError: not a whole checkpoint, or its tokenizer is not the model's.
    """
    held = open_checkpoint(folder)
    settings = SearchSettings(**{**held.run.get("search", {}), **(search or {})})
    return _ready(held, settings, device, half=precision == "bfloat16")


def _ready(held: Checkpoint, search: SearchSettings, device: str, *, half: bool) -> Model:
    """Return a checkpoint ready for use."""
    task = _task_of(held)
    return Model(held, held.build(device), search, half, task)


def _task_of(held: Checkpoint) -> Translation | None:
    """Return the task of a checkpoint; None for a model of ids alone.

    Raises:
        InputError: it is for text, and its tokenizer is missing or not the model's.
    """
    inputs = held.graph.inputs
    for_text = {"source", "target"} <= inputs.keys() and inputs["source"].kind == "ids"
    imported = "imported" in held.state and "tokenizer.model" not in held.tokenizers
    if not for_text or imported:
        return None
    task = task_of(held.run, *tokenizers_of(held))
    task.check(held.graph)
    return task


def _device(module: nn.Module) -> str:
    return str(next(module.parameters()).device)


def tokenizer_files(prepared: Prepared) -> dict[str, bytes]:
    """Return the tokenizers of prepared data as files of a checkpoint."""
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    if source is target:
        return {"tokenizer.model": source.bytes}
    return {"source.model": source.bytes, "target.model": target.bytes}


def prepare_run(run: Run, folder: Path, report: PrepareReport | None = None) -> Prepared:
    """Make or open the tokenizer and the binary corpus of a run."""
    return prepare(run.data, run.tokenizer, folder / "prepared", report=report)


def graph_for(run: Run, source: str, prepared: Prepared) -> Graph:
    """Return the graph of a run's spec, its vocabulary that of the tokenizer."""
    held = load(spec_of(run, source))
    tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
    params = translation.vocabulary_params(run.params, *tokenizers, held.form.params)
    graph = graph_of(replace(held, overrides=params))
    make_task(run, prepared, graph).check(graph)
    return graph


def train(
    run: Run | str | Path,
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    report: PrepareReport | None = None,
) -> Result:
    """Train a run, from its data to its averaged checkpoint.

    Args:
        run: a run, a path, or a shipped name such as `multi30k-en-de`.
        out: folder of the run; `outputs/NAME` when left out.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        resume: go on from the newest checkpoint in the folder.
        listener: hears about progress.
        report: hears about the preparation of the data.

    Returns:
        How it ended, and where the checkpoints are.

    Raises:
        InputError: the data, the folder or a checkpoint is wrong.
        SpecError: the run or its spec is wrong.
    """
    if isinstance(run, Run):
        settings, source = run, run.name
    else:
        settings, source = load_run(run, overrides)
    folder = Path(out) if out is not None else Path("outputs") / settings.name
    hears: Listener = listener or Silent()
    place = choose(settings)
    hears.say(f"{place.device}, {'bfloat16' if place.half else 'float32'}: {place.reason}")
    prepared = prepare_run(settings, folder, report)
    graph = graph_for(settings, source, prepared)
    task = make_task(settings, prepared, graph)
    hears.say(f"{graph.name}: {graph.parameters():,} parameters")
    for split in ("train", "valid"):
        hears.say(_counted(split, prepared.report[split]))
    watch = settings.evaluate
    sources, references = prepared.valid_text()
    last = watch.sentences or len(sources)

    def validate(model: nn.Module) -> dict[str, Any]:
        values: dict[str, Any] = task.perplexity(
            model, task.batches(prepared.valid, settings.batch), place.device
        )
        if watch.bleu or watch.best == "bleu":
            search = settings.search.model_copy(update={"beam": watch.beam})
            translator = task.translator(model, search, half=place.half)
            found = list(translator.translate(sources[:last]))
            scores = translation.score(found, references[:last])
            key = "bleu_lc" if watch.lowercase else "bleu"
            values |= {"bleu": scores.values[key], "signature": scores.signatures[key]}
        return values

    setting = Setting(
        run=settings,
        graph=graph,
        task=task,
        corpus=prepared.train,
        folder=folder,
        place=place,
        tokenizers=tokenizer_files(prepared),
        pad=prepared.source_tokenizer.pad,
        eos=prepared.source_tokenizer.eos,
        validate=validate,
        listener=hears,
    )
    return Trainer(setting, resume=resume).train()


def _counted(split: str, report: Mapping[str, Any]) -> str:
    """Say how many pairs of a split are used, and why others are not."""
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in report["dropped"].items())
    return f"{split}: {report['kept']:,} pairs" + (f"; dropped {dropped}" if dropped else "")


class Silent:
    """Hears everything and says nothing."""

    def say(self, text: str) -> None:
        """Hear one line."""

    def progress(self, progress: Any) -> None:
        """Hear how far the run is."""

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Hear a validation."""
