"""Translation: what is particular to turning one text into another.

A spec serves this task when it has the inputs `source` (ids), `source_mask` (keep)
and `target` (ids), and the output `logits` over the target vocabulary.  What it gives of
kind `loss` is added to the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..data.batches import Batch, in_order, pad_rows
from ..data.prepare import Prepared
from ..data.settings import BatchSettings
from ..data.shards.corpus import Corpus
from ..data.symbols import Symbols, Vocabulary
from ..decode.settings import SearchSettings
from ..decode.translate import Translator
from ..train.device import Place
from ..train.loss import LossSums, with_auxiliary
from ..train.run import LossSettings, Run
from ..train.transforms.fused_linear_cross_entropy import run_and_compare

INPUTS = {"source": "ids", "source_mask": "mask", "target": "ids"}
"""Inputs that the spec must have, and their kinds."""


def vocabulary_params(
    own: Mapping[str, Any], sizes: Mapping[str, int], params: Iterable[str]
) -> dict[str, Any]:
    """Return overrides of a spec, vocabulary sizes filled in.

    Args:
        own: overrides that are there already; they win.
        sizes: params that follow from the vocabularies, as the task's `sizes` gives them.
        params: names that the spec has; others are left out.
    """
    return {**{name: size for name, size in sizes.items() if name in params}, **own}


def _spelled(target: Vocabulary) -> bool:
    """Say whether the first ids of a target are those of its source."""
    return isinstance(target, Symbols) and target.spelling is not None


def check_graph(graph: Graph, source: Vocabulary, target: Vocabulary) -> None:
    """Refuse a graph that does not serve this task with these tokenizers.

    Raises:
        InputError: an input or output is missing, of another kind, or of another size.
    """
    check_ports(graph, "translation", INPUTS, ("logits",))
    if graph.step_axis is None:
        raise InputError(
            "translation needs a spec that decodes step by step",
            place=graph.source,
            help='add "step": {"axis": "T"}',
        )
    check_vocabulary(graph, source, target)


def check_ports(graph: Graph, task: str, inputs: Mapping[str, str], outputs: Iterable[str]) -> None:
    """Refuse a graph that lacks an input or an output.

    Args:
        graph: the graph.
        task: what it is for, in words.
        inputs: those that it must have, and their kinds.
        outputs: those that it must have.

    Raises:
        InputError: one is missing, or of another kind.
    """
    for name, kind in inputs.items():
        if name not in graph.inputs or graph.inputs[name].kind != kind:
            raise InputError(
                f"{task} needs an input '{name}' of kind {kind}",
                place=f"{graph.source}#/inputs",
                help=f'add it, for example "{name}": "{kind}{":vocab" * (kind == "ids")}[B S]"',
            )
    for name in outputs:
        if name not in graph.outputs:
            raise InputError(f"{task} needs an output '{name}'", place=f"{graph.source}#/outputs")


def check_vocabulary(graph: Graph, source: Vocabulary, target: Vocabulary) -> None:
    """Refuse a graph whose vocabularies are not those of the tokenizers.

    Raises:
        InputError: a size differs.
    """
    found = {
        "source": (graph.inputs["source"].size, source.vocab_size),
        "target": (graph.inputs["target"].size, target.vocab_size),
        "logits": (graph.outputs["logits"].axes[-1], target.vocab_size),
    }
    if _spelled(target) and found["source"][0] == target.vocab_size:
        del found["source"]
    for name, (in_graph, in_tokenizer) in found.items():
        if in_graph != in_tokenizer:
            raise InputError(
                f"'{name}' of the spec has {in_graph} words, the tokenizer has {in_tokenizer}",
                place=graph.source,
                help="leave 'vocab' out of the run's params, so that it follows the tokenizer",
            )


@dataclass(frozen=True, slots=True)
class Scores:
    """How good translations are; all of sacreBLEU, each with its signature."""

    values: Mapping[str, float]
    signatures: Mapping[str, str]


def score(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Return BLEU, lower-cased BLEU and chrF of whole translations.

    Source: Post 2018 (sacreBLEU); Popovic 2015 (chrF).
    """
    import sacrebleu  # noqa: PLC0415 - slow to load, and not needed to translate

    metrics: dict[str, Any] = {
        "bleu": sacrebleu.BLEU(),
        "bleu_lc": sacrebleu.BLEU(lowercase=True),
        "chrf": sacrebleu.CHRF(),
    }
    values, signatures = {}, {}
    for name, metric in metrics.items():
        values[name] = float(metric.corpus_score(list(hypotheses), [list(references)]).score)
        signatures[name] = str(metric.get_signature())
    return Scores(values, signatures)


