"""What commands read and print: lines of text, tables, notices, warnings, errors and progress."""

from __future__ import annotations

import errno
import io
import logging
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any, TextIO, cast

from ....specs.escaping import printable
from ....specs.files import FULL, replaceable
from ....specs.findings import Finding, InputError, SpecError
from ...metrics.digits import duration, significant
from ...system.detail import Detail

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, TaskID
    from rich.table import Table

    from ...system.executors.units import WorkUnit, WorkUnits
    from ...train.context import Progress as Seen

LINES = 40
"""Number of plain progress lines in a complete run."""
QUIET = 30.0
"""Seconds between plain lines while data is being prepared."""
_STYLES = (
    ("error", "bold red"),
    ("warning", "bold yellow"),
    ("  -->", "blue"),
    ("  help:", "green"),
)
"""Beginning of a line of an error to its style on a terminal."""


@dataclass(slots=True)
class _Wishes:
    """What the user asked for with `--quiet` and `--verbose`."""

    quiet: bool = False
    verbose: bool = False


_WISHES = _Wishes()


class Stream:
    """A stream on which a command prints texts, also those of files of strangers.

    Control characters are escaped: they would command the terminal.  What is data and no text, such
    as translations, is written to its `buffer` instead.
    """

    def __init__(self, stream: IO[str], *, escapes: bool = True, fails: bool = True) -> None:
        """Print on another stream.

        Args:
            stream: the other stream.
            escapes: whether control characters are escaped.
            fails: whether an error of the system, such as that of a full disk, is raised; otherwise
                nothing is written from then on, so that a training continues without its log.
        """
        self.stream: IO[str] = stream.stream if isinstance(stream, Stream) else stream
        self.escapes, self.fails = escapes, fails

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the other stream."""
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self._try(lambda: self.stream.write(printable(text) if self.escapes else text))
        return len(text)

    def flush(self) -> None:
        """Write what is buffered."""
        self._try(self.stream.flush)

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except (OSError, ValueError):  # ValueError: the stream is closed
            if self.fails:
                raise
            discard(self.stream)


def standard_output_is_a_log() -> None:
    """From now on, until the command ends, nothing is lost if it cannot be written to stdout."""
    if isinstance(sys.stdout, Stream):
        sys.stdout.fails = False


@contextmanager
def configured(*, quiet: bool, verbose: bool) -> Iterator[None]:
    """Set how much one command prints on stderr."""
    before = _WISHES.quiet, _WISHES.verbose
    _WISHES.quiet, _WISHES.verbose = quiet, verbose
    try:
        with (
            redirect_stdout(cast("TextIO", Stream(sys.stdout))),
            redirect_stderr(cast("TextIO", Stream(sys.stderr, fails=False))),
            logged(logging.INFO) if verbose else nullcontext(),
        ):
            yield
    finally:
        _WISHES.quiet, _WISHES.verbose = before


@contextmanager
def logged(level: int) -> Iterator[None]:
    """Print log messages of a level and above on stderr, until the context ends."""
    root = logging.getLogger()
    before, handler = root.level, logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(level)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(before)


def console(stream: TextIO | None = None) -> Console:
    """Return a console on stderr, or on another stream; colors only on a terminal."""
    from rich.console import Console

    file = Stream(stream or sys.stderr, escapes=False, fails=False)
    return Console(file=cast("IO[str]", file), highlight=False, soft_wrap=True)


def discard(stream: IO[str]) -> None:
    """Send what is written to a stream from now on to nowhere, also when Python flushes it."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


_FULL = (*FULL, errno.EFBIG)
"""Errors of a full disk, of a quota, and of a limit on the size of files."""


def report_full_disk_once() -> None:
    """Print no traceback of a thread that ends because the disk is full, from now on.

    The thread of TensorBoard raises its error a second time in the main thread, or ends after it.
    """
    before = threading.excepthook
    if getattr(before, "skips_full_disk", False):
        return

    def hook(ended: threading.ExceptHookArgs) -> None:
        error = ended.exc_value
        if not (isinstance(error, OSError) and error.errno in _FULL):
            before(ended)

    hook.skips_full_disk = True  # type: ignore[attr-defined]
    threading.excepthook = hook


