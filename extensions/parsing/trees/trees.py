"""Constituency trees, read and written as Penn Treebank brackets.

A file has one tree per line, or trees that span several lines.  Only ASCII white space
separates words, because treebanks contain tokens with other spaces inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ....plugin import InputError

MAX_DEPTH = 500
"""Maximum nesting depth of brackets."""
OUTER = ("", "TOP", "ROOT", "S1")
"""Labels of the root node around a tree, which do not name a constituent."""

_SHOWN = 100
"""Characters of a malformed line shown in messages."""
_REPORTED = 3
"""Malformed trees listed individually in a message."""
_TOKEN = re.compile(r"[()]|[^ \t\n\v\f\r()]+")
_OPENING = re.compile(r"\([ \t\n\v\f\r]*([^ \t\n\v\f\r()]*)")
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
    """A constituent: a label with at least one child constituent or leaf."""

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
        """Yield this constituent and all its descendants, parents before children."""
        yield self
        for child in self.children:
            if isinstance(child, Tree):
                yield from child.constituents()


@dataclass(frozen=True, slots=True)
class Malformed:
    """Malformed text in place of a tree."""

    line: int
    """From 1."""
    column: int
    """From 1, in characters."""
    problem: str
    text: str
    """The line of the problem, shortened."""

    def __str__(self) -> str:
        """Return the position and the problem.

        >>> str(Malformed(3, 7, "tag 'NN' has 2 words", "(NP (NN Xpd TTD))"))
        "line 3, column 7: tag 'NN' has 2 words"
        """
        return f"line {self.line}, column {self.column}: {self.problem}"


class _BracketError(ValueError):
    """Malformed brackets at an offset of the text."""

    def __init__(self, at: int, problem: str) -> None:
        super().__init__(problem)
        self.at, self.problem = at, problem


@dataclass(slots=True)
class _Open:
    """An open bracket."""

    at: int
    label: str | None
    children: list[Tree | Leaf]
    words: list[str]

    def closed(self) -> Tree | Leaf:
        """Return the content of the bracket as a leaf or tree."""
        label, words = self.label or "", self.words
        if not words and not self.children:
            raise _BracketError(self.at, f"bracket '({label})' is empty")
        if not words:
            return Tree(label, tuple(self.children))
        if self.children:
            raise _BracketError(self.at, f"'{label}' has both the word '{words[0]}' and brackets")
        if len(words) > 1:
            raise _BracketError(self.at, f"tag '{label}' has {len(words)} words")
        return Leaf(label, words[0])


def _begin(token: re.Match[str]) -> int:
    """Return the offset of the bracket that begins a tree."""
    if token.group() != "(":
        raise _BracketError(token.start(), f"expected a tree, found '{token.group()[:_SHOWN]}'")
    return token.start()


def _bracket(text: str, start: int, *, empty: bool = False) -> tuple[Tree | Leaf, int]:
    """Parse the bracket that opens at an offset; return it and the offset after it.

    With `empty`, `(X)` is a constituent without children, and `(X )` a leaf with an empty word.
    """
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
            bracket = stack.pop()
            if empty and not bracket.words and not bracket.children:
                label = bracket.label or ""
                done = Leaf(label, "") if text[at - 1].isspace() else Tree(label, ())
            else:
                done = bracket.closed()
            if not stack:
                return done, token.end()
            stack[-1].children.append(done)
        elif opened:
            # White space may precede a label; a token after the label is a word.
            stack[-1].label = written
        elif stack[-1].label is None:
            raise _BracketError(at, f"the word '{written}' has no tag")
        else:
            stack[-1].words.append(written)
        opened = written == "("
    raise _BracketError(stack[-1].at, "a bracket is never closed")


def read_all(text: str) -> Iterator[Tree | Malformed]:
    """Yield every tree of a text; yield a `Malformed` in place of a malformed tree.

    After a malformed tree, parsing continues at the next line that begins a tree; see `_following`.
    A leaf outside of any constituent becomes a tree with the label TOP.
    """
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        try:
            tree, at = _bracket(text, _begin(token))
            yield tree if isinstance(tree, Tree) else Tree("TOP", (tree,))
        except _BracketError as bad:
            yield _malformed(text, bad)
            at = _following(text, token.start(), bad.at)


def _following(text: str, start: int, mistake: int) -> int:
    """Return where parsing continues after a malformed tree.

    This is the next line after the mistake that begins with a bracket.  A tree that is never closed
    takes in the trees after it, up to the mistake; so it is an earlier line if that begins with the
    label of the malformed tree.

    Args:
        text: trees.
        start: offset of the malformed tree.
        mistake: offset of the mistake.
    """
    next_line = text.find("\n(", max(mistake, start + 1) - 1)
    following = len(text) if next_line < 0 else next_line + 1
    opening = _OPENING.match(text, start)
    if opening is None:
        return following
    alike = re.compile(rf"\n(?=\([ \t\r\n]*{re.escape(opening[1])}[ \t\r\n()])")
    earlier = alike.search(text, start, following)
    return following if earlier is None else earlier.end()


def _malformed(text: str, bad: _BracketError) -> Malformed:
    begin = text.rfind("\n", 0, bad.at) + 1
    line = text[begin:].partition("\n")[0].strip()
    shown = line if len(line) <= _SHOWN else line[:_SHOWN] + "..."
    return Malformed(text.count("\n", 0, bad.at) + 1, bad.at - begin + 1, bad.problem, shown)


def read_trees(text: str, location: str) -> list[Tree]:
    """Return every tree of a text.

    Raises:
        InputError: a tree is malformed; the message has line and column of the first few.
    """
    trees = list(read_all(text))
    bad = [tree for tree in trees if isinstance(tree, Malformed)]
    if bad:
        more = f", and {len(bad) - _REPORTED} more" if len(bad) > _REPORTED else ""
        raise InputError(
            f"{len(bad)} of {len(trees)} trees are malformed: "
            + "; ".join(str(tree) for tree in bad[:_REPORTED])
            + more,
            location=location,
            help="fix or remove these lines",
        )
    return [tree for tree in trees if isinstance(tree, Tree)]


def read_line(line: str) -> list[Tree | Leaf]:
    """Return all brackets of one line, in order; an empty list for an empty line.

    Brackets may be empty, as EVALB reads them: `(X)` is a constituent without children, and
    `(X )` a leaf with an empty word.

    Raises:
        ValueError: the line is malformed.
    """
    brackets, at = list[Tree | Leaf](), 0
    while (token := _TOKEN.search(line, at)) is not None:
        bracket, at = _bracket(line, _begin(token), empty=True)
        brackets.append(bracket)
    return brackets


def pretty(tree: Tree, *, width: int = 100) -> str:
    """Return a tree as text, breaking constituents that are wider than `width` into lines."""

    def lines(part: Tree | Leaf, indent: int) -> list[str]:
        flat = " " * indent + str(part)
        if isinstance(part, Leaf) or len(flat) <= width:
            return [flat]
        inner = [line for child in part.children for line in lines(child, indent + 2)]
        inner[-1] += ")"
        return [" " * indent + f"({part.label}", *inner]

    return "\n".join(lines(tree, 0))


def unescaped(word: str) -> str:
    r"""Return a word as in the original text, with brackets and slashes unescaped.

    >>> unescaped("-LRB-"), unescaped(r"1\/2")
    ('(', '1/2')
    """
    return _ESCAPED.get(word, word.replace(r"\/", "/").replace(r"\*", "*"))


def escaped(word: str) -> str:
    """Return a word as written in a treebank, with brackets escaped.

    >>> escaped("("), escaped("f(x)")
    ('-LRB-', 'f-LRB-x-RRB-')
    """
    return word.replace("(", "-LRB-").replace(")", "-RRB-")
