"""Progress reports of long work: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from ..train.context import Progress as Seen

LINES = 40
"""Number of plain progress lines in a complete run."""
QUIET = 30.0
"""Seconds between plain lines while data is being prepared."""


class Reporter:
    """Show the progress of data preparation and training."""

    def __init__(self, console: Console | None = None) -> None:
        """Report to `console`, by default stderr, so that stdout stays clean."""
        self.console = console or Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._bar: Progress | None = None
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
        self._bar = Progress(
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
        """Print one line."""
        self.console.print(text, markup=False)

    def prepared(self, stage: str, done: int, total: int | None) -> None:
        """Report how many pairs of a preparation stage are done, and the speed."""
        name, now = f"prepare {stage}", time.monotonic()
        began, first = self._began.setdefault(name, (now, done))
        rate = f"  {(done - first) / (now - began):,.0f} pairs/s" if done > first else ""
        if self._bar is not None:
            self._task(name, total)
            self._bar.update(self._tasks[name], completed=done, total=total, seen=rate.strip())
        elif total is not None and done >= total:
            self.log(f"{name}: {done:,} pairs read{rate}")
        elif now - max(began, self._logged) > QUIET:
            self._logged = now
            of = f" of {total:,}" if total is not None else ""
            self.log(f"{name}: {done:,}{of} pairs{rate}")

    def progress(self, seen: Seen) -> None:
        """Report the progress of the training."""
        text = (
            f"loss {seen.loss:.3f}  ppl {math.exp(min(seen.nll, 50)):.2f}  "
            f"lr {seen.rate:.2e}  {seen.tokens_per_second:,.0f} tok/s"
        )
        if self._bar is not None:
            self._task("train", seen.updates)
            self._bar.update(self._tasks["train"], completed=seen.update, seen=text)
            return
        step = max(1, seen.updates // LINES)
        if seen.update // step > self._shown or seen.update == seen.updates:
            self._shown = seen.update // step
            self.log(f"update {seen.update}/{seen.updates}  epoch {seen.epoch}  {text}")

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Print the metrics of a validation."""
        names = {"bleu": "BLEU", "f1": "F1"}
        seen = [f"  {name} {values[key]:.2f}" for key, name in names.items() if key in values]
        if values.get("malformed"):
            seen.append(f", {values['malformed']} malformed")
        self.log(f"update {update}: valid perplexity {values['perplexity']:.3f}{''.join(seen)}")

    def _task(self, name: str, total: int | None) -> None:
        if self._bar is not None and name not in self._tasks:
            self._tasks[name] = self._bar.add_task(name, total=total, seen="")


class Counter:
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
        self._what, self._stream, self._clock = what, stream or sys.stderr, clock
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
