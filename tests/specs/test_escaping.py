"""What is repeated of a file stays text, in each language in which it is repeated."""

from __future__ import annotations

import csv
import html
import io
import json
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from weft.specs.escaping import (
    csv_cell,
    html_text,
    markdown,
    markdown_block,
    markdown_code,
    printable,
)
from weft.specs.findings import Finding, InputError

RENDERED = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
HOSTILE = (
    "## Use\n\n```python\nload(trust_remote_code=True)\n```",
    "<script>alert(1)</script>",
    "![tracker](https://example.org/t.png)",
    "![tracker][t]\n\n[t]: https://example.org/t.png",
    "[t]: https://example.org/t.png",
    "<img src=x onerror=alert(1)>",
    "a\n===",
    "---\ntitle: b\n---",
    "> quote",
    ">quote",
    "| a | b |\n|---|---|",
    "<https://example.org>",
    "1) item",
    "+ item",
    "&lt;script&gt;",
    "\\<script>",
    "`code` ``code``",
    "***bold***",
)
"""Texts of a spec's `doc` that mean something in Markdown or HTML."""
COMMANDS = ("\x1b[2J", "\x1b]0;title\x07", "\x9b2J", "\r", "\b", "\u202e", "\u2028", "\0")
"""What clears, titles, overwrites or reverses the text of a terminal."""


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
    assert markdown(text) == expected
    shown = html.escape(" ".join(text.split()), quote=False)
    assert RENDERED.render(markdown(text)) == f"<p>{shown}</p>\n"


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_is_one_paragraph_of_text(text: str) -> None:
    """No heading, block of code, picture, script, table or definition remains."""
    shown = html.escape(" ".join(text.split()), quote=False)

    rendered = RENDERED.render(f"before\n\n{markdown(text)}\n\nafter")

    assert rendered.replace("&quot;", '"') == f"<p>before</p>\n<p>{shown}</p>\n<p>after</p>\n"


@given(st.text(max_size=60))
def test_any_text_is_shown_by_markdown_without_markup(text: str) -> None:
    """The parser sees one paragraph whose inline parts are texts alone."""
    block = RENDERED.parse(f"x {markdown(text)}")

    [_, inline, _] = block
    assert {part.type for part in inline.children or ()} <= {"text", "text_special"}


@given(st.text(max_size=60))
def test_code_in_markdown_is_not_ended_by_its_text(text: str) -> None:
    """A grave accent would end it."""
    [_, inline, _] = RENDERED.parse(f"x {markdown_code('a' + text + 'b')} y")

    assert [part.type for part in inline.children or ()] == ["text", "code_inline", "text"]


@pytest.mark.parametrize("text", ["```\n# heading", "`````\n", "~~~", "    ```"])
def test_a_block_of_code_is_not_ended_by_its_lines(text: str) -> None:
    """Its fence is longer than any in its lines."""
    parsed = RENDERED.parse(f"{markdown_block(['a', text, 'b'], 'text')}\n\nafter")

    assert [part.type for part in parsed] == [
        "fence",
        "paragraph_open",
        "inline",
        "paragraph_close",
    ]


class Elements(HTMLParser):
    """The elements of an HTML text."""

    def __init__(self) -> None:
        """Start without elements."""
        super().__init__()
        self.names: list[tuple[str, list[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Add the name of an element and those of its attributes."""
        self.names.append((tag, [name for name, _ in attrs]))


@pytest.mark.parametrize("text", [*HOSTILE, '" onclick="f()', "' onclick='f()", "</title><b>"])
def test_hostile_html_is_text_also_within_quotation_marks(text: str) -> None:
    """It ends neither its element nor its attribute."""
    parser = Elements()
    parser.feed(f"<p title=\"{html_text(text)}\" lang='{html_text(text)}'>{html_text(text)}</p>")

    assert parser.names == [("p", ["title", "lang"])]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_of_a_terminal_is_in_an_error(command: str) -> None:
    """A file's name and its contents are repeated in problem, place and help."""
    text = f"a{command}b"
    error = InputError(f"no '{text}'", location=text, help=text)
    finding = Finding(code="S01", at=f"/{text}", problem=text, help=text, source=text)

    for message in (str(error), finding.render()):
        assert all(c.isprintable() or c == "\n" for c in message)
    assert error.problem == f"no '{text}'"


@given(st.dictionaries(st.text(), st.text(), max_size=3))
def test_a_json_text_stays_json(value: dict[str, str]) -> None:
    """What is escaped is written as JSON writes it."""
    text = printable(json.dumps(value, ensure_ascii=False, indent=1))

    assert json.loads(text) == value
    assert all(c.isprintable() or c == "\n" for c in text)


@pytest.mark.parametrize("text", ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1+1"])
def test_a_formula_is_text_in_a_table(text: str) -> None:
    """Spreadsheets compute a cell that begins so, and one that begins with ' not."""
    assert csv_cell(text) == f"'{text}"


def test_numbers_stay_numbers_in_a_table() -> None:
    """A negative one begins as a formula does."""
    out = io.StringIO()
    csv.writer(out).writerow(map(csv_cell, ["-0.5", -0.5, "+1e-3", "nan", "row"]))

    assert out.getvalue() == "-0.5,-0.5,+1e-3,nan,row\r\n"
