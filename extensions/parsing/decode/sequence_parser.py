"""Sequence parser: an encoder-decoder writes the symbols of a tree, and search keeps it a tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from torch import nn

from .... import Hypothesis, SpecialTokens
from ....plugin import (
    BeamSearch,
    Inputs,
    LogitsProcessor,
    Request,
    Symbols,
    UsualInputs,
    Vocabulary,
    decode_ids,
    positions_of,
    take,
)
from ..trees.columns.encodings import symbols_of
from ..trees.linearization import LINEARIZATIONS, WORD, Linearization
from ..trees.parsing_settings import ParsingSettings
from ..trees.reader import spelled
from .parse import BUFFER, Parse, Sentence, Warn, by_length, tagged
from .tree_automaton import TreeProcessor
from .tree_repair import repair

BATCH_TOKENS = 4096
"""Maximum source tokens of a batch, including padding, times the beam size."""


@dataclass(frozen=True, slots=True)
class SequenceParser:
    """Parser with an encoder-decoder that writes trees symbol by symbol."""

    models: tuple[nn.Module, ...]
    """Models whose probabilities are averaged."""
    source: Vocabulary
    target: Vocabulary
    parsing: ParsingSettings
    search: BeamSearch
    half: bool = False
    """Whether matrix products run in bfloat16."""
    inputs: Inputs = field(default_factory=UsualInputs)
    """What fills the inputs of the models."""

    @property
    def form(self) -> Linearization:
        """The linearization of trees."""
        return LINEARIZATIONS[self.parsing.linearization]

    @property
    def _symbols(self) -> tuple[str, ...]:
        """Every symbol of the vocabulary; empty if targets are pieces."""
        return self.target.symbols if isinstance(self.target, Symbols) else ()

    @property
    def constrained(self) -> bool:
        """Whether the search is restricted to trees."""
        return self.parsing.constrained and isinstance(self.target, Symbols)

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for an empty sentence."""
        stream, start = iter(sentences), 0
        while chunk := take(stream, buffer):
            yield from self._chunk(chunk, start, warn)
            start += len(chunk)

    def _chunk(
        self, sentences: Sequence[Sentence], start: int, warn: Warn | None
    ) -> list[Parse | None]:
        parses: list[Parse | None] = [None] * len(sentences)
        waiting = by_length(sentences, self.source, warn, start, positions_of(*self.models))
        while waiting:
            width = (len(waiting[0][1]) + 1) * self.search.beam
            rows = waiting[: max(1, BATCH_TOKENS // width)]
            waiting = waiting[len(rows) :]
            hypotheses = self._decode([sentences[index] for index, _ in rows], rows)
            for (index, _), best in zip(rows, hypotheses, strict=True):
                parses[index] = self._parse(sentences[index], best[0])
        return parses

    def _decode(
        self, sentences: Sequence[Sentence], rows: Sequence[tuple[int, list[int]]]
    ) -> list[list[Hypothesis]]:
        words = self._words(sentences) if self.constrained and self.form.copies else None
        needed = [
            len(sentence) if words is None else sum(map(len, words[index]))
            for index, sentence in enumerate(sentences)
        ]
        # The 3 further symbols are a bracket around the words and the end token.
        requests = [
            Request(
                [*ids, self.source.eos],
                capacity=least + 3,
                location=" ".join(leaf.word for leaf in sentence[:6]),
            )
            for sentence, (_, ids), least in zip(sentences, rows, needed, strict=True)
        ]
        constraint = partial(self._processor, sentences, words) if self.constrained else None
        special_tokens = SpecialTokens(self.target.bos, self.target.eos, self.target.pad)
        return decode_ids(
            self.models,
            requests,
            special_tokens,
            self.search,
            constraint=constraint,
            inputs=self.inputs,
            half=self.half,
        )

    def _words(self, sentences: Sequence[Sentence]) -> list[list[list[int]]]:
        """Return the target ids of each word of each sentence."""
        return [
            self.target.encode_many([spelled(leaf.word) for leaf in sentence])
            for sentence in sentences
        ]

    def _processor(
        self,
        sentences: Sequence[Sentence],
        words: Sequence[Sequence[Sequence[int]]] | None,
        limits: Sequence[int],
    ) -> LogitsProcessor:
        target = self.target
        return TreeProcessor(
            self.form,
            target.pieces(range(target.vocab_size)),
            [len(sentence) for sentence in sentences],
            limits,
            rows_each=self.search.beam,
            eos=target.eos,
            special_tokens=range(target.vocab_size - len(self._symbols)),
            words=words,
        )

    def _parse(self, sentence: Sentence, hypothesis: Hypothesis) -> Parse:
        """Return the parse of an output, repairing the output if it is malformed."""
        symbols = symbols_of(self.target, hypothesis.tokens)
        vocabulary = self._symbols
        tags = self._tags(symbols, vocabulary, len(sentence))
        tree, repairs = repair(self.form, symbols, tagged(sentence, tags), vocabulary)
        return Parse(
            tree,
            tags,
            score=hypothesis.score,
            log_probability=hypothesis.log_probability,
            finished=hypothesis.finished,
            repairs=repairs,
        )

    def _tags(
        self, symbols: Sequence[str], vocabulary: Sequence[str], words: int
    ) -> tuple[str, ...]:
        """Return the tags in an output, one per word."""
        if self.form.tag is None:
            return ()
        actions = self.form.actions([*symbols, *vocabulary])[: len(symbols)]
        tags = [
            self.form.tag(symbol)
            for symbol, action in zip(symbols, actions, strict=True)
            if action is not None and action.kind == "leaf"
        ][:words]
        return (*tags, *[WORD] * (words - len(tags)))
