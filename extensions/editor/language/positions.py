"""Places in a text as a line and a column, as the Language Server Protocol counts them."""

from __future__ import annotations

import bisect
import re
from typing import Literal

Encoding = Literal["utf-8", "utf-16", "utf-32"]
"""What a column counts: bytes, UTF-16 code units, or characters."""
_LINE_END = re.compile(r"\r\n|\n|\r")


class Lines:
    """The lines of one text; lines and columns are counted from 0."""

    def __init__(self, text: str, encoding: Encoding = "utf-16") -> None:
        """Find the beginnings of the lines."""
        self.text, self.encoding = text, encoding
        self.starts = [0, *(found.end() for found in _LINE_END.finditer(text))]

    def position(self, offset: int) -> tuple[int, int]:
        """Return the line and the column of an offset in characters."""
        line = bisect.bisect_right(self.starts, offset) - 1
        return line, self._units(self.text[self.starts[line] : offset])

    def offset(self, line: int, column: int) -> int:
        """Return the offset of a line and a column; past the end of the line, that of its end."""
        if line >= len(self.starts):
            return len(self.text)
        start = self.starts[line]
        end = self.starts[line + 1] if line + 1 < len(self.starts) else len(self.text)
        piece = self.text[start:end].rstrip("\r\n")
        if self.encoding == "utf-32" or piece.isascii():
            return start + min(column, len(piece))
        done = 0
        for index, character in enumerate(piece):
            if done >= column:
                return start + index
            done += self._units(character)
        return start + len(piece)

    def _units(self, piece: str) -> int:
        if self.encoding == "utf-32" or piece.isascii():
            return len(piece)
        if self.encoding == "utf-8":
            return len(piece.encode())
        return len(piece) + sum(ord(character) > 0xFFFF for character in piece)  # noqa: PLR2004
