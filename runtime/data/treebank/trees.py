"""Trees: constituents over words, read from and written as Penn Treebank brackets.

A file holds one tree a line or trees over many lines.  Only ASCII white space parts
words: treebanks hold tokens with other spaces inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ....specs.findings import InputError

MAX_DEPTH = 500
"""Brackets inside one another that are read at most."""
OUTER = ("", "TOP", "ROOT", "S1")
"""Labels that stand around a whole tree and name no constituent."""

_SHOWN = 100
"""Characters of a malformed line that are shown."""
_TOLD = 3
"""Malformed trees that are told one by one."""
_TOKEN = re.compile(r"[()]|[^ \t\r\n()]+")
_ESCAPED = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word and its part of speech."""

    tag: str
    word: str

    def __str__(self) -> str:
        """Write the leaf as a treebank does.

        >>> str(Leaf("NN", "dog"))
        '(NN dog)'
        """
        return f"({self.tag} {self.word})"


@dataclass(frozen=True, slots=True)
class Tree:
    """A constituent: a label over constituents and leaves, at least one."""

    label: str
    children: tuple[Tree | Leaf, ...]

    def __str__(self) -> str:
        """Write the tree on one line.

        >>> str(Tree("NP", (Leaf("DT", "the"), Leaf("NN", "dog"))))
        '(NP (DT the) (NN dog))'
        """
        return f"({self.label} {' '.join(map(str, self.children))})"

    def leaves(self) -> Iterator[Leaf]:
        """Yield the leaves from left to right."""
        for child in self.children:
            if isinstance(child, Leaf):
                yield child
            else:
                yield from child.leaves()

    def constituents(self) -> Iterator[Tree]:
        """Yield this constituent and all inside it, each before its parts."""
        yield self
        for child in self.children:
            if isinstance(child, Tree):
                yield from child.constituents()


@dataclass(frozen=True, slots=True)
class Malformed:
    """What stands where a tree was expected."""

    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    problem: str
    text: str
    """The line in which it was found out, shortened."""

    def __str__(self) -> str:
        """Say where and what.

        >>> str(Malformed(3, 7, "tag 'NN' holds 2 words", "(NP (NN Xpd TTD))"))
        "line 3, column 7: tag 'NN' holds 2 words"
        """
        return f"line {self.line}, column {self.column}: {self.problem}"


class _BracketError(ValueError):
    """Something at an offset of the text is wrong."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at, self.problem = at, problem


@dataclass(slots=True)
class _Open:
    """A bracket that was opened."""

    at: int
    label: str | None
    children: list[Tree | Leaf]
    words: list[str]

    def closed(self) -> Tree | Leaf:
        """Return what the bracket held."""
        label, words = self.label or "", self.words
        if not words and not self.children:
            raise _BracketError(self.at, f"an empty bracket '({label})'")
        if not words:
            return Tree(label, tuple(self.children))
        if self.children:
            raise _BracketError(self.at, f"'{label}' holds the word '{words[0]}' beside brackets")
        if len(words) > 1:
            raise _BracketError(self.at, f"tag '{label}' holds {len(words)} words")
        return Leaf(label, words[0])


def _begin(token: re.Match[str]) -> int:
    """Return where the bracket is that a tree begins with."""
    if token.group() != "(":
        raise _BracketError(token.start(), f"'{token.group()[:_SHOWN]}' where a tree should begin")
    return token.start()


def _one(text: str, start: int) -> tuple[Tree | Leaf, int]:
    """Read the bracket that opens at an offset; return it and the offset after it."""
    stack: list[_Open] = []
    opened = False
    """Whether the last token was an opening bracket, so that a label may follow."""
    for token in _TOKEN.finditer(text, start):
        written, at = token.group(), token.start()
        if written == "(":
            if len(stack) == MAX_DEPTH:
                raise _BracketError(at, f"brackets nested deeper than {MAX_DEPTH}")
            stack.append(_Open(at, None, [], []))
        elif written == ")":
            done = stack.pop().closed()
            if not stack:
                return done, token.end()
            stack[-1].children.append(done)
        elif opened:
            # A label touches its bracket or not; what follows it is a word.
            stack[-1].label = written
        elif stack[-1].label is None:
            raise _BracketError(at, f"the word '{written}' has no tag")
        else:
            stack[-1].words.append(written)
        opened = written == "("
    raise _BracketError(stack[-1].at, "a bracket is never closed")


def read_all(text: str) -> Iterator[Tree | Malformed]:
    """Yield every tree of a text; in the place of a malformed one, what is wrong.

    After a malformed tree reading goes on at the next line that begins with a bracket.
    A leaf outside any constituent becomes a tree with the label TOP.
    """
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        try:
            found, at = _one(text, _begin(token))
            yield found if isinstance(found, Tree) else Tree("TOP", (found,))
        except _BracketError as bad:
            yield _malformed(text, bad)
            following = text.find("\n(", max(bad.at, token.start() + 1) - 1)
            at = len(text) if following < 0 else following + 1


def _malformed(text: str, bad: _BracketError) -> Malformed:
    begin = text.rfind("\n", 0, bad.at) + 1
    line = text[begin:].partition("\n")[0].strip()
    shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
    return Malformed(text.count("\n", 0, bad.at) + 1, bad.at - begin + 1, bad.problem, shown)


def read_trees(text: str, place: str) -> list[Tree]:
    """Return every tree of a text.

    Raises:
        InputError: one is malformed; the first few are told with line and column.
    """
    found = list(read_all(text))
    bad = [tree for tree in found if isinstance(tree, Malformed)]
    if bad:
        more = f", and {len(bad) - _TOLD} more" if len(bad) > _TOLD else ""
        raise InputError(
            f"{len(bad)} of {len(found)} trees are malformed: "
            + "; ".join(str(one) for one in bad[:_TOLD])
            + more,
            place=place,
            help="mend these lines, or leave them out",
        )
    return [tree for tree in found if isinstance(tree, Tree)]


def read_line(line: str) -> list[Tree | Leaf]:
    """Return all brackets of one line, in order; none of an empty line.

    Raises:
        ValueError: the line is malformed.
    """
    found, at = [], 0
    while (token := _TOKEN.search(line, at)) is not None:
        one, at = _one(line, _begin(token))
        found.append(one)
    return found


def pretty(tree: Tree, *, width: int = 100) -> str:
    """Write a tree over several lines, each constituent that does not fit on lines of its own."""

    def lines(part: Tree | Leaf, indent: int) -> list[str]:
        flat = " " * indent + str(part)
        if isinstance(part, Leaf) or len(flat) <= width:
            return [flat]
        inner = [line for child in part.children for line in lines(child, indent + 2)]
        inner[-1] += ")"
        return [" " * indent + f"({part.label}", *inner]

    return "\n".join(lines(tree, 0))


def plain(word: str) -> str:
    r"""Return a word as it stood in the text: brackets and slashes were escaped.

    >>> plain("-LRB-"), plain(r"1\/2")
    ('(', '1/2')
    """
    return _ESCAPED.get(word, word.replace(r"\/", "/").replace(r"\*", "*"))


def escaped(word: str) -> str:
    """Return a word as a treebank writes it: without brackets.

    >>> escaped("("), escaped("f(x)")
    ('-LRB-', 'f-LRB-x-RRB-')
    """
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