def _say(text: str) -> None:
    """Write to stderr; if its reader has gone, as in `2>&1 | head`, write nothing."""
    print(text, file=Stream(sys.stderr, fails=False), flush=True)


def notice(text: str) -> None:
    """Print a line on stderr, unless the user asked for quiet."""
    if not _WISHES.quiet:
        _say(text)


def warn(line: int | str, problem: str, what: str = "line") -> None:
    """Print a warning about one line of the input, also if the user asked for quiet.

    Args:
        line: its number, or its place.
        problem: what is wrong.
        what: what is numbered.
    """
    _say(f"warning: {line if isinstance(line, str) else f'{what} {line}'}: {problem}")


def shows_progress() -> bool:
    """Return whether stderr is a terminal and the user did not ask for quiet."""
    return sys.stderr.isatty() and not _WISHES.quiet


def show_error(error: InputError, name: str = "") -> None:
    """Print an error on stderr; with `--verbose`, also the place in the code where it arose.

    Args:
        error: the error.
        name: the spec or run that was checked, if there may be several.
    """
    if _WISHES.verbose:
        traceback.print_exception(error)
    text = str(error)
    if isinstance(error, SpecError):
        count = len(error.findings)
        text += f"\n\n{f'{name}: ' * bool(name)}{count} mistake{'s' * (count != 1)} found"
    else:
        text = f"error: {text}"
    _print_styled(text)


def _print_styled(text: str) -> None:
    """Print lines of findings on stderr, each in the style of its kind."""
    from rich.text import Text

    out = console()
    for line in printable(text).split("\n"):
        style = next((style for start, style in _STYLES if line.startswith(start)), "")
        out.print(Text(line, style=style))


def show_warnings(warnings: Iterable[Finding]) -> None:
    """Print warnings on stderr, unless `--quiet`."""
    if not _WISHES.quiet:
        for finding in warnings:
            _print_styled(f"{finding.render()}\n")


def columns(rows: Sequence[Sequence[str]], words: int) -> list[str]:
    """Return aligned lines with a rule below the header; columns from `words` on align right."""
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width[at]) if at < words else cell.rjust(width[at])
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    return [lines[0], "-" * max(map(len, lines)), *lines[1:]]


@contextmanager
def writing(path: str | None) -> Iterator[TextIO]:
    """Open a file or standard output for text lines.

    A regular file is written as `PATH.partial` and renamed when it is complete.  After an error or
    an interruption, the finished lines stay in the partial file.  A link is followed, and a device
    or a pipe is written to, not replaced.

    Args:
        path: a file; None and `-` are standard output.

    Raises:
        InputError: the file cannot be written.
    """
    if path in (None, "-"):
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
        try:
            yield out
            out.flush()
        finally:
            out.detach()
        return
    final = replaceable(Path(str(path)))
    if final is None:
        with Path(str(path)).open("w", encoding="utf-8", newline="\n") as file:
            yield file
        return
    partial = final.with_name(f"{final.name}.partial")
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
    except BaseException:
        if partial.exists():
            if partial.stat().st_size:
                notice(f"finished lines are in {partial}")
            else:
                partial.unlink()
        raise
    partial.replace(final)


