"""Parses, and what every parser has in common.

Sentences are sorted by length inside a buffer, decoded in batches and returned in the
original order; the parse of a sentence does not depend on the other sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .... import plugin  # its names load torch, which metrics of trees do not need
from ..trees.linearization import WORD
from ..trees.reader import source_text
from ..trees.trees import Leaf, Tree
from .tree_repair import Repairs

BUFFER = 1000
"""Default number of sentences that are read before the first tree is returned."""
LONGEST_SOURCE = 1000
"""Maximum source tokens of a sentence; the rest is truncated."""

Sentence = Sequence[Leaf]
"""Words; words without a tag get the parser's tag, or XX if the parser predicts no tags."""
Warn = Callable[[int, str], None]
"""Called with the number of a sentence, from 1, and a description of the problem."""


@dataclass(frozen=True, slots=True)
class Parse:
    """A tree over exactly the words of a sentence."""

    tree: Tree
    """The tree; its leaves have the tags of the sentence if they were given."""
    tags: tuple[str, ...] = ()
    """The parser's own tag of each word; empty if the parser predicts no tags."""
    score: float = 0.0
    """Score by which the parse was chosen."""
    log_probability: float = 0.0
    """Log probability of the tree."""
    finished: bool = True
    """Whether the output ended with an end token."""
    repairs: Repairs = field(default_factory=Repairs)
    """Repairs that turned the output into a tree."""


class Parser(Protocol):
    """Interface of parsers."""

    def parse(
        self, sentences: Iterable[Sentence], *, buffer: int = BUFFER, warn: Warn | None = None
    ) -> Iterator[Parse | None]:
        """Yield the parse of each sentence, in order; None for an empty sentence.

        Args:
            sentences: the words of each sentence.
            buffer: sentences to read ahead; with 1, each parse is returned immediately.
            warn: called for each sentence that is too long.
        """


def tagged(sentence: Sentence, tags: Sequence[str]) -> list[Leaf]:
    """Return the words with their own tags; missing tags come from `tags` or become XX."""
    padded_tags = [*tags, *[""] * (len(sentence) - len(tags))]
    return [
        Leaf(leaf.tag or tag or WORD, leaf.word)
        for leaf, tag in zip(sentence, padded_tags, strict=False)
    ]


def by_length(
    sentences: Sequence[Sentence],
    source: plugin.Vocabulary,
    warn: Warn | None,
    start: int,
    positions: int | None,
) -> list[tuple[int, list[int]]]:
    """Return index and ids of each non-empty sentence, longest first.

    Args:
        sentences: the words of each sentence.
        source: source tokenizer.
        warn: called for each sentence that is truncated.
        start: number of the first sentence, from 0.
        positions: number of positions of the models; None if unlimited.
    """
    texts = [source_text(leaf.word for leaf in sentence) for sentence in sentences]
    rows, most = [], plugin.longest_source(LONGEST_SOURCE, positions)
    for index, ids in enumerate(source.encode_many(texts)):
        if not sentences[index]:
            continue
        if len(ids) > most and warn is not None:
            warn(start + index + 1, f"truncated from {len(ids)} to {most} tokens")
        if warn is not None and (
            problem := plugin.lacking(source, texts[index], ids, "the sentence")
        ):
            warn(start + index + 1, problem)
        rows.append((index, ids[:most]))
    return sorted(rows, key=lambda row: -len(row[1]))
