"""The tables of a study in LaTeX, for articles in one column or in two.

They need the package booktabs.  A table that is wider than a column spans both.  Text is escaped
for every engine; letters that only LuaLaTeX and XeLaTeX can set stay, and a comment at the top
lists them.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Sequence

from ....specs.escaping import tex, unsupported
from .conclusions import FOUND, parts_of, probability
from .procedures import extra_tables
from .record import Record, comparison_of, decimals_of, note_of, primary_table, trainings_of
from .targets import spent, title_of_target
from .text import mean_of, method, sentence

_ROWS = 40
"""Rows that fit on a page; more are divided into several tables."""
_MEASURES = 3
"""Other measurements that fit beside the names of the rows."""
_COLUMN, _LETTER, _GAP = 225.0, 3.9, 8.0
"""Width of a column of text, of a small letter, and of the gap between two cells, in points."""
_LONG = 24
"""Number of letters above which the names of rows may be broken into lines."""


_COMMAND = re.compile(r"\$\\[a-z]+\$|\\[a-z]+\{?|\\.|[$^{}]+")
"""What LaTeX sets as one letter at most."""


def latex(record: Record) -> str:
    """Return the main table, and tables of the other measurements, in LaTeX.

    Differences that were found are bold.
    """
    tables = [*_main(record), *_others(record), *_extra(record)]
    text = "\n".join(
        line
        for number, table in enumerate(tables, 1)
        for line in _table(record["study"], number, *table)
    )
    head = filter(None, ["% Needs \\usepackage{booktabs}.", unsupported(text)])
    return "\n".join([*head, text, ""])


_Table = tuple[list[list[str]], list[list[str]], str]
"""Lines of the head, lines of the body, and the caption, all of them in LaTeX."""


def _main(record: Record) -> Iterator[_Table]:
    """Yield the table of the first metric on the first test set."""
    table = primary_table(record)
    notes: dict[str, int] = {}
    columns: list[list[str]] = [["row"], ["parameters"], [table["metric"] if table else "result"]]
    columns += [["difference"], [f"{record['level']:.0%} interval"], ["p"]]
    target = record["target"]
    columns += [[f"updates to {title_of_target(target)}"]] if target else []
    bold = False
    lines = [[tex(column[0]) for column in columns]]
    for row in record["rows"]:
        name = trainings_of(row)
        line = [tex(row["name"]), f"{row['costs']['parameters']:,}"]
        if note := note_of(row, table):
            line[0] += f"$^{{{_letter(notes.setdefault(note, len(notes)))}}}$"
        line.append(tex(mean_of(table, name)))
        pair = comparison_of(record, table, name)
        significant = pair is not None and pair["verdict"] in FOUND
        bold = bold or significant
        line += _difference(pair, decimals_of(table), bold=significant)
        lines.append([*line, *([tex(spent(target, row["name"], "updates"))] if target else [])])
    shown = [index for index in range(len(columns)) if any(line[index] for line in lines[1:])]
    lines = [[line[index] for index in shown] for line in lines]
    words = [sentence(record["doc"] or record["study"])]
    if table is not None:
        examples = f", {table['examples']:,} examples" if table["examples"] else ""
        way = "" if table["higher_is_better"] else "; lower is better"
        words.append(f"Metric: {table['metric']} on {table['split']}{examples}{way}.")
    words.append(method(record))
    if bold:
        words.append(f"Bold differences from {record['baseline']} are significant.")
    caption = " ".join([*map(tex, words), *_explained(notes)])
    yield from _pages(lines[:1], lines[1:], caption)


def _difference(pair: Record | None, decimals: int, *, bold: bool) -> list[str]:
    """Return a difference, its interval and its corrected probability in LaTeX."""
    if pair is None:
        return ["", "", ""]
    text, ends = map(tex, parts_of(pair, decimals))
    p = "" if pair["adjusted"] is None else probability(pair["adjusted"])
    return [rf"\textbf{{{text}}}" if bold else text, ends, tex(p)]


def _letter(number: int) -> str:
    """Return the mark of a note: a to z, aa to zz, and so on."""
    return string.ascii_lowercase[number % 26] * (number // 26 + 1)


def _explained(notes: dict[str, int]) -> Iterator[str]:
    """Yield the notes on rows, each after its mark."""
    for note, number in notes.items():
        yield f"$^{{{_letter(number)}}}$ {tex(note)}."


def _others(record: Record) -> Iterator[_Table]:
    """Yield tables of the means of the other metrics and splits."""
    others = [table for table in record["tables"] if table is not primary_table(record)]
    for start in range(0, len(others), _MEASURES):
        some = others[start : start + _MEASURES]
        head = [
            ["", *(table["split"] for table in some)],
            ["row", *(table["metric"] for table in some)],
        ]
        body = [
            [row["name"], *(mean_of(table, trainings_of(row)) for table in some)]
            for row in record["rows"]
        ]
        words = f"Other measurements of {record['study']}. {method(record, tests=False)}"
        escaped = [[[tex(cell) for cell in line] for line in part] for part in (head, body)]
        yield from _pages(escaped[0], escaped[1], tex(words))


def _extra(record: Record) -> Iterator[_Table]:
    """Yield the tables about tuning, time to target and ladders."""
    for table in extra_tables(record):
        caption = " ".join([sentence(table.title), *table.notes])
        body = [[tex(cell) for cell in line] for line in table.lines]
        yield from _pages([[tex(cell) for cell in table.head]], body, tex(caption))


def _pages(head: list[list[str]], body: list[list[str]], caption: str) -> Iterator[_Table]:
    """Divide a table into those that fit on a page."""
    for start in range(0, len(body), _ROWS):
        yield head, body[start : start + _ROWS], caption if start == 0 else "Continued."


def _table(
    study: str, number: int, head: list[list[str]], body: list[list[str]], caption: str
) -> Iterator[str]:
    """Yield the lines of a table."""
    first, names = "l", [line[0] for line in body]
    if max(map(len, names)) > _LONG:
        first = r"p{0.22\textwidth}"
        names = [rf"\raggedright {_breakable(name)}" for name in names]
    columns = first + "r" * (len(head[0]) - 1)
    label = "".join(c if c.isascii() and c.isalnum() else "-" for c in study)
    kind = "table" if _width([*head, *body]) < _COLUMN else "table*"
    yield from (rf"\begin{{{kind}}}", r"\centering", r"\footnotesize")
    yield r"\setlength{\tabcolsep}{4pt}"
    yield from (rf"\begin{{tabular}}{{@{{}}{columns}@{{}}}}", r"\toprule")
    yield from map(_line, head)
    yield r"\midrule"
    yield from (_line([name, *line[1:]]) for name, line in zip(names, body, strict=True))
    yield from (r"\bottomrule", r"\end{tabular}", rf"\caption{{{caption}}}")
    yield rf"\label{{tab:{label}{'' if number == 1 else f'-{number}'}}}"
    yield rf"\end{{{kind}}}"


def _width(lines: Sequence[Sequence[str]]) -> float:
    """Return about the width of a table, in points."""
    letters = sum(
        max(len(_COMMAND.sub("x", cell)) for cell in column) for column in zip(*lines, strict=True)
    )
    return letters * _LETTER + (len(lines[0]) - 1) * _GAP


def _line(cells: Sequence[str]) -> str:
    """Return a line; a bracket or a star at its start would be an argument of the line before."""
    guard = "{}" if cells[0].startswith(("[", "*")) else ""
    return f"{guard}{' & '.join(cells)} \\\\"


def _breakable(name: str) -> str:
    """Return an escaped name that may be broken after its punctuation."""
    return re.sub(r"(\\_|-|[,.=/+:])(?=\w)", r"\1\\allowbreak{}", name)