class Reporter:
    """Show the progress of data preparation and training."""

    def __init__(self, out: Console | None = None) -> None:
        """Report to `out`, by default stderr, so that stdout stays clean."""
        self.console = out or console()
        self.console.quiet = _WISHES.quiet
        self._bar: Progress | None = None
        self._units: WorkUnits[Any] | None = None
        self._tasks: dict[str, TaskID] = {}
        self._shown = 0
        self._began: dict[str, tuple[float, int]] = {}
        self._logged = 0.0

    @contextmanager
    def shown(self) -> Iterator[Reporter]:
        """Show bars inside this context if the console is a terminal."""
        if not self.console.is_terminal:
            yield self
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        class Bars(Progress):
            """The bars, below a table of the units that are not done."""

            def get_renderables(bars) -> Iterator[RenderableType]:  # noqa: N805 - `self` reports
                """Yield what is drawn."""
                if self._units is not None:
                    yield unit_table(self._units)
                yield from super().get_renderables()

        self._bar = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[seen]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
        )
        with self._bar:
            yield self

    def log(self, text: str) -> None:
        """Print one line; of details, only with `--verbose`."""
        if isinstance(text, Detail) and not _WISHES.verbose:
            return
        self.console.print(printable(text), markup=False)

    def prepared(self, stage: str, done: int, total: int | None) -> None:
        """Report how many rows of a preparation stage are done, or MiB, and the speed."""
        unit = "MiB" if stage in ("fetch", "upload") else "rows"
        self.counted(f"prepare {stage}", done, total, unit)

    def watch(self, units: WorkUnits[Any]) -> None:
        """Show the state of the units of a command, from now on."""
        self._units = units

    def synthesized(self, done: int, total: int) -> None:
        """Report how many rows a checkpoint answered, and the speed."""
        self.counted("synthesize", done, total, "rows")

    def counted(self, name: str, done: int, total: int | None, unit: str) -> None:
        """Report how much of a stage is done, and the speed since its first report."""
        now = time.monotonic()
        began, first = self._began.setdefault(name, (now, done))
        rate = f"  {(done - first) / (now - began):,.0f} {unit}/s" if done > first else ""
        if self._bar is not None:
            self._task(name, total)
            self._bar.update(self._tasks[name], completed=done, total=total, seen=rate.strip())
        elif total is not None and done >= total:
            self.log(f"{name}: {done:,} {unit}{rate}")
        elif now - max(began, self._logged) > QUIET:
            self._logged = now
            of = f" of {total:,}" if total is not None else ""
            self.log(f"{name}: {done:,}{of} {unit}{rate}")

    def progress(self, stats: Seen) -> None:
        """Report the progress of the training."""
        text = (
            f"loss {significant(stats.loss)}  {_shown(stats)}"
            f"lr {stats.rate:.2e}  {stats.tokens_per_second:,.0f} tok/s"
        )
        if self._bar is not None:
            self._task("train", stats.updates)
            self._bar.update(self._tasks["train"], completed=stats.update, seen=text)
            return
        step = max(1, stats.updates // LINES)
        if stats.update // step > self._shown or stats.update == stats.updates:
            self._shown = stats.update // step
            progress = f"update {stats.update}/{stats.updates}  epoch {stats.epoch}"
            self.log(f"{progress}  {text}{self._time_left(stats)}")

    def _time_left(self, stats: Seen) -> str:
        """Return the time that the other updates will take, from that since the first report."""
        now = time.monotonic()
        began, first = self._began.setdefault("train", (now, stats.update))
        if stats.update in (first, stats.updates):
            return ""
        seconds = (now - began) / (stats.update - first) * (stats.updates - stats.update)
        hours, minutes = divmod(round(seconds / 60), 60)
        return f"  left {hours}:{minutes:02} h" if hours else f"  left {max(1, minutes)} min"

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Print the metrics of a validation."""
        names = {"bleu": "BLEU", "f1": "F1"}
        left_out = {"recall", "precision", "errors", "malformed", "repairs"}
        left_out |= {"nll"} if "perplexity" in values else set()
        order = sorted(values, key=lambda name: (name != "perplexity", name in names))
        formatted = [
            f"{names.get(name, name)} "
            + (f"{values[name]:.2f}" if name in names else significant(values[name]))
            for name in order
            if isinstance(values[name], int | float) and name not in left_out
        ]
        malformed = f", {values['malformed']} malformed" if values.get("malformed") else ""
        self.log(f"update {update}: valid {'  '.join(formatted)}{malformed}")

    def _task(self, name: str, total: int | None) -> None:
        if self._bar is not None and name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total, seen="")


def _shown(stats: Seen) -> str:
    """Return the perplexity, if there is one, and the further values of a report."""
    perplexity = "" if stats.nll is None else f"ppl {math.exp(min(stats.nll, 50)):.2f}  "
    return perplexity + "".join(
        f"{name} {significant(value)}  " for name, value in stats.parts.items()
    )


class LineCounter:
    """Count finished lines whose total number is unknown, and show the speed.

    On a terminal, overwrite one line every 0.2 s; elsewhere, write a line every 10 s.
    """

    def __init__(
        self,
        what: str,
        *,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the clock; report to `stream`, by default stderr."""
        self._stream = Stream(stream or sys.stderr, escapes=False, fails=False)
        self._what, self._clock = what, clock
        self._over = self._stream.isatty()
        self._every = 0.2 if self._over else 10.0
        self._began = self._shown = clock()
        self._done = 0

    def more(self, done: int) -> None:
        """Add `done` finished lines."""
        self._done += done
        if self._clock() - self._shown >= self._every:
            self._show()

    def close(self) -> None:
        """Show the final count, and end the line."""
        if self._done:
            self._show()
            if self._over:
                self._stream.write("\n")
        self._stream.flush()

    def _show(self) -> None:
        self._shown = self._clock()
        seconds = max(self._shown - self._began, 1e-9)
        text = f"{self._done:,} {self._what}, {self._done / seconds:,.1f} per second"
        self._stream.write(f"\r{text}\x1b[K" if self._over else f"{text}\n")
        self._stream.flush()


STYLES = {"done": "green", "running": "cyan", "failed": "red", "lost": "red", "stopped": "yellow"}
"""State to its color."""
LONGEST = 80
"""Maximum number of letters of an error."""
MOST = 12
"""Maximum number of units in the table of a command; the line below it counts them all."""


def state_table(
    title: str, columns: Sequence[str], rows: Iterable[tuple[Sequence[str], str]], caption: str
) -> Table:
    """Return a table with a line for each part of some work.

    Args:
        title: what is above it.
        columns: the first one is a name; `state` has a color.
        rows: the cells of each line, and what is wrong, which is shown below it.
        caption: what is below it.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title,
        title_justify="left",
        caption=caption,
        caption_justify="left",
        caption_style="",
    )
    for name in columns:
        table.add_column(name, justify="left" if name in (columns[0], "state") else "right")
    state = columns.index("state")
    for cells, problem in rows:
        texts = [Text(cell) for cell in cells]
        texts[state].stylize(STYLES.get(cells[state], ""))
        table.add_row(*texts)
        if problem:
            error = Text(shorten(problem, LONGEST, placeholder="…"), style="red")
            table.add_row(*[""] * state, error)
    return table


def states_text(states: Mapping[Any, int], total: int | None = None) -> str:
    """Return how many parts are done, and in other states, on one line.

    >>> states_text({"done": 3, "running": 2}, 6)
    '3 of 6 done, 2 running'
    """
    count = f"{states['done']:,}" if total is None else f"{states['done']} of {total}"
    others = ("running", "lost", "failed") if total is not None else STATES
    return ", ".join(
        [f"{count} done", *(f"{states[name]:,} {name}" for name in others if states.get(name))]
    )


STATES = ("running", "queued", "lost", "failed")
"""States of the units of a command that are not done, as the line below the table has them."""


def unit_table(units: WorkUnits[Any]) -> Table:
    """Return a table of the units of a command that are not done."""
    states = units.states
    order = [*units.wrong, *sorted(units.pending, key=lambda unit: unit.state != "running")]
    return state_table("", ("unit", "state", "time"), map(_row, order[:MOST]), states_text(states))


def _row(unit: WorkUnit[Any]) -> tuple[tuple[str, str, str], str]:
    """Return the cells of a unit, and what is wrong with it."""
    running = unit.state == "running"
    seconds = duration(time.monotonic() - unit.since) if running else ""
    return (unit.name, unit.state, seconds), unit.problem
