"""Word task: what the tasks share whose models read words and give scores at once.

Axes: B sentences.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ....graphs.ir.graph import Graph
from ....specs.findings import InputError
from ...data.batches import Batch, pad_rows
from ...data.symbols import Vocabulary
from ...train.loss import LossSums, with_auxiliary
from ..translation import check_ports
from .parse import BUFFER, Parse, Sentence, Warn
from .task import Parsing
from .words import CHARACTERS, INPUTS, Words, in_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class WordParsing(Parsing):
    """A task whose model reads words."""

    words: Words = field(init=False)

    def __post_init__(self) -> None:
        """Learn what the source holds."""
        object.__setattr__(self, "words", Words(self.source))

    def check_sizes(self, graph: Graph, way: str, outputs: Mapping[str, int]) -> None:
        """Refuse a graph that lacks an input or output, or where one has another size.

        Args:
            graph: the graph.
            way: how it parses, in words.
            outputs: those that it must have, and how many scores each gives.

        Raises:
            InputError: it does.
        """
        check_ports(graph, f"parsing by {way}", INPUTS, outputs)
        found = {
            "pieces": (graph.inputs["pieces"].size, self.source.vocab_size),
            "characters": (graph.inputs["characters"].size, CHARACTERS),
            **{name: (graph.outputs[name].axes[-1], size) for name, size in outputs.items()},
        }
        params = [name for name in self.sizes(self.source, self.target) if name in graph.params]
        for name, (in_graph, needed) in found.items():
            if in_graph != needed:
                raise InputError(
                    f"'{name}' of the spec has the size {in_graph}, the data has {needed}",
                    place=graph.source,
                    help=f"leave {', '.join(map(repr, params))} out of the run's params",
                )

    def lost(self, nll: Tensor, batch: Batch, outputs: Mapping[str, Tensor]) -> LossSums:
        """Return the sums of a batch of which the summed nll is known."""
        sums = LossSums(loss=nll, nll=nll.detach(), tokens=(batch.target != self.target.pad).sum())
        own = [outputs[name] for name in self.losses]
        return with_auxiliary(sums, own, self.settings.auxiliary)


@dataclass(frozen=True, slots=True)
class WordParser:
    """Models that read words."""

    models: tuple[nn.Module, ...]
    """Their probabilities are averaged."""
    source: Vocabulary
    words: Words
    half: bool
    """Whether matrix products run in bfloat16."""

    def room(self, longest: int) -> int:
        """Return how many sentences a batch has room for, if the longest has so many words."""
        raise NotImplementedError

    def parses(self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor]) -> list[Parse]:
        """Return the parses of a batch.

        Args:
            sentences: words.
            inputs: what the models read of them.
        """
        raise NotImplementedError

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for one without words."""
        return in_batches(sentences, self.source, self._batch, self.room, buffer=buffer, warn=warn)

    @torch.inference_mode()
    def _batch(self, sentences: Sequence[Sentence], ids: Sequence[list[int]]) -> list[Parse]:
        device = next(self.models[0].parameters()).device
        inputs = self.words(pad_rows(ids, self.source.pad, self.source.eos).to(device))
        return self.parses(sentences, inputs)

    def outputs(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what one of the models gives."""
        device = inputs["source_mask"].device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.half):
            outputs: dict[str, Tensor] = model(**inputs)
        return outputs
