"""Mutate many small data files, and read each: the right rows, or an error that names the file.

    python tests/fuzz/fuzz_readers.py --files 20000 --processes 2 --seed 1

A file has rows of words, numbers and odd characters, written by Python's own modules, in one of
several formats, encodings, compressions and line ends; most are then damaged.  Each is read by its
reader and, as rows to predict, line by line.  A file is wrong if

- another exception than InputError is raised, or its place does not name the file,
- it was not damaged, and is refused or has other rows than were written,
- it was damaged, and what is read differs from what Python's csv, json and codecs modules read,
- it has a mistake by which rows or values would be lost, of which these modules do not all tell,
  such as bytes after a compressed stream or a name that occurs twice, and is read,
- rows that are answered and rows that are refused are not all of its rows, or
- reading takes longer than `--seconds` of CPU time.

Wrong files go to `--out`, and the exit code is 1.  The same seed gives the same files, whatever the
number of processes.
"""

from __future__ import annotations

import bz2
import codecs
import csv
import gzip
import io
import json
import lzma
import random
import re
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import numpy as np
from weft.runtime.cli.predicting import _rows
from weft.runtime.data.columns.values import class_of, number_of, text_of
from weft.runtime.data.readers.split import Split, reader_of
from weft.runtime.data.text_files import count_lines, read_lines
from weft.specs.findings import InputError

WORDS = (
    *(
        "the",
        "Hund",
        "grün",
        "你好",
        "привет",
        "\U0001f600",
        "a,b",
        "a;b",
        'say "x"',
        "x\ty",
        "-LRB-",
    ),
    *("1.5", "3", "0", "\u0085", "\u2028", "\u00a0", "\ufeffx", "'", "\\n", "|", "#", "null", "é"),
)
"""Parts of texts."""
INSERTED = (
    *(b"\0", b"\r", b"\n", b"\r\n", b'"', b",", b"\t", b"{", b"}", b"(", b")", b"\xff", b"\xfc"),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"\\",
        b"\\ud800",
        b"NaN",
        b"1e999",
        b"\n\n",
        b" ",
        b"\x1f\x8b",
    ),
    *(b'"text": 1, ', b"\xed\xa0\x80", b"\x1a", b"[" * 3000, b"9" * 5000),
)
"""Bytes that are likely to be read wrongly."""
COMPRESSIONS: dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "": (lambda raw: raw, lambda raw: raw),
    ".gz": (lambda raw: gzip.compress(raw, 1), gzip.decompress),
    ".bz2": (lambda raw: bz2.compress(raw, 1), bz2.decompress),
    ".xz": (lambda raw: lzma.compress(raw, preset=0), lzma.decompress),
}
"""How to compress and decompress, by ending."""
MARKS = {
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-8": codecs.BOM_UTF8,
}
"""Byte order marks, longest first."""
FIELDS = ("text", "label")
Row = tuple[Any, ...]


@dataclass(frozen=True)
class File:
    """A file, and how it is read."""

    kind: str
    """Key of `FORMATS`."""
    name: str
    content: bytes
    rows: list[Row] | None
    """The rows that were written; None if it was damaged afterwards."""
    mistake: str = ""
    """A mistake for which it must be refused; empty if there is none, or damage at random."""


@dataclass(frozen=True)
class Format:
    """A format of files."""

    write: Callable[[list[Row], str], str]
    """From rows and the line end to a text."""
    read: Callable[[str], list[Row]]
    """From a text to its rows, independently of Weft."""
    split: Callable[[str], dict[str, Any]]
    """From the name of a file to the split of a run."""
    fields: tuple[str, ...] = FIELDS


def _text(rng: random.Random) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(0, 4)))


def _written_csv(delimiter: str) -> Callable[[list[Row], str], str]:
    def write(rows: list[Row], end: str) -> str:
        out = io.StringIO(newline="")
        writer = csv.writer(out, delimiter=delimiter, lineterminator=end)
        writer.writerows([FIELDS, *rows])
        return out.getvalue()

    return write


def _read_csv(delimiter: str) -> Callable[[str], list[Row]]:
    def read(text: str) -> list[Row]:
        csv.field_size_limit(sys.maxsize)
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
        names, *others = [row for row in rows if row]
        if any(len(row) != len(names) for row in others):
            msg = "rows of different lengths"
            raise ValueError(msg)
        return [tuple(row[names.index(field)] for field in FIELDS) for row in others]

    return read


