"""The Markdown of a report: text stays text, and tables have a cell for each column."""

from __future__ import annotations

import html
import re

import pytest
from markdown_it import MarkdownIt
from weft.extensions.study.report.text import escape_markdown, line, rule

RENDERED = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("test_2016_flickr, +1.50 [+0.50, +2.50]", "test_2016_flickr, +1.50 [+0.50, +2.50]"),
        ("p < 0.001", "p < 0.001"),
        ("<b> & &amp;", r"\<b> & \&amp;"),
        ("_all_ *of* `it`", r"\_all\_ \*of\* \`it\`"),
        ("[a](b)", r"[a\](b)"),
        ("~~gone~~", r"\~~gone\~~"),
        ("1. first", r"1\. first"),
        ("# heads", r"\# heads"),
        ("two\n\nlines", "two lines"),
    ],
)
def test_what_markdown_interprets_is_escaped(text: str, expected: str) -> None:
    """What it would show as it is stays readable in the file."""
    assert escape_markdown(text) == expected
    shown = html.escape(" ".join(text.split()), quote=False)
    assert RENDERED.render(escape_markdown(text)) == f"<p>{shown}</p>\n"


def test_cells_stay_in_their_columns() -> None:
    """A bar or a backslash in a name does not end its cell."""
    names = ["a|b", "c\\|d", "e\\", "`f|g`", ""]
    lines = [line(["row", "x"]), rule(2), *(line([name, 1]) for name in names)]

    shown = RENDERED.render("\n".join(lines))

    cells = re.findall(r'<td>(.*)</td>\n<td style="text-align:right">(.*)</td>', shown)
    assert cells == [(name, "1") for name in names]
