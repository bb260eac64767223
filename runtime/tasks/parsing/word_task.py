"""Base classes of parsing tasks whose models read words and predict in one forward pass.

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
from ...train.checks.needs import Needs
from ...train.loss import LossSums, with_auxiliary
from ..translation import check_ports
from .parse import BUFFER, Parse, Sentence, Warn
from .task import Parsing
from .words import CHARACTERS, Words, in_batches


@dataclass(frozen=True, slots=True, kw_only=True)
class WordParsing(Parsing):
    """Base class of parsing tasks whose models read words."""

    words: Words = field(init=False)

    def __post_init__(self) -> None:
        """Derive the word inputs from the source vocabulary."""
        object.__setattr__(self, "words", Words(self.source))

    def check_sizes(self, graph: Graph, needs: Needs, outputs: Mapping[str, int]) -> None:
        """Check that a graph has the required inputs, outputs and sizes.

        Args:
            graph: the graph.
            needs: the required inputs and outputs.
            outputs: the number of scores of each output.

        Raises:
            InputError: an input or output is missing or has the wrong size.
        """
        check_ports(graph, needs)
        found = {
            "pieces": (graph.inputs["pieces"].size, self.source.vocab_size),
            "characters": (graph.inputs["characters"].size, CHARACTERS),
            **{name: (graph.outputs[name].axes[-1], size) for name, size in outputs.items()},
        }
        params = [name for name in self.sizes(self.source, self.target) if name in graph.params]
        for name, (in_graph, needed) in found.items():
            if in_graph != needed:
                raise InputError(
                    f"'{name}' of the spec has size {in_graph}, but the data has {needed}",
                    place=graph.source,
                    help=f"remove {', '.join(map(repr, params))} from the run's params",
                )

    def lost(self, nll: Tensor, batch: Batch, outputs: Mapping[str, Tensor]) -> LossSums:
        """Return the loss sums of a batch, given its summed nll and the model's outputs."""
        sums = LossSums(loss=nll, nll=nll.detach(), tokens=(batch.target != self.target.pad).sum())
        own = [outputs[name] for name in self.losses]
        return with_auxiliary(sums, own, self.settings.auxiliary)


@dataclass(frozen=True, slots=True)
class WordParser:
    """Base class of parsers whose models read words."""

    models: tuple[nn.Module, ...]
    """Models whose probabilities are averaged."""
    source: Vocabulary
    words: Words
    half: bool
    """Whether matrix products run in bfloat16."""

    def capacity(self, longest: int) -> int:
        """Return the maximum batch size for sentences of at most `longest` words."""
        raise NotImplementedError

    def parses(self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor]) -> list[Parse]:
        """Return the parses of a batch.

        Args:
            sentences: the words of each sentence.
            inputs: inputs of the models.
        """
        raise NotImplementedError

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for an empty sentence."""
        return in_batches(
            sentences, self.source, self._batch, self.capacity, buffer=buffer, warn=warn
        )

    @torch.inference_mode()
    def _batch(self, sentences: Sequence[Sentence], ids: Sequence[list[int]]) -> list[Parse]:
        device = next(self.models[0].parameters()).device
        inputs = self.words(pad_rows(ids, self.source.pad, self.source.eos).to(device))
        return self.parses(sentences, inputs)

    def outputs(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of one of the models."""
        device = inputs["source_mask"].device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.half):
            outputs: dict[str, Tensor] = model(**inputs)
        return outputs