def _lines_of(text: str) -> list[str]:
    """Return the lines of a text: line feeds end them, and one carriage return before each."""
    lines = text.split("\n")
    ended = [line.removesuffix("\r") for line in lines[:-1]]
    return ended if lines[-1] == "" else [*ended, lines[-1]]


def _read_json(text: str) -> list[Row]:
    found = []
    for line in _lines_of(text):
        if line.strip():
            value = json.loads(line)
            found.append(tuple(value[field] for field in FIELDS))
    return found


def _written_trees(rows: list[Row], end: str) -> str:
    return "".join(f"(TOP (XX {_word(text)}) (YY {_word(label)})){end}" for text, label in rows)


def _word(value: object) -> str:
    return re.sub(r"[\s()]", "_", str(value), flags=re.ASCII) or "_"


def _read_trees(text: str) -> list[Row]:
    found = re.findall(r"\(\s*([^\s()]*)\s+([^\s()]+)\s*\)", text, flags=re.ASCII)
    return [tuple(leaf) for leaf in found]


FORMATS = {
    "csv": Format(_written_csv(","), _read_csv(","), lambda name: {"csv": {"files": [name]}}),
    "tsv": Format(_written_csv("\t"), _read_csv("\t"), lambda name: {"csv": {"files": [name]}}),
    "jsonl": Format(
        lambda rows, end: "".join(
            json.dumps(dict(zip(FIELDS, row, strict=True)), ensure_ascii=len(row[0]) % 2 == 0) + end
            for row in rows
        ),
        _read_json,
        lambda name: {"jsonl": {"files": [name]}},
    ),
    "lines": Format(
        lambda rows, end: "".join(f"{text}{end}" for text, _ in rows),
        lambda text: [(line,) for line in _lines_of(text)],
        lambda name: {"lines": {"text": [name]}},
        ("text",),
    ),
    "trees": Format(
        _written_trees,
        _read_trees,
        lambda name: {"trees": {"files": [name], "clean": False}},
        ("tree",),
    ),
}
"""Formats of text files by name."""


def made(rng: random.Random) -> File:
    """Return a file, usually damaged."""
    kind = rng.choice([*FORMATS, "arrays"])
    if kind == "arrays":
        return _arrays(rng)
    label: Callable[[], Any] = lambda: rng.choice(("a", "b", "c 1"))  # noqa: E731 - short
    if kind == "jsonl":
        label = lambda: rng.choice(("a", 3, True, 0.5, None, ["x"], 10**30))  # noqa: E731 - short
    rows: list[Row] = [(_text(rng), label()) for _ in range(rng.randint(1, 6))]
    if kind == "lines":
        rows = [(text.lstrip("\ufeff") or "x", label) for text, label in rows]
    if rng.random() < 0.1:
        return _mistaken(kind, rows, rng)
    text = FORMATS[kind].write(rows, rng.choice(("\n", "\r\n")))
    if rng.random() < 0.2 and kind != "trees":
        text = text.removesuffix("\n").removesuffix("\r")
    encoding = rng.choice(["", "", "", *MARKS])
    content = MARKS.get(encoding, b"") + text.encode(encoding or "utf-8")
    ending = rng.choice(["", "", *COMPRESSIONS])
    damaged = rng.random() < 0.8
    inside = rng.random() < 0.7
    if damaged and inside:
        content = _damaged(content, rng)
    content = COMPRESSIONS[ending][0](content)
    if damaged and not inside:
        content = _damaged(content, rng)
    name = f"file.{kind}{ending}"
    return File(kind, name, content, None if damaged else _kept(kind, rows))


