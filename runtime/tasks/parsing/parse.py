"""Parse: sentences in, trees out, in order.

Sentences are sorted by length inside a buffer, decoded in batches and put back in order,
so what one sentence becomes does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Protocol

from torch import nn

from ...data.symbols import Symbols, Vocabulary
from ...data.treebank.linearization import LINEARIZATIONS, WORD, Linearization
from ...data.treebank.reader import source_text, spelled
from ...data.treebank.settings import ParsingSettings
from ...data.treebank.trees import Leaf, Tree, escaped
from ...decode.decode import Request, SpecialTokens, decode_ids
from ...decode.parsing.tree_automaton import TreeProcessor
from ...decode.parsing.tree_repair import Repairs, repair
from ...decode.search.logits_processors import LogitsProcessor
from ...decode.settings import Hypothesis, SearchSettings

BUFFER = 1000
"""Sentences that are read before the first tree is given, unless told otherwise."""
BATCH_TOKENS = 4096
"""Source tokens of a batch, padding counted, times the beam."""
LONGEST_SOURCE = 1000
"""Source tokens of a sentence; the model does not see the rest."""

Sentence = Sequence[Leaf]
"""Words; those without a tag get the parser's, or XX when it tells none."""
Warn = Callable[[int, str], None]
"""Called with the number of a sentence, from 1, and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Parse:
    """A tree over exactly the words of a sentence."""

    tree: Tree
    """Its leaves have the tags of the sentence, where it has any."""
    tags: tuple[str, ...] = ()
    """The parser's own tag of each word; empty when it tells none."""
    score: float = 0.0
    """By which it was chosen."""
    log_probability: float = 0.0
    finished: bool = True
    """Whether the output ended by itself."""
    repairs: Repairs = field(default_factory=Repairs)
    """What was done to the output to make it a tree."""


class Parser(Protocol):
    """Anything that parses."""

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for one without words.

        Args:
            sentences: words.
            buffer: sentences to read ahead; 1 answers each at once.
            warn: hears of sentences that are too long.
        """


def tagged(sentence: Sentence, tags: Sequence[str]) -> list[Leaf]:
    """Return the words with the tags that they have, or else with those given, or else XX."""
    given = [*tags, *[""] * (len(sentence) - len(tags))]
    return [
        Leaf(leaf.tag or tag or WORD, leaf.word) for leaf, tag in zip(sentence, given, strict=False)
    ]


def by_length(
    sentences: Sequence[Sentence], source: Vocabulary, warn: Warn | None, start: int
) -> list[tuple[int, list[int]]]:
    """Return place and ids of each sentence that has words, the longest first.

    Args:
        sentences: words.
        source: its tokenizer.
        warn: hears of sentences that are cut.
        start: number of the first sentence, from 0.
    """
    texts = [source_text(leaf.word for leaf in sentence) for sentence in sentences]
    found = []
    for place, ids in enumerate(source.encode_many(texts)):
        if not sentences[place]:
            continue
        if len(ids) > LONGEST_SOURCE and warn is not None:
            warn(start + place + 1, f"{len(ids)} tokens, of which {LONGEST_SOURCE} are read")
        found.append((place, ids[:LONGEST_SOURCE]))
    return sorted(found, key=lambda one: -len(one[1]))


def symbols_of(target: Vocabulary, ids: Sequence[int]) -> list[str]:
    """Return the symbols of an output; brackets of copied words are escaped."""
    if isinstance(target, Symbols):
        return [escaped(text) if copied else text for text, copied in target.tokens(ids)]
    return target.decode(ids).split()


@dataclass(frozen=True, slots=True)
class SequenceParser:
    """An encoder-decoder that writes trees symbol by symbol."""

    models: tuple[nn.Module, ...]
    """Their probabilities are averaged."""
    source: Vocabulary
    target: Vocabulary
    parsing: ParsingSettings
    search: SearchSettings
    half: bool = False
    """Whether matrix products run in bfloat16."""

    @property
    def form(self) -> Linearization:
        """How trees are written."""
        return LINEARIZATIONS[self.parsing.linearization]

    @property
    def _symbols(self) -> tuple[str, ...]:
        """Every symbol of the vocabulary; none where it is of pieces."""
        return self.target.symbols if isinstance(self.target, Symbols) else ()

    @property
    def constrained(self) -> bool:
        """Whether nothing but trees is written."""
        return self.parsing.constrained and isinstance(self.target, Symbols)

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for one without words."""
        stream, start = iter(sentences), 0
        while chunk := list(islice(stream, buffer)):
            yield from self._chunk(chunk, start, warn)
            start += len(chunk)

    def _chunk(
        self, sentences: Sequence[Sentence], start: int, warn: Warn | None
    ) -> list[Parse | None]:
        found: list[Parse | None] = [None] * len(sentences)
        waiting = by_length(sentences, self.source, warn, start)
        while waiting:
            width = (len(waiting[0][1]) + 1) * self.search.beam
            rows = waiting[: max(1, BATCH_TOKENS // width)]
            waiting = waiting[len(rows) :]
            hypotheses = self._decode([sentences[place] for place, _ in rows], rows)
            for (place, _), best in zip(rows, hypotheses, strict=True):
                found[place] = self._parse(sentences[place], best[0])
        return found

    def _decode(
        self, sentences: Sequence[Sentence], rows: Sequence[tuple[int, list[int]]]
    ) -> list[list[Hypothesis]]:
        words = self._words(sentences) if self.constrained and self.form.copies else None
        needed = [
            len(sentence) if words is None else sum(map(len, words[place]))
            for place, sentence in enumerate(sentences)
        ]
        # A bracket around the words, and the end.
        requests = [
            Request([*ids, self.source.eos], room=least + 3)
            for (_, ids), least in zip(rows, needed, strict=True)
        ]
        constraint = partial(self._processor, sentences, words) if self.constrained else None
        special_tokens = SpecialTokens(self.target.bos, self.target.eos, self.target.pad)
        return decode_ids(
            self.models,
            requests,
            special_tokens,
            self.search,
            constraint=constraint,
            half=self.half,
        )

    def _words(self, sentences: Sequence[Sentence]) -> list[list[list[int]]]:
        """Return how the target spells each word of each sentence."""
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

    def _parse(self, sentence: Sentence, found: Hypothesis) -> Parse:
        """Return the tree of an output, repaired where it is none."""
        symbols = symbols_of(self.target, found.tokens)
        known = self._symbols
        tags = self._tags(symbols, known, len(sentence))
        tree, repairs = repair(self.form, symbols, tagged(sentence, tags), known)
        return Parse(
            tree,
            tags,
            score=found.score,
            log_probability=found.log_probability,
            finished=found.finished,
            repairs=repairs,
        )

    def _tags(self, symbols: Sequence[str], known: Sequence[str], words: int) -> tuple[str, ...]:
        """Return the tags that an output tells, one a word."""
        if self.form.tag is None:
            return ()
        actions = self.form.actions([*symbols, *known])[: len(symbols)]
        tags = [
            self.form.tag(symbol)
            for symbol, action in zip(symbols, actions, strict=True)
            if action is not None and action.kind == "leaf"
        ][:words]
        return (*tags, *[WORD] * (words - len(tags)))
