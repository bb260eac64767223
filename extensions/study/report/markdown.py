"""The record of a study as Markdown, which GitHub and MkDocs show alike."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from .commands import commands
from .conclusions import conclude
from .record import Record, decimals_for
from .text import CAN, CANNOT, CONCLUSION, against, cells, failures, method, selected_of

_ANYWHERE = re.compile(r"[\\`*]|(?<!\w)_|_(?!\w)|<(?=[\w/!?])|&(?=#?\w+;)|~(?=~)|\](?=\()")
_AT_START = re.compile(r"^(\d*)([#>+.)-])(?=\s)")


def plain(text: str) -> str:
    r"""Return text with what Markdown interprets escaped.

    >>> plain("a*b_c < 1 in <d>")
    'a\\*b_c < 1 in \\<d>'
    """
    text = _ANYWHERE.sub(lambda match: f"\\{match[0]}", " ".join(text.split()))
    return _AT_START.sub(r"\1\\\2", text)


def line(parts: Sequence[object]) -> str:
    """Return a line of a table; its cells are plain text."""
    escaped = (plain(str(part)).replace("|", r"\|") for part in parts)
    return f"| {' | '.join(escaped)} |"


def rule(columns: int, words: Sequence[int] = (0,)) -> str:
    """Return the line below the head of a table.

    Args:
        columns: number of columns.
        words: places of those that have words and not numbers.
    """
    return f"| {' | '.join('---' if column in words else '---:' for column in range(columns))} |"


def markdown(record: Record, picture: str = "") -> str:
    """Return the report as Markdown.

    Args:
        record: record of the study.
        picture: name of the picture of the differences, beside the file; `""` if there is none.
    """
    return "\n".join(_markdown(record, picture)) + "\n"


def _markdown(record: Record, picture: str) -> Iterator[str]:
    yield from (f"# {record['study']}", "")
    if record["doc"]:
        yield from (plain(record["doc"]), "")
    if picture:
        title = plain(f"differences{against(record)}")
        yield from (f"![{title}]({picture})", "")
    for title, sentences in zip((CAN, CANNOT), conclude(record), strict=True):
        if sentences:
            yield from (f"## {title}", "", *(f"- {plain(sentence)}" for sentence in sentences), "")
    yield from ("## Results", "")
    head, lines = cells(record)
    yield line(head)
    yield rule(len(head), (0, head.index(CONCLUSION)))
    yield from map(line, lines)
    yield from ("", method(record), "")
    if failed := failures(record):
        yield from ("## Failures", "", *(f"- {plain(failure)}" for failure in failed), "")
    if record["selected"]:
        name = plain(record["selected"]["row"])
        yield f"The validation data selects **{name}** ({selected_of(record)})."
        yield ""
    if record["lengths"]:
        yield from _lengths(record["lengths"])
    yield from ("## Rows", "")
    for row in record["rows"]:
        doc = f"{row['doc']} {row['solved']}".strip()
        yield f"**{plain(row['name'])}**{': ' + plain(doc) if doc else ''}"
        yield from ("", "```text", *(row["changes"] or ["the baseline"]), "```", "")
    yield from ("## Commands", "", "```sh", *commands(record), "```")


def _lengths(lengths: Record) -> Iterator[str]:
    yield f"## {lengths['metric']} on {lengths['split']} by words of the reference"
    yield ""
    names = [f"{w} (n={n})" for w, n in zip(lengths["words"], lengths["examples"], strict=True)]
    yield line(["row", *names])
    yield rule(1 + len(names))
    decimals = decimals_for(itertools.chain(*lengths["rows"].values()))
    for name, values in lengths["rows"].items():
        yield line([name, *(f"{value:.{decimals}f}" for value in values)])
    yield ""
