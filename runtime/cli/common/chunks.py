"""Answer the lines of a file: in this process as they come, or on an executor in chunks.

A chunk is named by its lines, its place, the settings and the checkpoints.  Its answers are kept
beside the output until all are there, so a command that was killed continues.
"""

from __future__ import annotations

import json
import pickle
import shutil
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

from ....specs.files import write_beside
from ....specs.findings import InputError
from ...system.executors.executor import On, opened, settings_of
from ...system.executors.units import Watch, WorkUnit, WorkUnits, results_of
from ...system.lock import locked
from . import terminal
from .answering import InputRow, counter_for, followed
from .command import wrong
from .reading import Mistakes

ROWS = 1000
"""Rows of a chunk."""
Outputs = Callable[[Iterable[InputRow], Mistakes], Iterator[str]]
"""Returns the text that is written for each row."""


@dataclass(frozen=True, slots=True)
class LineWork:
    """The settings of a command that answers line by line, which travel to workers."""

    checkpoint: str
    placement: dict[str, Any]
    source: str | None
    """File of the rows; None is standard input."""

    @abstractmethod
    def open(self) -> Outputs:
        """Open the checkpoint, and return what answers rows.

        Raises:
            InputError: the checkpoint cannot be opened, or an option does not fit it.
        """


def write_answers(
    work: LineWork,
    rows: Iterator[InputRow],
    out: str | None,
    *,
    what: str,
    on: On = "local",
    processes: int | None = None,
    progress: bool = False,
) -> int:
    """Write what answers rows, in order; return the exit code.

    Args:
        work: the settings.
        rows: the rows.
        out: file to write; None and `-` are standard output.
        what: what is counted, such as `lines translated`.
        on: the executor.
        processes: chunks that are answered at the same time; default: all rows in this process, or
            on a cluster as many as it takes.
        progress: whether the user asked for progress.

    Raises:
        InputError: the checkpoint cannot be opened, or a file cannot be read or written.
    """
    mistakes = Mistakes(what.partition(" ")[0])
    apart = works_apart(on, processes)
    if apart and out in (None, "-"):
        raise wrong("--processes", "finished parts are kept beside the output: give --out FILE")
    outputs = None if apart else work.open()
    counter = counter_for(what, work.source, out, asked=progress)

    def count(number: int) -> None:
        if counter is not None:
            counter.more(number)

    try:
        answers = (
            answered_apart(work, rows, str(out), what, count, on, processes)
            if outputs is None
            else nullcontext(outputs)
        )
        with answers as texts_of, terminal.writing(out) as file:
            for text in texts_of(rows, mistakes):
                file.write(text)
                if not apart:
                    file.flush()
                    count(1)
    finally:
        if counter is not None:
            counter.close()
    return mistakes.exit_code()


def works_apart(on: On, processes: int | None) -> bool:
    """Return whether an executor and a number of processes mean other processes than this one."""
    return settings_of(on).type != "local" or (processes or 1) > 1


@contextmanager
def answered_apart(
    work: LineWork,
    rows: Iterator[InputRow],
    out: str,
    what: str,
    count: Callable[[int], None],
    on: On,
    processes: int | None,
) -> Iterator[Outputs]:
    """Answer all rows on an executor; give what reads their answers, in order.

    Args:
        work: the settings.
        rows: the rows.
        out: file beside which finished parts are kept, until this context ends without an error.
        what: as for `write_answers`.
        count: called with the number of further rows that are answered, unless a table shows it.
        on: the executor.
        processes: as for `write_answers`.

    Raises:
        InputError: the checkpoint cannot be opened, or an option does not fit it.
        LostError: workers were lost; the other rows are answered, and kept.
    """
    folder = Path(out).resolve().with_name(f".{Path(out).name}.work")
    with locked(folder):
        try:
            with followed(what, count) as watch:
                names = _on_workers(
                    work, rows, folder, what.partition(" ")[0], watch, on, processes
                )
            yield _kept(folder, names)
        except BaseException:
            if not any(folder.glob("[0-9a-f]*")):
                shutil.rmtree(folder)
            raise
    shutil.rmtree(folder)


