"""Treebank reader: trees as pairs of text, with words as source and symbols as target.

The words of a sentence are written such that the pieces determine the word boundaries; see
`data/words.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from ....plugin import InputError, read_lines, resolve
from ....runtime.data.words import visible
from . import charts as chart
from . import tetra
from .clean import clean, rooted
from .linearization import LINEARIZATIONS
from .parsing_settings import ParsingSettings
from .trees import Leaf, Malformed, Tree, read_all, unescaped

ESCAPES = str.maketrans({"\uff08": "-LRB-", "\uff09": "-RRB-"})
_WIDE = str.maketrans("()", "\uff08\uff09")
Write = Callable[[Tree], list[str]]
"""Maps a tree to its target symbols, which contain no spaces."""


def word_text(word: str) -> str:
    """Return a word as given to the tokenizer: as in plain text, and always one word.

    >>> word_text("-LRB-"), word_text("New\u00a0York"), word_text("\u200b")
    ('(', 'NewYork', '?')
    """
    return visible(unescaped(word))


def source_text(words: Iterable[str]) -> str:
    """Return the text of a sentence for the tokenizer."""
    return " ".join(map(word_text, words))


def read_bank(files: Iterable[str], root: str, settings: ParsingSettings) -> Iterator[Tree | None]:
    """Yield the trees of all files, in order; None for a tree that is skipped.

    Args:
        files: files below `root`.
        root: folder that must contain the files.
        settings: how trees are cleaned, and what is done with malformed ones.

    Raises:
        InputError: a file cannot be read, or a tree is malformed and `malformed` is 'refuse'.
    """
    for name in files:
        path = resolve(root, name)
        for tree in read_file(path):
            if isinstance(tree, Tree):
                yield clean(tree) if settings.clean else tree
            elif settings.malformed == "skip":
                yield None
            else:
                raise InputError(
                    f"malformed tree: {tree.problem}",
                    location=f"{path}:{tree.line}:{tree.column}",
                    help='fix it, or skip malformed trees: "trees": {"malformed": "skip", ...}',
                )


def read_file(path: Path) -> Iterator[Tree | Malformed]:
    """Yield the trees of a file, which may span several lines, and the malformed ones.

    Each tree is parsed as soon as its brackets are closed, so a large file needs little memory.

    Raises:
        InputError: the file cannot be read.
    """
    pending: list[str] = []
    begin, depth = 1, 0
    for number, line in enumerate(read_lines(path), 1):
        pending.append(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            yield from _shifted("\n".join(pending), begin - 1)
            pending, begin, depth = [], number + 1, 0
    yield from _shifted("\n".join(pending), begin - 1)


def _shifted(text: str, lines: int) -> Iterator[Tree | Malformed]:
    for tree in read_all(text):
        yield tree if isinstance(tree, Tree) else replace(tree, line=tree.line + lines)


def writer(settings: ParsingSettings) -> Write:
    """Return the function that converts trees to target symbols, by decoder and linearization."""
    return WRITERS[settings.decoder](settings)


def _sequence_writer(settings: ParsingSettings) -> Write:
    form = LINEARIZATIONS[settings.linearization]

    def write(tree: Tree) -> list[str]:
        return form.write(_as_spelled(tree) if form.copies else tree)

    return write


WRITERS: Mapping[str, Callable[[ParsingSettings], Write]] = {
    "sequence": _sequence_writer,
    "chart": lambda _: lambda tree: chart.symbols(rooted(tree)),
    "tags": lambda _: lambda tree: tetra.tags_of(rooted(tree)),
}
"""Factory of the `Write` function of each decoder."""
COPYING = ("sequence",)
"""Decoders that may copy words to the target side."""


def _as_spelled(tree: Tree) -> Tree:
    """Return a tree whose words are spelled as on the target side."""
    return Tree(
        tree.label,
        tuple(
            Leaf(child.tag, spelled(child.word)) if isinstance(child, Leaf) else _as_spelled(child)
            for child in tree.children
        ),
    )


def spelled(word: str) -> str:
    """Return a word as spelled in a target that copies words.

    Brackets become full-width brackets, which no symbol contains and which the tokenizer
    normalizes to plain ones, so a word has the same pieces on both sides.
    """
    return word_text(word).translate(_WIDE)


def symbols_of(counts: Mapping[str, int], settings: ParsingSettings) -> list[str]:
    """Return the tokens that become symbols, most frequent first: all except copied words.

    Args:
        counts: number of occurrences of each token.
        settings: decoder and linearization.
    """
    copies = LINEARIZATIONS[settings.linearization].copies and settings.decoder in COPYING
    structural = [token for token in counts if not copies or token[0] in "()"]
    return sorted(structural, key=lambda token: (-counts[token], token))
