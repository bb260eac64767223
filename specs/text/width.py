"""Width of text in the cells of a terminal: one for most characters, two for wide ones.

Chinese, Japanese and Korean characters and emoji are two cells wide; marks that are written over
another character, and characters that are not visible, have no width.

Source: Unicode Standard Annex 11, East Asian Width.
"""

from __future__ import annotations

import unicodedata

_JOINER, _EMOJI_STYLE = "\u200d", "\ufe0f"
_SKIN_TONES = range(0x1F3FB, 0x1F400)
_INNER_HANGUL = range(0x1160, 0x1200)
"""Vowels and final consonants, which share the cells of the consonant before them."""


def cells(text: str) -> int:
    """Return the width of a text in character cells.

    >>> cells("dog"), cells("中国"), cells("cafe\u0301"), cells("\u2764\ufe0f")
    (3, 4, 4, 2)
    """
    if text.isascii():
        return len(text)
    total = last = 0
    before = ""
    for character in text:
        if character == _EMOJI_STYLE and last == 1:
            width = last = 1  # an emoji instead of a symbol: two cells together
        elif before == _JOINER or (last and ord(character) in _SKIN_TONES):
            width = 0
        else:
            width = _cells(character)
            last = width or last
        total += width
        before = character
    return total


def _cells(character: str) -> int:
    """Return the width of a character on its own."""
    if unicodedata.category(character) in ("Mn", "Me", "Cf") or ord(character) in _INNER_HANGUL:
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1
