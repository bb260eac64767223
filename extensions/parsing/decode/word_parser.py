"""Base class of parsers whose models read words and predict in one forward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ....plugin import Vocabulary, pad_rows, positions_of, take
from ..trees.words import Words
from .parse import BUFFER, Parse, Sentence, Warn, by_length

Feed = Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]]
"""Takes the tensors of `Words`; returns the inputs of the models."""


@dataclass(frozen=True, slots=True)
class WordParser:
    """Base class of parsers whose models read words."""

    models: tuple[nn.Module, ...]
    """Models whose probabilities are averaged."""
    source: Vocabulary
    words: Words
    half: bool
    """Whether matrix products run in bfloat16."""
    feed: Feed
    """Computes the inputs of the models from the tensors of words."""

    def capacity(self, longest: int) -> int:
        """Return the maximum batch size for sentences of at most `longest` words."""
        raise NotImplementedError

    def parses(
        self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor], length_B: Tensor
    ) -> list[Parse]:
        """Return the parses of a batch.

        Args:
            sentences: the words of each sentence.
            inputs: inputs of the models.
            length_B: number of words of each sentence that the models read.
        """
        raise NotImplementedError

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for an empty sentence."""
        return in_batches(
            sentences,
            self.source,
            self._batch,
            self.capacity,
            buffer=buffer,
            warn=warn,
            positions=positions_of(*self.models),
        )

    @torch.inference_mode()
    def _batch(self, sentences: Sequence[Sentence], ids: Sequence[list[int]]) -> list[Parse]:
        device = next(self.models[0].parameters()).device
        words = self.words(pad_rows(ids, self.source.pad, self.source.eos).to(device))
        return self.parses(sentences, self.feed(words), words["source_mask"].sum(1))

    def outputs(self, model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the outputs of one of the models."""
        device = next(iter(inputs.values())).device.type
        with torch.autocast(device, torch.bfloat16, enabled=self.half):
            outputs: dict[str, Tensor] = model(**inputs)
        return outputs


def in_batches(
    sentences: Iterable[Sentence],
    source: Vocabulary,
    parses: Callable[[Sequence[Sentence], Sequence[list[int]]], list[Parse]],
    capacity: Callable[[int], int],
    *,
    buffer: int,
    warn: Warn | None,
    positions: int | None,
) -> Iterator[Parse | None]:
    """Yield the parse of each sentence, in order; None for an empty sentence.

    Args:
        sentences: the words of each sentence.
        source: source tokenizer.
        parses: parses a batch, given its words and piece ids.
        capacity: maximum batch size as a function of the longest sentence's number of words.
        buffer: sentences to read ahead.
        warn: called for each sentence that is too long.
        positions: number of positions of the models; None if unlimited.
    """
    stream, start = iter(sentences), 0
    while chunk := take(stream, buffer):
        results: list[Parse | None] = [None] * len(chunk)
        waiting = by_length(chunk, source, warn, start, positions)
        waiting.sort(key=lambda entry: -len(chunk[entry[0]]))
        while waiting:
            count = max(1, capacity(len(chunk[waiting[0][0]])))
            places, ids = zip(*waiting[:count], strict=True)
            waiting = waiting[count:]
            for index, parse in zip(places, parses([chunk[p] for p in places], ids), strict=True):
                results[index] = parse
        yield from results
        start += len(chunk)
