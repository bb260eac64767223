"""The Markdown of a report: its tables have a cell for each column."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from weft.extensions.study.report.text import line, rule

RENDERED = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def test_cells_stay_in_their_columns() -> None:
    """A bar or a backslash in a name does not end its cell."""
    names = ["a|b", "c\\|d", "e\\", "`f|g`", ""]
    lines = [line(["row", "x"]), rule(2), *(line([name, 1]) for name in names)]

    shown = RENDERED.render("\n".join(lines))

    cells = re.findall(r'<td>(.*)</td>\n<td style="text-align:right">(.*)</td>', shown)
    assert cells == [(name, "1") for name in names]
