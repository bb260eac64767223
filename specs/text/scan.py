"""Scan JSON texts: replace comments and trailing commas by spaces, and measure the depth."""

from __future__ import annotations

import re

DEEPEST = 64
"""Maximum nesting depth of objects and lists."""

STRING = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_MARK = re.compile(rf"{STRING}|//[^\n\r]*|/\*|[\[\]{{}}]", re.DOTALL)
"""A string, whose brackets do not count, a comment or a bracket."""
_TRAILING = re.compile(rf'({STRING}|[^\s\[{{,:"])(\s*+),(?=\s*+[}}\]])|{STRING}', re.DOTALL)
"""The end of a value with a comma behind it that separates nothing, or another string."""
_VISIBLE = re.compile(r"[^\n\r]")


def without_comments(text: str) -> tuple[str, int, int | None]:
    """Return a text of the same length with spaces for comments and trailing commas.

    Returns:
        As `blanked`.
    """
    plain, depth, unclosed = blanked(text)
    return _TRAILING.sub(_without_comma, plain), depth, unclosed


def blanked(text: str) -> tuple[str, int, int | None]:
    """Return a text of the same length with spaces for comments.

    Returns:
        The text; the nesting depth of its objects and lists, counted no further than one above
        `DEEPEST`; and where a comment begins that does not end, if any.
    """
    pieces: list[str] = []
    done = start = depth = deepest = 0
    while mark := _MARK.search(text, start):
        found, start = mark[0], mark.end()
        if found[0] == "/":
            end = start if found != "/*" else text.find("*/", start) + 2
            if end < start:
                return text, deepest, mark.start()
            pieces += [text[done : mark.start()], _VISIBLE.sub(" ", text[mark.start() : end])]
            done = start = end
            continue
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found, 0)
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            return text, deepest, None
    return "".join([*pieces, text[done:]]), deepest, None


def has_comments(text: str) -> bool:
    """Return whether a JSON text contains a comment."""
    return any(mark[0][0] == "/" for mark in _MARK.finditer(text))


def _without_comma(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else f"{found[1]}{found[2]} "
