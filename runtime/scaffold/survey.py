"""A look at the first rows of data files: how many rows and texts there are, and how long.

The work is bounded: of each file, at most `BYTES` are read, whatever its size.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...specs.findings import InputError
from ..data.readers.split import Split, reader_of
from ..data.streams import ENDINGS
from ..data.text_files import head

BYTES = 1 << 22
"""Bytes of the content of each file that are read."""
RATIO = 3
"""Bytes of a text for each byte of its compressed file, about."""


@dataclass(slots=True)
class FieldSurvey:
    """The values of a field in the rows that were read."""

    characters: int = 0
    texts: set[str] = field(default_factory=set)
    """Distinct texts."""
    words: set[str] = field(default_factory=set)
    """Distinct words."""
    letters: set[str] = field(default_factory=set)
    """Distinct characters."""

    def add(self, text: str) -> None:
        """Count one value."""
        self.characters += len(text)
        self.texts.add(text)
        self.words.update(text.split())
        self.letters.update(text)


@dataclass(slots=True)
class Survey:
    """What the first rows of some files contain."""

    fields: dict[str, FieldSurvey]
    rows: int
    """Rows that were read."""
    factor: float
    """All rows as a multiple of those that were read, about; 1 if all were."""

    @property
    def all_rows(self) -> int:
        """Number of rows, about if not all were read."""
        return round(self.rows * self.factor)

    def characters(self, name: str) -> float:
        """Return the characters of all values of a field, about if not all were read."""
        return self.fields[name].characters * self.factor


def survey(
    split: Callable[[list[str]], dict[str, Any]],
    files: Sequence[Path],
    fields: Sequence[str] | None = None,
) -> Survey:
    """Look at the first rows of some files.

    Args:
        split: returns the reader of files by their names, as in a run, such as
            `{"csv": {"files": ["train.csv"]}}`.
        files: the files.
        fields: the fields that are needed; None for those of the first row.

    Raises:
        InputError: a file cannot be read, has no such field, or has no rows.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths, complete = _heads(files, Path(folder))
        names = {str(path): str(file) for path, file in zip(paths, files, strict=True)}
        result = Survey({}, 0, 1.0 if complete else _factor(files, paths))
        try:
            _read(result, split([str(path.relative_to(folder)) for path in paths]), folder, fields)
        except InputError as error:
            if complete or not result.rows:  # otherwise it may be the end of the part that was read
                location = error.location
                for path, name in names.items():
                    location = location.replace(path, name)
                raise InputError(error.problem, location=location, help=error.help) from error
    if not result.rows:
        raise InputError("the file has no rows", location=str(files[0]), help="name other files")
    return result


def _read(result: Survey, split: dict[str, Any], folder: str, fields: Sequence[str] | None) -> None:
    """Count the rows of a split, and the values of their fields."""
    reader = reader_of(Split.model_validate(split), folder)
    for part in range(reader.parts()):
        for record in reader.records(part, fields or ()):
            result.rows += 1
            for name in record.values if fields is None else fields:
                value = record.values.get(name)
                result.fields.setdefault(str(name), FieldSurvey()).add(
                    "" if value is None else str(value)
                )


def _heads(files: Sequence[Path], folder: Path) -> tuple[list[Path], bool]:
    """Copy the first lines of files into a folder; return the copies, and whether they are all.

    If one of them is cut, all have as many lines, so that aligned files stay aligned.
    """
    contents, complete = [], True
    for file in files:
        content, has_all = head(file, BYTES)
        contents.append(content)
        complete = complete and has_all
    if not complete:
        lines = min(content.count(b"\n") for content in contents)
        contents = [b"\n".join([*content.split(b"\n")[:lines], b""]) for content in contents]
    paths = []
    for number, (file, content) in enumerate(zip(files, contents, strict=True)):
        name = file.name
        for ending in ENDINGS:
            name = name.removesuffix(ending)
        path = folder.resolve() / str(number) / name
        path.parent.mkdir()
        path.write_bytes(content)
        paths.append(path)
    return paths, complete


def _factor(files: Sequence[Path], heads: Sequence[Path]) -> float:
    """Return the size of files as a multiple of that of their first lines, about."""
    size = sum(
        file.stat().st_size * (RATIO if file.name.endswith(ENDINGS) else 1) for file in files
    )
    return max(1.0, size / max(1, sum(path.stat().st_size for path in heads)))