@dataclass(frozen=True, slots=True)
class Translation:
    """The task, as the training loop sees it."""

    source: Vocabulary
    target: Vocabulary
    settings: LossSettings
    losses: tuple[str, ...] = ()
    """Outputs of the model that training lowers too."""
    head: str | None = None
    """The node that gives `logits`, where the loss may do its work: see `projected.py`."""

    @staticmethod
    def sizes(source: Vocabulary, target: Vocabulary) -> dict[str, int]:
        """Return the params of a spec that follow from the vocabularies.

        Args:
            source: gives `source_vocab`, and `vocab` unless the target spells with it: then
                one table of the target's size may serve both sides.
            target: gives `target_vocab`.
        """
        both = max(source.vocab_size, target.vocab_size) if _spelled(target) else source.vocab_size
        return {
            "vocab": both,
            "source_vocab": source.vocab_size,
            "target_vocab": target.vocab_size,
        }

    def check(self, graph: Graph) -> None:
        """Refuse a graph that does not serve this task with these tokenizers.

        Raises:
            InputError: an input or output is missing, of another kind, or of another size.
        """
        check_graph(graph, self.source, self.target)

    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return what the model reads: the target begins with BOS and lacks its end."""
        first = torch.full_like(batch.target[:, :1], self.target.bos)
        return {
            "source": batch.source,
            "source_mask": batch.source != self.source.pad,
            "target": torch.cat((first, batch.target[:, :-1]), 1),
        }

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the summed loss of a batch."""
        outputs, sums = run_and_compare(
            model,
            self.head,
            self.inputs(batch),
            batch.target,
            smoothing=self.settings.smoothing,
            pad=self.target.pad,
            spread=self.settings.spread,
            counts={"source": batch.source_tokens, "target": batch.target_tokens},
        )
        return with_auxiliary(
            sums, [outputs[name] for name in self.losses], self.settings.auxiliary
        )

    @torch.no_grad()
    def perplexity(
        self, model: nn.Module, batches: Iterable[Batch], device: torch.device
    ) -> dict[str, float]:
        """Return the unsmoothed nll in nats per target token, and its exponential."""
        total, tokens = torch.zeros((), dtype=torch.float64, device=device), 0
        for batch in batches:
            total += self.loss(model, batch.to(device)).nll
            tokens += batch.target_tokens
        nll = total.item() / max(tokens, 1)
        return {"nll": nll, "perplexity": math.exp(min(nll, 700.0))}

    def batches(self, corpus: Corpus, settings: BatchSettings) -> Iterable[Batch]:
        """Return the batches of a corpus from short to long."""
        return in_order(corpus, settings, self.target.pad, self.target.eos)

    def text_batches(
        self, sources: Sequence[str], targets: Sequence[str], rows: int = 32
    ) -> Iterable[Batch]:
        """Return batches of plain text, pairs with an empty side left out."""
        pairs = [
            (source, target)
            for source, target in zip(
                self.source.encode_many(sources), self.target.encode_many(targets), strict=True
            )
            if source and target
        ]
        pairs.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
        for start in range(0, len(pairs), rows):
            part = pairs[start : start + rows]
            yield Batch(
                source=pad_rows([p[0] for p in part], self.source.pad, self.source.eos),
                target=pad_rows([p[1] for p in part], self.target.pad, self.target.eos),
                rows=torch.arange(start, start + len(part)).numpy(),
                pad=self.target.pad,
            )

    def translator(
        self, model: nn.Module, search: SearchSettings, *, half: bool = False
    ) -> Translator:
        """Return the model as a translator."""
        return Translator(model, self.source, self.target, search, half)

    def validator(
        self, prepared: Prepared, run: Run, place: Place
    ) -> Callable[[nn.Module], dict[str, Any]]:
        """Return what measures the model while it is trained: nll, and BLEU where asked for."""
        watch = run.evaluate
        search = run.search.model_copy(update={"beam": watch.beam})
        sources, references = prepared.valid_text()
        last = watch.sentences or len(sources)

        def validate(model: nn.Module) -> dict[str, Any]:
            batches = self.batches(prepared.valid, run.batch)
            values: dict[str, Any] = self.perplexity(model, batches, place.device)
            if watch.bleu or run.best == "bleu":
                translator = self.translator(model, search, half=place.half)
                found = list(translator.translate(sources[:last]))
                scores = score(found, references[:last])
                key = "bleu_lc" if watch.lowercase else "bleu"
                values |= {"bleu": scores.values[key], "signature": scores.signatures[key]}
            return values

        return validate
