"""Sentences: lines of text as the words of a treebank."""

from __future__ import annotations

from .trees import Leaf, escaped

_SPACES = " \t\r\n"


def words_of(line: str) -> list[Leaf]:
    """Return the words of a line, parted by ASCII white space; brackets are escaped.

    >>> [leaf.word for leaf in words_of("Dogs ( big ) bark")]
    ['Dogs', '-LRB-', 'big', '-RRB-', 'bark']
    """
    words = line.translate(dict.fromkeys(map(ord, _SPACES), " ")).split(" ")
    return [Leaf("", escaped(word)) for word in words if word]