def _mistaken(kind: str, rows: list[Row], rng: random.Random) -> File:
    """Return a file that must be refused."""
    rows = [(f"grün {rows[0][0]}", "a"), *rows]
    text = FORMATS[kind].write(rows, "\n")
    content, ending = text.encode(), rng.choice([*COMPRESSIONS][1:])
    packed = COMPRESSIONS[ending][0](content)
    at = rng.randrange(1, len(content))
    mistakes = {
        "text after a compressed stream": (packed + content, ending),
        "a compressed stream that is cut off": (packed[: -rng.randint(1, 8)], ending),
        "a byte 0": (content[:at] + b"\0" + content[at:], ""),
        "another encoding": (text.encode(rng.choice(("utf-16-le", "utf-16-be", "utf-32-be"))), ""),
        "Latin-1": ("grün\n".encode("latin-1") + content, ""),
        "carriage returns alone": (text.replace("\n", "\r").encode(), ""),
        "an archive": (b"PK\x03\x04" + content, ""),
    }
    if kind in ("csv", "tsv"):
        mistakes["a name that occurs twice"] = (content.replace(b"label", b"text", 1), "")
        mistakes["a row that is too long"] = (content + content.splitlines()[0] * 2, "")
    if kind == "jsonl":
        mistakes["a key that occurs twice"] = (content.replace(b"{", b'{"text": 1, ', 1), "")
        mistakes["a missing key"] = (content.replace(b'"label"', b'"lable"', 1), "")
    if kind == "trees":
        mistakes["a bracket that is never closed"] = (b"(TOP " + content, "")
    mistake = rng.choice([*mistakes])
    content, ending = mistakes[mistake]
    return File(kind, f"file.{kind}{ending}", content, None, mistake)


def _kept(kind: str, rows: list[Row]) -> list[Row]:
    """Return the rows as they are read."""
    if kind == "lines":
        return [(text,) for text, _ in rows]
    if kind == "trees":
        leaves = [(("XX", _word(text)), ("YY", _word(label))) for text, label in rows]
        return [leaf for pair in leaves for leaf in pair]
    return rows


def _arrays(rng: random.Random) -> File:
    """Return an `.npz` file."""
    out, count = io.BytesIO(), rng.randint(1, 4)
    values = {"text": np.array([_text(rng) for _ in range(count)]), "label": np.arange(count)}
    save: Any = rng.choice((np.savez, np.savez_compressed))
    save(out, **values)
    damaged = rng.random() < 0.8
    content = _damaged(out.getvalue(), rng) if damaged else out.getvalue()
    rows = [(str(text), number) for number, text in enumerate(values["text"])]
    return File("arrays", "file.npz", content, None if damaged else rows)


