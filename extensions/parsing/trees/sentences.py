"""Splitting of text lines into words as in a treebank."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Protocol

from ....plugin import InputError
from .trees import Leaf, escaped

_SPACES = str.maketrans("\t\r\n\v\f", "     ")
_BREAKS = re.compile(r"[ \t\r\n\v\f]")


class _Cutter(Protocol):
    def tokenize(self, text: str) -> list[str]:
        """Split a text into words."""


def words_of(line: str) -> list[Leaf]:
    r"""Return the words of a line, separated by ASCII white space.

    Words stay as they are, so those of a treebank come back as its leaves; only round brackets are
    escaped, because a tree cannot contain them.

    >>> [leaf.word for leaf in words_of(r"Dogs ( big ) [ bark -RSB- 1\/2")]
    ['Dogs', '-LRB-', 'big', '-RRB-', '[', 'bark', '-RSB-', '1\\/2']
    """
    return [Leaf("", escaped(word)) for word in line.translate(_SPACES).split(" ") if word]


def leaves_of(sentence: str | Iterable[str | Leaf]) -> list[Leaf]:
    """Return the leaves of a line, of words, or of leaves with or without tags.

    Raises:
        InputError: it is something else, or a word or a tag could not be written in a tree.
    """
    if isinstance(sentence, str):
        return words_of(sentence)
    if not isinstance(sentence, Iterable):
        raise InputError(
            f"{sentence!r:.60} is not a sentence", help="give text, or a list of its words"
        )
    return [_leaf(word) for word in sentence]


def _leaf(word: str | Leaf) -> Leaf:
    leaf = word if isinstance(word, Leaf) else Leaf("", str(word))
    if not leaf.word or _BREAKS.search(leaf.word):
        raise InputError(
            f"the word {leaf.word!r:.60} is empty or has white space inside",
            help="give each word alone, or the sentence as text: its words are separated by spaces",
        )
    if _BREAKS.search(leaf.tag) or escaped(leaf.tag) != leaf.tag:
        raise InputError(
            f"the tag {leaf.tag!r:.60} has white space or a round bracket inside",
            help="write a bracket as -LRB- or -RRB-",
        )
    return Leaf(leaf.tag, escaped(leaf.word))


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
