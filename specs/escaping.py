"""Escaping of texts from files: one function for each language in which they are repeated.

A spec, a run or a checkpoint may be that of a stranger.  What is repeated of it stays text: in a
terminal, which control characters could command; in Markdown and HTML, where it could be a heading,
a picture or a script; and in a table that a spreadsheet opens, where it could be a formula.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Iterable

_UNUSUAL = re.compile(r"[^\n\t -~]")
"""Any character but line feeds, tabs and the printable ones of ASCII."""
_ANYWHERE = re.compile(r"[\\`*|$]|\](?=[(\[:])|(?<!\w)_|_(?!\w)|<(?=[\w/!?])|&(?=#?\w+;)|~(?=~)")
"""Characters that mean something in Markdown, wherever they are."""
_AT_START = re.compile(r"^(\d*)([#>+.)=-])")
"""Beginnings of a line that make it a heading, a quotation, an item or a rule."""
_FENCE = re.compile(r"`{3,}")
_FORMULA = tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""Beginnings of a cell that a spreadsheet computes; the last four are wide forms of the first."""


def printable(text: str) -> str:
    r"""Return a text without characters that command a terminal or change the order of others.

    They are written as in JSON, so that a JSON text stays one; line feeds and tabs stay.

    >>> printable("a\x1b[2Jb\x9bc")
    'a\\u001b[2Jb\\u009bc'
    """
    return _UNUSUAL.sub(lambda match: match[0] if match[0].isprintable() else _code(match[0]), text)


def _code(character: str) -> str:
    """Return a character as JSON writes it in ASCII."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def on_one_line(text: str) -> str:
    """Return a text as `printable` does, with a space for each break of lines."""
    return printable(" ".join(text.split()))


def markdown(text: str) -> str:
    r"""Return a text as Markdown that shows it, on one line; only a bare address becomes a link.

    >>> markdown("## a*b_c < 1 in <d>, ![x](y)")
    '\\## a\\*b_c < 1 in \\<d>, ![x\\](y)'
    """
    escaped = _ANYWHERE.sub(lambda match: f"\\{match[0]}", on_one_line(text))
    return _AT_START.sub(r"\1\\\2", escaped)


def markdown_code(text: str) -> str:
    r"""Return a text as Markdown that shows it as code, also in a table.

    >>> markdown_code("a`b|c")
    "`a'b\\|c`"
    """
    return f"`{on_one_line(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def markdown_block(lines: Iterable[str], language: str) -> str:
    """Return lines as a block of code, which none of them can end.

    Args:
        lines: the lines.
        language: `text`, or the language of the code.
    """
    text = printable("\n".join(lines))
    longest = max((len(match[0]) for match in _FENCE.finditer(text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def html_text(value: object) -> str:
    """Return a value as HTML that shows it, also within quotation marks.

    >>> html_text('<b class="x">')
    '&lt;b class=&quot;x&quot;&gt;'
    """
    return html.escape(printable(str(value)), quote=True)


def csv_cell(value: object) -> object:
    """Return the value of a cell of a table; a text that a spreadsheet would compute begins with '.

    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell("a")
    ("'=1+1", '-0.5', 'a')
    """
    if isinstance(value, str) and value.startswith(_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
