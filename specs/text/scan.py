"""Scan JSON texts: replace comments and trailing commas by spaces, and measure the depth."""

from __future__ import annotations

import json
import re
from itertools import accumulate

DEEPEST = 64
"""Maximum nesting depth of objects and lists."""

STRING = r'"(?:[^"\\]|\\.?)*+(?:"|\Z)'
_MARK = re.compile(rf"{STRING}|//[^\n\r]*|/\*|[\[\]{{}}]", re.DOTALL)
"""A string, whose brackets do not count, a comment or a bracket."""
_TRAILING = re.compile(rf'({STRING}|[^\s\[{{,:"])(\s*+),(?=\s*+[}}\]])|{STRING}', re.DOTALL)
"""The end of a value with a comma behind it that separates nothing, or another string."""
_DECODER = json.JSONDecoder()
_VISIBLE = re.compile(r"[^\n\r]")
_NO_BRACKETS = re.compile(rf'[^\[\]{{}}"]++|{STRING}', re.DOTALL)
"""What stands between brackets, and strings, whose brackets do not count."""
_COMMA = re.compile(r",\s*+[}\]]")
_STEPS = {"[": 1, "{": 1, "]": -1, "}": -1}
"""Bracket to the levels that it opens."""


def without_comments(text: str) -> tuple[str, int, int | None]:
    """Return a text of the same length with spaces for comments and trailing commas.

    Returns:
        As `blanked`.
    """
    plain, depth, unclosed = blanked(text)
    if not _COMMA.search(plain):
        return plain, depth, unclosed
    return _TRAILING.sub(_without_comma, plain), depth, unclosed


def blanked(text: str) -> tuple[str, int, int | None]:
    """Return a text of the same length with spaces for comments.

    Returns:
        The text; the nesting depth of its objects and lists, counted no further than one above
        `DEEPEST`; and where a comment begins that does not end, if any.
    """
    if "//" not in text and "/*" not in text:
        deepest = max(accumulate(map(_STEPS.__getitem__, _NO_BRACKETS.sub("", text))), default=0)
        return text, min(max(deepest, 0), DEEPEST + 1), None
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
        depth += _STEPS.get(found, 0)
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            return text, deepest, None
    return "".join([*pieces, text[done:]]), deepest, None


def end_of(text: str, start: int) -> int:
    """Return where a correct object or list ends, exclusive, or 0 if it is not correct JSON.

    This is much faster than reading its tokens, so most parts of a text are read only if their
    places are asked for.
    """
    try:
        return _DECODER.raw_decode(text, start)[1]
    except ValueError:
        return 0


def has_comments(text: str) -> bool:
    """Return whether a JSON text contains a comment."""
    return any(mark[0][0] == "/" for mark in _MARK.finditer(text))


def _without_comma(found: re.Match[str]) -> str:
    return found[0] if found[1] is None else f"{found[1]}{found[2]} "
