"""What the pages of a study have in common: the template, cells of tables, and drawn rows."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from importlib.resources import files
from string import Template


def filled(title: str, doc: str, body: str) -> str:
    """Return a page that needs no network.

    Args:
        title: its title, as text.
        doc: what is below the title, as text.
        body: the rest of the page, as HTML.
    """
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    return template.substitute(title=escaped(title), doc=escaped(doc), body=body)


def escaped(value: object) -> str:
    """Return a value as HTML text."""
    return html.escape(str(value))


def cell(words: str, value: float | None = None, kind: str = "") -> str:
    """Return a cell of a table.

    Args:
        words: what it shows, as HTML.
        value: the number by which the column is sorted; None sorts it by what it shows.
        kind: its class in the style of the page.
    """
    data = "" if value is None else f' data-value="{json.dumps(value)}"'
    look = f' class="{kind}"' if kind else ""
    return f"<td{data}{look}>{words}</td>"


def head(titles: Sequence[str], words: str = "") -> str:
    """Return the head of a table, of which the first column has the names of rows.

    Args:
        titles: titles of the columns, as HTML.
        words: title of a column of text, which is aligned on the left.
    """
    cells = (f"<th scope='col'{' class=words' * (title == words)}>{title}</th>" for title in titles)
    return f"<thead><tr>{''.join(cells)}</tr></thead>"


def wide(content: str, name: str) -> str:
    """Return what scrolls where the page is narrow, also by keyboard.

    Args:
        content: HTML.
        name: what it is, for screen readers.
    """
    return f'<div class="wide" role="region" aria-label="{name}" tabindex="0">{content}</div>'


def drawn_row(
    name: str, doc: str, changes: Sequence[str], picture: str, note: str, *, opened: bool = False
) -> Iterator[str]:
    """Yield what a row changes, in words and as a picture.

    Args:
        name: name of the row.
        doc: its description.
        changes: its differences from the baseline, one line each.
        picture: the picture of the differences as SVG; `""` if there is none.
        note: the line below it; `""` if there is none.
        opened: whether it is shown before the reader clicks on it.
    """
    about = f" <span>{escaped(doc)}</span>" if doc else ""
    yield f"<details{' open' * opened}><summary>{escaped(name)}{about}</summary>"
    yield f"<pre>{escaped(chr(10).join(changes))}</pre>"
    if picture:
        yield f"<div class='picture'>{picture}</div>"
    yield f"<p class='note'>{escaped(note)}</p></details>" if note else "</details>"
