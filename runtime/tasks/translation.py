"""Translation task: encode the source, train with teacher forcing, decode the target.

A spec for this task needs the inputs `source` (ids), `source_mask` (mask) and `target`
(ids), and the output `logits` over the target vocabulary.  Outputs of kind `loss` are
added to the loss.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from ...specs.findings import InputError
from ..data.symbols import Symbols
from ..decode.translate import Translator
from ..metrics.text import score
from ..train.checks.needs import TRANSLATION, Needs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from torch import Tensor, nn

    from ...graphs.ir.graph import Graph
    from ..data.batches import Batch
    from ..data.prepare import Prepared
    from ..data.settings import BatchSettings
    from ..data.shards.corpus import Corpus
    from ..data.symbols import Vocabulary
    from ..decode.settings import SearchSettings
    from ..train.device import Place
    from ..train.distributed.sampler import MicroBatches
    from ..train.distributed.world import World
    from ..train.loss import LossSettings, LossSums
    from ..train.run import Run


def vocabulary_params(
    own: Mapping[str, Any], sizes: Mapping[str, int], params: Iterable[str]
) -> dict[str, Any]:
    """Add the vocabulary sizes to the overrides of a spec's params.

    Args:
        own: given overrides; they take precedence.
        sizes: params determined by the vocabularies, from the task's `sizes`.
        params: names of the spec's params; other sizes are omitted.
    """
    return {**{name: size for name, size in sizes.items() if name in params}, **own}


def _spelled(target: Vocabulary) -> bool:
    """Return whether the first ids of the target vocabulary are those of the source."""
    return isinstance(target, Symbols) and target.spelling is not None


def check_graph(graph: Graph, source: Vocabulary, target: Vocabulary) -> None:
    """Check that a graph has the inputs, outputs and vocabulary sizes of translation.

    Raises:
        InputError: an input or output is missing or has the wrong kind or size.
    """
    check_ports(graph, TRANSLATION)
    if graph.step_axis is None:
        raise InputError(
            "translation needs a spec that decodes step by step",
            place=graph.source,
            help='add "step": {"axis": "T"}',
        )
    check_vocabulary(graph, source, target)


def check_ports(graph: Graph, needs: Needs) -> None:
    """Check that a graph has the inputs and outputs that a task requires.

    Raises:
        InputError: an input or output is missing, or an input has the wrong kind.
    """
    for name, kind in needs.inputs.items():
        if name not in graph.inputs or graph.inputs[name].kind != kind:
            raise InputError(
                f"{needs.task} needs an input '{name}' of kind {kind}",
                place=f"{graph.source}#/inputs",
                help=f'add it, for example "{name}": "{kind}{":vocab" * (kind == "ids")}[B S]"',
            )
    for name in needs.outputs:
        if name not in graph.outputs:
            problem = f"{needs.task} needs an output '{name}'"
            raise InputError(problem, place=f"{graph.source}#/outputs")


def check_vocabulary(graph: Graph, source: Vocabulary, target: Vocabulary) -> None:
    """Check that a graph's vocabulary sizes equal those of the tokenizers.

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
                f"'{name}' of the spec has size {in_graph}, but the tokenizer has {in_tokenizer}",
                place=graph.source,
                help="remove 'vocab' from the run's params, so that it follows the tokenizer",
            )


@dataclass(frozen=True, slots=True)
class Translation:
    """Translation task, used by the training loop."""

    parses: ClassVar[bool] = False
    """Whether its outputs are trees."""

    source: Vocabulary
    target: Vocabulary
    settings: LossSettings
    losses: tuple[str, ...] = ()
    """Outputs of the model that are auxiliary losses."""
    head: str | None = None
    """Node that computes `logits`, if the loss can be fused with it; see
    `train/transforms/fused_linear_cross_entropy.py`."""

    @staticmethod
    def sizes(source: Vocabulary, target: Vocabulary) -> dict[str, int]:
        """Return the params of a spec that are determined by the vocabularies.

        Args:
            source: determines `source_vocab`, and `vocab` unless the target contains the
                source's pieces; then `vocab` is the larger size, so one table can serve both sides.
            target: determines `target_vocab`.
        """
        both = max(source.vocab_size, target.vocab_size) if _spelled(target) else source.vocab_size
        return {
            "vocab": both,
            "source_vocab": source.vocab_size,
            "target_vocab": target.vocab_size,
        }

    def check(self, graph: Graph) -> None:
        """Check that a graph has the inputs, outputs and sizes of this task.

        Raises:
            InputError: an input or output is missing or has the wrong kind or size.
        """
        check_graph(graph, self.source, self.target)

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of values that are reported besides the loss: none."""
        return ()

    @property
    def has_nll(self) -> bool:
        """Whether the nll is reported: always."""
        return True

    @property
    def has_auxiliary(self) -> bool:
        """Whether the model has auxiliary losses."""
        return bool(self.losses)

    def total(
        self,
        model: nn.Module,  # noqa: ARG002
        micro_batches: MicroBatches,
        world: World,  # noqa: ARG002
        seeds: tuple[int, int],  # noqa: ARG002
        device: torch.device,  # noqa: ARG002
    ) -> int:
        """Return the number of target tokens of an update, over all processes."""
        return micro_batches.target_tokens

    def inputs(self, batch: Batch) -> dict[str, Tensor]:
        """Return the model's inputs; the target is shifted right and begins with BOS."""
        first = torch.full_like(batch.target[:, :1], self.target.bos)
        return {
            "source": batch.source,
            "source_mask": batch.source != self.source.pad,
            "target": torch.cat((first, batch.target[:, :-1]), 1),
        }

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the loss of a batch, summed over target tokens."""
        from ..train.loss import with_auxiliary
        from ..train.transforms.fused_linear_cross_entropy import run_and_compare

        outputs, sums = run_and_compare(
            model,
            self.head,
            self.inputs(batch),
            batch.target,
            smoothing=self.settings.smoothing,
            pad=self.target.pad,
            spread=self.settings.spread,
            counts={"source": batch.source_tokens, "target": batch.shifted_target_tokens},
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
        """Return the batches of a corpus, from short to long."""
        from ..data.batches import in_order

        return in_order(corpus, settings, self.target.pad, self.target.eos)

    def text_batches(
        self, sources: Sequence[str], targets: Sequence[str], rows: int = 32
    ) -> Iterable[Batch]:
        """Return batches of plain text, without pairs that have an empty side."""
        from ..data.batches import Batch, pad_rows

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
        """Return a translator that uses the model."""
        return Translator(model, self.source, self.target, search, half)

    def validator(
        self, prepared: Prepared, run: Run, place: Place
    ) -> Callable[[nn.Module], dict[str, Any]]:
        """Return a function that validates the model: nll, and BLEU if requested."""
        watch = run.evaluate
        search = run.search.model_copy(update={"beam": watch.beam})
        sources, references = prepared.valid_text()
        last = watch.sentences or len(sources)

        def validate(model: nn.Module) -> dict[str, Any]:
            batches = self.batches(prepared.valid, run.batch)
            values: dict[str, Any] = self.perplexity(model, batches, place.device)
            if watch.bleu or run.best == "bleu":
                translator = self.translator(model, search, half=place.half)
                hypotheses = list(translator.translate(sources[:last]))
                scores = score(hypotheses, references[:last])
                key = "bleu_lc" if watch.lowercase else "bleu"
                values |= {"bleu": scores.values[key], "signature": scores.signatures[key]}
            return values

        return validate