Chunk = tuple[str, list[InputRow]]
"""Name of the file of a chunk's answers, and its rows."""


def _on_workers(
    work: LineWork,
    rows: Iterator[InputRow],
    folder: Path,
    noun: str,
    watch: Watch,
    on: On,
    processes: int | None,
) -> list[str]:
    """Answer rows in chunks, but those that are there; return the names of the chunks in order."""
    digest = sha256(repr((work, version("weft"))).encode())
    for checkpoint in (work.checkpoint, *work.placement.get("ensemble", ())):
        for path in sorted(Path(checkpoint).rglob("*")):
            if path.is_file():
                stat = path.stat()
                digest.update(f"{path.name} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    settings, names = pickle.dumps((work, digest.digest())), list[str]()
    units = WorkUnits[Chunk]()

    def next_chunk() -> WorkUnit[Chunk] | None:
        while chunk := list(islice(rows, ROWS)):
            content = digest.copy()
            content.update(
                pickle.dumps([(row.number, getattr(row.read, "args", row.text)) for row in chunk])
            )
            names.append(content.hexdigest()[:32])
            if not (folder / names[-1]).is_file():
                title = f"{noun} {chunk[0].number:,}-{chunk[-1].number:,}"
                item = names[-1], chunk
                return WorkUnit(len(names), title, len(chunk), chunk[0].location, item)
            units.count(len(chunk))
        return None

    with opened(on, processes) as engine:
        results = results_of(
            next_chunk,
            lambda chunk: (answer_chunk, settings, chunk[1]),
            engine,
            folder,
            units=units,
            watch=watch,
        )
        for unit, answers in results:
            write_beside(folder / unit.item[0], json.dumps(answers).encode(), "file")
    return names


def _kept(folder: Path, names: Sequence[str]) -> Outputs:
    """Return what reads the answers of chunks, and tells what was wrong with their rows."""

    def outputs(rows: Iterable[InputRow], mistakes: Mistakes) -> Iterator[str]:
        del rows
        for name in names:
            chunk = json.loads((folder / name).read_bytes())
            for where, problem in chunk["warnings"]:
                mistakes.warn(where, problem)
            for number, problem, location, way_out in chunk["mistakes"]:
                mistakes.add(number, InputError(problem, location=location, help=way_out))
            yield chunk["text"]

    return outputs


def answer_chunk(settings: bytes, rows: Sequence[InputRow]) -> dict[str, Any]:
    """Answer rows in a worker, and return the text and what is wrong as JSON data.

    Args:
        settings: the pickled settings, with a digest of all that the answers depend on.
        rows: the rows.

    Raises:
        InputError: the checkpoint cannot be opened, or an option does not fit it.
    """
    collected = _Collected()
    text = "".join(_opened(settings)(rows, collected))
    return {"text": text, "warnings": collected.warnings, "mistakes": collected.errors}


@lru_cache(maxsize=1)
def _opened(settings: bytes) -> Outputs:
    """Return what answers rows, whose model is opened once in each process."""
    work, _ = pickle.loads(settings)
    outputs: Outputs = work.open()
    return outputs


class _Collected(Mistakes):
    """Warnings and mistakes of rows that another process tells."""

    def __init__(self) -> None:
        """Begin without any."""
        super().__init__()
        self.warnings: list[tuple[int | str, str]] = []
        self.errors: list[tuple[int, str, str, str]] = []

    def warn(self, where: int | str, problem: str) -> None:
        """Note a warning."""
        self.warnings.append((where, problem))

    def tell(self, number: int, error: InputError) -> None:
        """Note what is wrong with a row."""
        self.errors.append((number, error.problem, error.location, error.help))