def _damaged(content: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few parts removed, doubled, replaced or inserted."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(content) + 1)
        until = min(len(content), at + rng.choice((0, 0, 1, 1, 2, 20)))
        piece = rng.choice((b"", content[at:until] * 2, bytes([rng.randrange(256)]), None, None))
        content = (
            content[:at] + (rng.choice(INSERTED) if piece is None else piece) + content[until:]
        )
    return content[: rng.randrange(len(content) + 1)] if rng.random() < 0.1 else content


def expected(file: File) -> list[Row] | None:
    """Return the rows that Python's own modules read in a text file; None if they refuse it."""
    try:
        raw = next(
            unpack(file.content)
            for start, (_, unpack) in _STARTS.items()
            if file.content.startswith(start)
        )
        encoding = next((name for name, mark in MARKS.items() if raw.startswith(mark)), None)
        text = raw.removeprefix(MARKS.get(encoding or "", b"")).decode(encoding or "utf-8")
        return FORMATS[file.kind].read(text)
    except (EOFError, KeyError, OSError, RecursionError, TypeError, ValueError):
        return None
    except (csv.Error, lzma.LZMAError, ArithmeticError):
        return None
    except Exception as error:
        if type(error).__module__ == "zlib":
            return None
        raise


_STARTS = {
    b"\x1f\x8b": COMPRESSIONS[".gz"],
    b"BZh": COMPRESSIONS[".bz2"],
    b"\xfd7zXZ\x00": COMPRESSIONS[".xz"],
    b"": COMPRESSIONS[""],
}
"""Compressions by the first bytes."""


def read(file: File, folder: Path) -> tuple[list[Row] | None, str]:
    """Return the rows of a file, or None and why it is refused.

    Raises:
        AssertionError: the error does not name the file.
    """
    fields: tuple[str, ...] = FIELDS
    split: dict[str, Any] = {"images": {"arrays": [file.name]}}
    if file.kind != "arrays":
        split, fields = FORMATS[file.kind].split(file.name), FORMATS[file.kind].fields
    reader = reader_of(Split.model_validate(split), str(folder))
    found: list[Row] = []
    refused: InputError | None = None
    try:
        for record in reader.records(0, fields):
            assert file.name in record.location
            values = tuple(record.values[field] for field in fields)
            if file.kind == "trees":
                found += [(leaf.tag, leaf.word) for leaf in values[0].leaves()]
            else:
                found.append(values)
                _check_values(values)
    except InputError as error:
        refused = error
    if refused is None:
        return found, ""
    assert file.name in str(refused.location), f"{refused} does not name the file"
    return None, refused.problem


def _check_values(values: Row) -> None:
    """Convert the values of a row as columns do, and compare with Python's conversions.

    Raises:
        AssertionError: a value was changed.
    """
    for value in values:
        for convert, same in (
            (text_of, lambda one: one),
            (class_of, lambda one: str(one).strip()),
            (number_of, float),
        ):
            try:
                found = convert(value, "x")
            except InputError:
                continue
            assert found == same(value), f"{convert.__name__} made {found!r} of {value!r}"


def _check_lines(path: Path) -> None:
    """Check that lines are counted as they are read.

    Raises:
        AssertionError: they are not.
    """
    try:
        lines = list(read_lines(path))
    except InputError:
        return
    assert count_lines(path) == len(lines)


def _check_answered(file: File, path: Path) -> Counter[str]:
    """Read a file of JSON lines as rows to predict; return how many are right and wrong.

    Raises:
        AssertionError: a row was lost or changed.
    """
    counts = Counter[str]()
    try:
        for row in _rows(str(path)):
            number = row.location.removeprefix(f"{path}:")
            assert number.isdigit(), row.location
            counts["rows"] += 1
            try:
                assert json.dumps(row.read()) == json.dumps(json.loads(row.text))
            except InputError:
                counts["rows refused"] += 1
    except InputError:  # the file cannot be read further
        return counts
    if file.rows is not None:
        assert counts["rows"] == len(file.rows)
        assert not counts["rows refused"]
    return counts


def check(file: File, folder: Path) -> Counter[str]:
    """Read a file and return what was found.

    Raises:
        AssertionError: it was read wrongly.
    """
    path = folder / file.name
    path.write_bytes(file.content)
    counts = Counter[str]()
    try:
        found, problem = read(file, folder)
        if file.rows is not None:
            assert found is not None, f"refused: {problem}"
            assert repr(found) == repr(file.rows), f"{found!r} were {file.rows!r}"
        elif file.mistake:
            assert found is None, f"{file.mistake}, but it is read: {found!r}"
        elif found is not None and file.kind != "arrays":
            right = expected(file)
            assert repr(found) == repr(right), f"{found!r}, but Python reads {right!r}"
        _check_lines(path)
        if file.kind == "jsonl":
            counts += _check_answered(file, path)
    finally:
        path.unlink()
    counts[f"{file.kind} {'refused' if found is None else 'read'}"] += 1
    counts["mistakes refused"] += bool(file.mistake)
    return counts


def checked(task: tuple[int, int, float]) -> tuple[Counter[str], float, list[tuple[File, str]]]:
    """Read one chunk of files.

    Args:
        task: the seed, the number of the chunk, and the permitted CPU time of a file.

    Returns:
        Counts, the seconds of the slowest file, and each file that is wrong with the reason.
    """
    seed, chunk, permitted = task
    rng = random.Random(f"{seed} {chunk}")
    counts, slowest, failures = Counter[str](), 0.0, list[tuple[File, str]]()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(harness.CHUNK):
            file = made(rng)
            try:
                seconds = permitted
                for _ in range(3):  # a busy machine rarely slows all three
                    start = time.process_time()
                    found = check(file, Path(folder))
                    seconds = min(seconds, time.process_time() - start)
                    if seconds < permitted:
                        break
                else:
                    failures.append((file, f"took {seconds:.2f} s"))
                slowest = max(slowest, seconds)
                counts += found
            except Exception:  # noqa: BLE001 - any other exception is what this looks for
                failures.append((file, traceback.format_exc()))
    return counts, slowest, failures


def main() -> int:
    """Read the files, and return the exit code."""
    return harness.run(
        __doc__,
        check=checked,
        write=written,
        counted="counts",
        files=20_000,
        out="outputs/fuzz/readers",
    )


def written(out: Path, number: int, failure: tuple[Any, str]) -> None:
    """Write a wrong file, and why it is wrong beside it."""
    file, why = failure
    folder = out / str(number)
    folder.mkdir(exist_ok=True)
    (folder / file.name).write_bytes(file.content)
    (folder / "why.txt").write_text(why, encoding="utf-8", errors="replace")


if __name__ == "__main__":
    sys.exit(main())
