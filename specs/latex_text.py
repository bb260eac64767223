"""Text in LaTeX: what LaTeX interprets is escaped, for every engine."""

from __future__ import annotations

import re
import unicodedata

_WORDS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    "|": r"\textbar{}",
    "\N{EN DASH}": "--",
    "\N{EM DASH}": "---",
    "\N{LEFT SINGLE QUOTATION MARK}": "`",
    "\N{RIGHT SINGLE QUOTATION MARK}": "'",
    "\N{LEFT DOUBLE QUOTATION MARK}": "``",
    "\N{RIGHT DOUBLE QUOTATION MARK}": "''",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    "-": "-{}",  # two of them would become a dash
    **{c: f"\\{c}" for c in "&%$#_{}"},
}
_GREEK = {
    unicodedata.lookup(f"GREEK {size} LETTER {name.replace('lambda', 'lamda')}"): (
        f"\\{name if size == 'SMALL' else name.capitalize()}"
    )
    for size, names in (
        ("SMALL", "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi"),
        ("SMALL", "rho sigma tau upsilon phi chi psi omega"),
        ("CAPITAL", "gamma delta theta lambda xi pi sigma phi psi omega"),
    )
    for name in names.split()
}
_MATH = {
    "<": "<",
    ">": ">",
    "\N{MINUS SIGN}": "-",
    "±": r"\pm",
    "×": r"\times",
    "÷": r"\div",
    "·": r"\cdot",
    "°": r"^\circ",
    "²": "^2",
    "³": "^3",
    "µ": r"\mu",
    "→": r"\to",
    "←": r"\leftarrow",
    "≤": r"\le",
    "≥": r"\ge",
    "≠": r"\ne",
    "≈": r"\approx",
    "∞": r"\infty",
    "√": r"\surd",
    "∑": r"\sum",
    "∈": r"\in",
    "•": r"\bullet",
    "ᵀ": r"^{\mathsf{T}}",
    **_GREEK,
}
_MINUS = re.compile(r"(?<![\w.-])-(?=[.\d])")
_PLAIN = re.compile(r"[\x20-\x7eÀ-ÏÑ-ÖØ-Ýßà-ïñ-öø-ýÿĀ-ăĆ-ďĒ-ėĚ-ĥĨ-ĭİ-ķĹ-ľŁ-ňŌ-ťŨ-űŴ-ž]")
"""Letters that every engine sets as they are."""


def tex(text: str) -> str:
    r"""Return a line of text with what LaTeX interprets escaped.

    A hyphen before a number is a minus, straight quotes are curved, and space of any kind is one
    space.

    >>> tex("50 % of a_b, -0.25 < x")
    '50 \\% of a\\_b, $-$0.25 $<$ x'
    """
    text = _MINUS.sub("\N{MINUS SIGN}", " ".join(text.split()))
    text = re.sub(r'(^|(?<=[\s(\[]))"', "\N{LEFT DOUBLE QUOTATION MARK}", text)
    text = text.replace('"', "\N{RIGHT DOUBLE QUOTATION MARK}")
    return "".join(map(_character, text, f"{text[1:]} "))


def _character(c: str, after: str) -> str:
    """Return a character in LaTeX, given the one that follows it."""
    if c == "-" and after != "-":
        return c
    if c in _MATH:
        return f"${_MATH[c]}$"
    return _WORDS.get(c, c)


def unsupported(text: str) -> str:
    """Return a comment that lists the letters of a text that pdfLaTeX cannot set, if there are any.

    >>> unsupported("語é")
    '% pdfLaTeX cannot set 語: use LuaLaTeX or XeLaTeX.'
    """
    letters = sorted({c for c in text if not c.isspace() and not _PLAIN.match(c)})
    return f"% pdfLaTeX cannot set {' '.join(letters)}: use LuaLaTeX or XeLaTeX." if letters else ""
