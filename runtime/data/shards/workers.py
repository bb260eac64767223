"""Workers: processes that make shards, fed and watched by this one.

Each has a pipe of its own, which ends when this process does: nothing is left behind by a
kill.  They are started by command, so a script that prepares data needs no guard around
its own code.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from ....specs.findings import InputError
from .shards import Maker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .shards import Piece, Recipe


class WorkerDiedError(InputError):
    """A worker process is gone: what is done stays, and the same command goes on."""

    passing = True
    """The input is not at fault."""


def default_workers() -> int:
    """Return how many cores this process may use."""
    known = getattr(os, "sched_getaffinity", None)
    return len(known(0)) if known is not None else os.cpu_count() or 1


def make_shards(recipe: Recipe, pieces: Iterable[Piece], workers: int) -> Iterator[Piece]:
    """Make a shard of each piece; yield the pieces as they are done, in any order.

    Args:
        recipe: how.
        pieces: text, read as it is needed.
        workers: processes; one works in this process.

    Raises:
        InputError: a line is not UTF-8: the first such, whatever the number of workers.
        WorkerDiedError: a worker was killed.
    """
    if workers == 1:
        maker = Maker(recipe)
        for piece in pieces:
            maker.make(piece)
            yield piece
        return
    with _Crew(recipe, workers) as crew:
        yield from crew.work(iter(pieces))


class _Crew:
    """Some worker processes."""

    def __init__(self, recipe: Recipe, workers: int) -> None:
        """Start them."""
        self._processes: dict[Connection, subprocess.Popen[bytes]] = {}
        for _ in range(workers):
            ours, theirs = Pipe()
            command = f"from {__package__}.workers import serve; serve({theirs.fileno()})"
            self._processes[ours] = subprocess.Popen(
                [sys.executable, "-c", command],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "OPENBLAS_NUM_THREADS": "1",
                },
            )
            theirs.close()
            with suppress(OSError):  # told when its first answer is missing
                ours.send(recipe)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        """End them: each finishes its shard first."""
        for pipe in self._processes:
            pipe.close()
        for process in self._processes.values():
            process.wait()

    def work(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Hand out the pieces; yield those that are done."""
        idle, busy = list(self._processes), dict[Connection, "Piece"]()
        failures: dict[int, InputError] = {}
        piece = next(pieces, None)  # read ahead while all are busy
        while busy or (piece is not None and not failures):
            if idle and piece is not None and not failures:
                pipe = idle.pop()
                self._send(pipe, piece)
                busy[pipe] = piece
                piece = next(pieces, None)
                continue
            ready = set(wait(list(busy)))
            for pipe in [each for each in busy if each in ready]:
                answer = self._answer(pipe)
                done = busy.pop(pipe)
                idle.append(pipe)
                if answer is None:
                    yield done
                else:
                    failures[done.number] = InputError(answer[0], place=answer[1], help=answer[2])
        if failures:  # earlier pieces were handed out earlier, so the first is among them
            raise failures[min(failures)]

    def _send(self, pipe: Connection, piece: Piece) -> None:
        try:
            pipe.send(piece)
        except OSError:
            raise self._died(pipe) from None

    def _answer(self, pipe: Connection) -> Any:
        try:
            return pipe.recv()
        except (EOFError, OSError):
            raise self._died(pipe) from None

    def _died(self, pipe: Connection) -> WorkerDiedError:
        code = self._processes[pipe].wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerDiedError(
            f"a worker process ended: {how}",
            help="the same command goes on from here; fewer --workers need less memory",
        )


def serve(descriptor: int) -> None:
    """Be a worker: make shards of what comes through a pipe until it ends.

    Args:
        descriptor: of the pipe; gets None for each shard that is done, or what went wrong.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # for the one who began it
    with Connection(descriptor) as pipe, suppress(EOFError, BrokenPipeError, ConnectionError):
        maker = Maker(pipe.recv())
        while True:
            piece = pipe.recv()
            try:
                maker.make(piece)
            except InputError as error:
                pipe.send((error.problem, error.place, error.help))
            else:
                pipe.send(None)


def give_back_memory() -> None:
    """Hand freed memory to the system, where the C library can: workers need it next."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
