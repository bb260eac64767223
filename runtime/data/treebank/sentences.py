"""Sentences: lines of text as the words of a treebank."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from ....specs.findings import InputError
from .trees import Leaf, escaped

_SPACES = str.maketrans("\t\r\n\v\f", "     ")


class _Cutter(Protocol):
    def tokenize(self, text: str) -> list[str]:
        """Cut a text into words."""


def words_of(line: str) -> list[Leaf]:
    """Return the words of a line, parted by ASCII white space; brackets are escaped.

    >>> [leaf.word for leaf in words_of("Dogs ( big ) bark")]
    ['Dogs', '-LRB-', 'big', '-RRB-', 'bark']
    """
    return [Leaf("", escaped(word)) for word in line.translate(_SPACES).split(" ") if word]


def raw_words_of(line: str) -> list[Leaf]:
    """Return the words of a sentence of plain text, as the Penn Treebank cuts them.

    Raises:
        InputError: nltk, which knows how, is not installed.
    """
    # What it makes of quotation marks and dashes is as in a treebank too.
    return [word for text in _cutter().tokenize(line) for word in words_of(text)]


@cache
def _cutter() -> _Cutter:
    try:
        from nltk.tokenize.treebank import TreebankWordTokenizer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            "cutting plain text into words needs nltk, which is not installed",
            help="pip install 'weft[parsing]', or give words parted by spaces without --raw",
        ) from error
    made: _Cutter = TreebankWordTokenizer()
    return made
