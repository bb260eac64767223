"""Format a JSON text: indentation, one space after a colon, short values on one line."""

from __future__ import annotations

import re

from .json_tree import STRING, TextValue, tree
from .reader import read_json
from .text_edits import TextEdit, smallest_edit

WIDEST = 120
"""Maximum number of characters of a line with an object or a list on it."""
_COMMENT = re.compile(rf"{STRING}|(?P<comment>//[^\n\r]*|/\*.*?\*/)", re.DOTALL)


def format_edits(text: str, path: str) -> list[TextEdit]:
    """Return the edits that format a text; none if it is formatted.

    Raises:
        SpecError: the text is not JSON.
    """
    formatted = laid_out(text, path)
    return [] if formatted == text else [smallest_edit(text, formatted)]


def laid_out(text: str, source: str = "") -> str:
    """Return a JSON text formatted for reading.

    An object or a list stays on several lines if its first entry is on a line of its own; otherwise
    it is put on one line if it fits.  Comments, numbers and the order of keys are kept, and so is
    one blank line between entries.

    Args:
        text: a JSON text, which may contain comments and trailing commas.
        source: name of its file, for the error.

    Raises:
        SpecError: the text is not JSON.
    """
    read_json(text, source)
    return _Writer(text).written()


class _Writer:
    def __init__(self, text: str) -> None:
        self.text, self.root = text, tree(text)
        matches = _COMMENT.finditer(text)
        self.comments = [match.span() for match in matches if match["comment"]]

    def written(self) -> str:
        root = self.root
        before = [self.text[a:b].rstrip() for a, b in self.comments if b <= root.start]
        after = [self.text[a:b].rstrip() for a, b in self.comments if a >= root.end]
        lines = [*before, self._value(root, "", 0, root=True), *after]
        return "\n".join(lines) + "\n"

    def _value(self, value: TextValue, indent: str, used: int, *, root: bool = False) -> str:
        """Return a value as text; `used` characters of its line stand before or after it."""
        if value.kind not in ("object", "list"):
            return self.text[value.start : value.end]
        comments = [span for span in self.comments if value.start < span[0] < value.end]
        if not value.entries and not comments:
            return "{}" if value.kind == "object" else "[]"
        short = None if comments or root or self._apart(value) else self._short(value)
        if short is not None and len(indent) + used + len(short) <= WIDEST:
            return short
        inner = f"{indent}  "
        lines = self._lines(value, inner, comments)
        start, end = ("{", "}") if value.kind == "object" else ("[", "]")
        return "\n".join([start, *lines, indent + end])

    def _apart(self, value: TextValue) -> bool:
        """Return whether the first entry, or one inside it, begins a line."""
        first = value.entries[0]
        begin = first.key[0] if first.key else first.start
        apart = "\n" in self.text[value.start : begin]
        return apart or any(self._apart(entry) for entry in value.entries if entry.entries)

    def _short(self, value: TextValue) -> str:
        """Return a value on one line."""
        if value.kind not in ("object", "list"):
            return self.text[value.start : value.end]
        pieces = [self._head(entry) + self._short(entry) for entry in value.entries]
        inside = ", ".join(pieces)
        return f"{{{inside}}}" if value.kind == "object" else f"[{inside}]"

    def _head(self, entry: TextValue) -> str:
        return f"{self.text[slice(*entry.key)]}: " if entry.key else ""

    def _lines(self, value: TextValue, indent: str, spans: list[tuple[int, int]]) -> list[str]:
        """Return the entries of an object or a list on lines of their own, with comments."""
        lines: list[str] = []
        at = value.start + 1
        for number, entry in enumerate(value.entries):
            begin = entry.key[0] if entry.key else entry.start
            comments = [span for span in spans if at <= span[0] < entry.start]
            at = self._trail(lines, comments, at)
            for start, end in comments:
                self._blank(lines, at, start)
                lines.append(indent + self.text[start:end].rstrip())
                at = end
            self._blank(lines, at, begin)
            head = self._head(entry)
            comma = "," if number + 1 < len(value.entries) else ""
            body = self._value(entry, indent, len(head) + len(comma))
            lines.append(f"{indent}{head}{body}{comma}")
            at = entry.end
        comments = [span for span in spans if span[0] >= at]
        at = self._trail(lines, comments, at)
        lines += [indent + self.text[start:end].rstrip() for start, end in comments]
        return lines

    def _trail(self, lines: list[str], comments: list[tuple[int, int]], at: int) -> int:
        """Append a comment that follows an entry on its line; return where the rest begins."""
        if lines and comments and "\n" not in self.text[at : comments[0][0]]:
            start, end = comments.pop(0)
            lines[-1] += "  " + self.text[start:end].rstrip()
            return end
        return at

    def _blank(self, lines: list[str], start: int, end: int) -> None:
        if lines and self.text[start:end].count("\n") > 1:
            lines.append("")
