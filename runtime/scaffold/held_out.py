"""Rows of files held out for validation and tests, by the hash of their first text.

Rows with equal first texts stay together, so that no sentence is both trained on and tested.
"""

from __future__ import annotations

import csv
import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path

from ...specs.findings import InputError
from ..data.readers.delimited import DELIMITERS, table_of
from ..data.streams import ENDINGS
from ..data.text_files import read_lines

Rows = Callable[[], Iterator[tuple[str, tuple[str, ...]]]]
"""Yields the key of each row, and the line of each file that holds it."""
MOST = 1000
"""Rows that are held out at most, for each of validation and test."""
LEAST = 20
"""Rows from which some can be held out; then one in so many is."""
LONGEST = 1 << 20
"""Characters of a field of a table at most."""


def aligned_rows(files: Sequence[Path]) -> Rows:
    """Return the rows of files that are aligned line by line; the key is the first text.

    Raises:
        InputError: a file cannot be read, or files have different numbers of lines.
    """

    def rows() -> Iterator[tuple[str, tuple[str, ...]]]:
        for row in zip_longest(*map(read_lines, files)):
            if None in row:
                raise InputError(
                    "the files have different numbers of lines",
                    location=" and ".join(map(str, files)),
                    help="parallel files must align line by line",
                )
            yield row[0], row

    return rows


def table_rows(file: Path, other: str | None, field: str) -> Rows:
    """Return the rows of a table, after that with the names; the key is the text of a field.

    Args:
        file: the table.
        other: its delimiter, if that is not the usual one.
        field: name of the field.

    Raises:
        InputError: the file cannot be read.
    """

    def rows() -> Iterator[tuple[str, tuple[str, ...]]]:
        csv.field_size_limit(LONGEST)
        usual, lines = table_of(file)
        delimiter = other or usual
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        rows = filter(None, reader)
        declared = "" if delimiter in DELIMITERS else f"sep={delimiter}\n"
        try:
            yield "", (declared + _written(names := next(rows), delimiter),)
            for row in rows:
                yield row[names.index(field)], (_written(row, delimiter),)
        except (csv.Error, IndexError) as error:
            location = f"{file}:{reader.line_num}"
            problem = f"the row cannot be read: {error}"
            raise InputError(problem, location=location, help="correct the row") from error

    return rows


def _written(row: Sequence[str], delimiter: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter, lineterminator="").writerow(row)
    return text.getvalue()


def hold_out(
    rows: Rows,
    files: Sequence[Path],
    count: int,
    folder: Path,
    parts: Sequence[str],
    *,
    names: bool = False,
) -> dict[str, list[Path]]:
    """Write rows to files of a folder, such as `train.en`, `valid.en` and `test.en`.

    Args:
        rows: the rows, which are read twice.
        files: the files that they come from, one for each line of a row.
        count: number of rows, about.
        folder: a new folder.
        parts: what is held out; the other rows are `train`.
        names: whether the first row has the names of fields, which all parts get.

    Returns:
        The new files of each part.

    Raises:
        InputError: there are too few rows, or a file cannot be read.
    """
    limits = _limits(rows, files[0], count, parts)
    suffixes = list(map(_suffix, files))
    if len({*suffixes}) < len(suffixes):
        suffixes = [f".{number}{suffix}" for number, suffix in enumerate(suffixes, start=1)]
    written = {
        part: [folder / f"{part}{suffix}" for suffix in suffixes] for part in ("train", *parts)
    }
    folder.mkdir(parents=True)
    with ExitStack() as stack:
        outputs = {
            part: [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
            for part, paths in written.items()
        }
        for number, (key, row) in enumerate(rows()):
            chosen = next((part for part, limit in limits if _hash(key) <= limit), "train")
            for part in written if names and not number else (chosen,):
                for output, text in zip(outputs[part], row, strict=True):
                    output.write(f"{text}\n")
    return written


def _limits(rows: Rows, file: Path, count: int, parts: Sequence[str]) -> list[tuple[str, int]]:
    """Return the largest hash of the rows of each part that is held out.

    Raises:
        InputError: there are too few rows.
    """
    smallest: set[int] = set()
    for key, _ in rows():
        smallest.add(_hash(key))
        if len(smallest) > 8 * MOST:
            smallest = {*sorted(smallest)[: 2 * MOST]}
    if len(smallest) < LEAST:
        raise InputError(
            f"{len(smallest)} different rows are too few to hold some out",
            location=str(file),
            help="name validation files with --valid",
        )
    hashes = sorted(smallest)[: 2 * MOST]
    size = min(MOST, len(hashes) // 2, max(1, count // LEAST))
    return [(part, hashes[size * number - 1]) for number, part in enumerate(parts, start=1)]


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())


def _suffix(file: Path) -> str:
    """Return the last ending of a name that says what is in the file, such as `.en`."""
    endings = [ending for ending in file.suffixes if ending not in ENDINGS]
    return endings[-1] if endings else ".txt"
