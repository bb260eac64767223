"""Reading of treebanks: trees as pairs of text, words on one side and symbols on the other.

The words of a sentence are written so that every word begins a piece with U+2581 and
nothing else does: so word boundaries are known from the pieces (`word_starts`).
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ....specs.findings import InputError
from ..readers import write_pairs
from ..settings import Files
from ..symbols import SPACE, Vocabulary
from ..text_files import read_lines, resolve
from . import charts as chart
from . import tetra
from .clean import clean
from .linearization import LINEARIZATIONS
from .settings import ParsingSettings
from .trees import Leaf, Malformed, Tree, plain, read_all

NOTHING = "?"
"""What stands for a word of which a tokenizer would see nothing."""
_ESCAPES = str.maketrans({"\uff08": "-LRB-", "\uff09": "-RRB-"})
_WIDE = str.maketrans("()", "\uff08\uff09")
Write = Callable[[Tree], list[str]]
"""From a tree to what is written on the target side, without spaces."""


def word_text(word: str) -> str:
    """Return a word as the tokenizer gets it: as in plain text, and surely one word.

    >>> word_text("-LRB-"), word_text("New\u00a0York"), word_text("\u200b")
    ('(', 'NewYork', '?')
    """
    shown = unicodedata.normalize("NFKC", plain(word))
    kept = "".join(one for one in shown if _is_visible(one))
    return kept or NOTHING


def _is_visible(letter: str) -> bool:
    """Say whether a tokenizer neither drops a character nor takes it for a space."""
    kind = unicodedata.category(letter)
    return kind[0] not in "ZC" and letter not in (SPACE, "\ufffd", "\u2585")


def source_text(words: Iterable[str]) -> str:
    """Return the text of a sentence for the tokenizer."""
    return " ".join(map(word_text, words))


def word_starts(source: Vocabulary) -> Tensor:
    """Return which ids begin a word, [V]."""
    pieces = source.pieces(range(source.vocab_size))
    return torch.tensor([piece.startswith(SPACE) for piece in pieces])


def read_bank(files: Files, root: str, settings: ParsingSettings) -> Iterator[Tree | None]:
    """Yield the trees of all files, in order; None for one that is left out.

    Raises:
        InputError: a file cannot be read, or, unless they are skipped, a tree is malformed.
    """
    if not files.trees:
        raise InputError(
            "parsing learns from trees, not from parallel text",
            place=", ".join(files.names),
            help='name treebanks: {"trees": ["train.trees.gz"]}',
        )
    for name in files.trees:
        path = resolve(root, name)
        for tree in read_file(path):
            if isinstance(tree, Tree):
                yield clean(tree) if settings.clean else tree
            elif settings.malformed == "skip":
                yield None
            else:
                raise InputError(
                    f"malformed tree: {tree.problem}",
                    place=f"{path}:{tree.line}:{tree.column}",
                    help='mend it, or leave such trees out: "parsing": {"malformed": "skip"}',
                )


def read_file(path: Path) -> Iterator[Tree | Malformed]:
    """Yield the trees of a file, one a line or over many, and what is malformed.

    A tree is read when its brackets are closed, so a large file needs little memory.

    Raises:
        InputError: the file cannot be read.
    """
    held: list[str] = []
    begin, depth = 1, 0
    for number, line in enumerate(read_lines(path), 1):
        held.append(line)
        depth += line.count("(") - line.count(")")
        if depth <= 0:
            yield from _shifted("\n".join(held), begin - 1)
            held, begin, depth = [], number + 1, 0
    yield from _shifted("\n".join(held), begin - 1)


def _shifted(text: str, lines: int) -> Iterator[Tree | Malformed]:
    for tree in read_all(text):
        yield tree if isinstance(tree, Tree) else replace(tree, line=tree.line + lines)


def writer(settings: ParsingSettings) -> Write:
    """Return what writes trees on the target side, by decoder and linearization."""
    return WRITERS[settings.decoder](settings)


def _sequence_writer(settings: ParsingSettings) -> Write:
    form = LINEARIZATIONS[settings.linearization]

    def write(tree: Tree) -> list[str]:
        return form.write(_as_spelled(tree) if form.copies else tree)

    return write


WRITERS: Mapping[str, Callable[[ParsingSettings], Write]] = {
    "sequence": _sequence_writer,
    "chart": lambda _: chart.symbols,
    "tags": lambda _: tetra.tags_of,
}
"""By decoder, from settings to what is written for a tree."""
COPYING = ("sequence",)
"""Decoders that may write words on the target side."""


def _as_spelled(tree: Tree) -> Tree:
    """Return a tree whose words are as a target spells them."""
    return Tree(
        tree.label,
        tuple(
            Leaf(child.tag, spelled(child.word)) if isinstance(child, Leaf) else _as_spelled(child)
            for child in tree.children
        ),
    )


def spelled(word: str) -> str:
    """Return a word as a target that copies words has it.

    Brackets are wide ones, which no symbol has and of which a tokenizer makes plain ones: so
    a word has the same pieces on both sides.
    """
    return word_text(word).translate(_WIDE)


@dataclass(frozen=True, slots=True)
class TreeReading:
    """Treebanks as pairs of text."""

    parsing: ParsingSettings
    pieces: bool = False
    """Whether targets are text for a tokenizer, which would make plain brackets of wide ones."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides the pairs."""
        known = self.parsing.model_dump(mode="json", exclude={"constrained"})
        return {**known, "pieces": self.pieces}

    def pairs(self, files: Files, root: str) -> Iterator[tuple[str, str]]:
        """Yield words and symbols of each tree; two empty texts for one that is left out.

        Raises:
            InputError: as for `read_bank`, or a symbol has a space.
        """
        write, escapes = writer(self.parsing), _ESCAPES if self.pieces else {}
        for tree in read_bank(files, root, self.parsing):
            if tree is None:
                yield "", ""
            else:
                target = " ".join(write(tree)).translate(escapes)
                yield source_text(leaf.word for leaf in tree.leaves()), target

    def paths(self, files: Files, root: str, work: Path) -> list[tuple[Path, Path]]:
        """Return parallel files of words and symbols, made in `work`.

        Raises:
            InputError: as for `read_bank`.
        """
        return [
            write_pairs(self.pairs(part, root), work, str(number))
            for number, part in enumerate(files.parts())
        ]

    def symbols(self, counts: Mapping[str, int]) -> list[str]:
        """Return the tokens that are whole symbols, the commonest first: all but copied words."""
        copies = LINEARIZATIONS[self.parsing.linearization].copies
        copies = copies and self.parsing.decoder in COPYING
        kept = [token for token in counts if not copies or token[0] in "()"]
        return sorted(kept, key=lambda token: (-counts[token], token))
