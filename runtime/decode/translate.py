"""Translate: lines of text in, lines of text out, in order.

Lines are sorted by length inside a buffer, decoded in batches and put back in order,
so what one line becomes does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import nn

from ..data.tokenizer import Tokenizer
from .ids import Special, decode_ids
from .search import Hypothesis, SearchSettings

BUFFER = 1000
"""Lines that are read before the first is written, unless told otherwise."""
BATCH_TOKENS = 4096
"""Source tokens of a batch, padding counted, times the beam."""
LONGEST_SOURCE = 1000
"""Source tokens of one line; the rest is cut off, with a warning."""

Warn = Callable[[int, str], None]
"""Called with a line number, counted from 1, and what is wrong with the line."""


@dataclass(frozen=True, slots=True)
class Translator:
    """A model with its tokenizers, ready to translate."""

    model: nn.Module
    source: Tokenizer
    target: Tokenizer
    search: SearchSettings
    half: bool = False
    """Whether matrix products run in bfloat16."""

    @property
    def rows(self) -> int:
        """Outputs that are worked on for each sentence."""
        return self.search.beam

    def translate(
        self, lines: Iterable[str], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[str]:
        """Yield the translation of each line, in order.

        An empty line gives an empty line.

        Args:
            lines: text, one sentence each.
            buffer: lines to read ahead; 1 answers each at once.
            warn: hears of lines that are cut.
        """
        stream, start = iter(lines), 0
        while chunk := list(islice(stream, buffer)):
            for hypotheses in self._chunk(chunk, start, warn):
                yield self.target.decode(hypotheses[0].tokens) if hypotheses else ""
            start += len(chunk)

    def _chunk(self, lines: Sequence[str], start: int, warn: Warn | None) -> list[list[Hypothesis]]:
        """Return the hypotheses of each line, best first; none for empty lines."""
        sources = self.source.encode_many(lines)
        for index, ids in enumerate(sources):
            if len(ids) > LONGEST_SOURCE:
                sources[index] = ids[:LONGEST_SOURCE]
                if warn is not None:
                    warn(start + index + 1, f"{len(ids)} tokens, cut to {LONGEST_SOURCE}")
        found: list[list[Hypothesis]] = [[] for _ in lines]
        filled = [index for index, ids in enumerate(sources) if ids]
        order = sorted(filled, key=lambda index: len(sources[index]), reverse=True)
        while order:
            width = (len(sources[order[0]]) + 1) * self.rows
            rows = order[: max(1, BATCH_TOKENS // width)]
            order = order[len(rows) :]
            decoded = self.decode([sources[index] for index in rows])
            for index, hypotheses in zip(rows, decoded, strict=True):
                found[index] = hypotheses
        return found

    def decode(self, sources: Sequence[Sequence[int]]) -> list[list[Hypothesis]]:
        """Return the hypotheses of a batch of sources, best first.

        Args:
            sources: ids of each sentence, without the end token.
        """
        whole = [[*ids, self.source.eos] for ids in sources]
        special = Special(self.target.bos, self.target.eos, self.target.pad)
        return decode_ids(self.model, whole, special, self.search, half=self.half)
