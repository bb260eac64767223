"""Splitting of text lines into words as in a treebank."""

from __future__ import annotations

from functools import cache
from typing import Protocol

from ....specs.findings import InputError
from .trees import Leaf, escaped

_SPACES = str.maketrans("\t\r\n\v\f", "     ")


class _Cutter(Protocol):
    def tokenize(self, text: str) -> list[str]:
        """Split a text into words."""


def words_of(line: str) -> list[Leaf]:
    """Return the words of a line, separated by ASCII white space; brackets are escaped.

    >>> [leaf.word for leaf in words_of("Dogs ( big ) bark")]
    ['Dogs', '-LRB-', 'big', '-RRB-', 'bark']
    """
    return [Leaf("", escaped(word)) for word in line.translate(_SPACES).split(" ") if word]


def raw_words_of(line: str) -> list[Leaf]:
    """Return the words of a plain-text sentence, tokenized as in the Penn Treebank.

    Raises:
        InputError: nltk is not installed.
    """
    # nltk also converts quotation marks and dashes as in a treebank.
    return [word for text in _cutter().tokenize(line) for word in words_of(text)]


@cache
def _cutter() -> _Cutter:
    try:
        from nltk.tokenize.treebank import TreebankWordTokenizer  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise InputError(
            "splitting plain text into words needs nltk, which is not installed",
            help="pip install 'weft[parsing]', or give words separated by spaces without --raw",
        ) from error
    cutter: _Cutter = TreebankWordTokenizer()
    return cutter
