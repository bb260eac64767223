"""Worker processes that make shards.

Each worker has its own pipe, which closes when the parent process ends, so a kill leaves
no orphans.  Workers are started as commands, so a script that prepares data does not need
an `if __name__ == "__main__"` guard.
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

    from .shards import Piece, ShardRecipe


class WorkerDiedError(InputError):
    """A worker process died; finished shards are kept, so the same command can resume."""

    passing = True
    """Whether the error is transient, so that the working folder is kept."""


def make_shards(recipe: ShardRecipe, pieces: Iterable[Piece], workers: int) -> Iterator[Piece]:
    """Make a shard of each piece; yield the pieces in the order of completion.

    Args:
        recipe: settings of the shards.
        pieces: text, consumed on demand.
        workers: number of processes; with 1, the work is done in this process.

    Raises:
        InputError: a line is not UTF-8; the first such line, for any number of workers.
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
    """Pool of worker processes."""

    def __init__(self, recipe: ShardRecipe, workers: int) -> None:
        """Start the processes."""
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
            with suppress(OSError):  # a dead worker is reported at its first missing answer
                ours.send(recipe)

    def __enter__(self) -> _Crew:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the pipes and wait; each worker finishes its current shard first."""
        for pipe in self._processes:
            pipe.close()
        for process in self._processes.values():
            process.wait()

    def work(self, pieces: Iterator[Piece]) -> Iterator[Piece]:
        """Distribute the pieces to the workers; yield the finished pieces."""
        idle, busy = list(self._processes), dict[Connection, "Piece"]()
        failures: dict[int, InputError] = {}
        piece = next(pieces, None)  # read ahead while all workers are busy
        while busy or (piece is not None and not failures):
            if idle and piece is not None and not failures:
                pipe = idle.pop()
                self._send(pipe, piece)
                busy[pipe] = piece
                piece = next(pieces, None)
                continue
            ready = set(wait(list(busy)))
            for pipe in [connection for connection in busy if connection in ready]:
                answer = self._answer(pipe)
                done = busy.pop(pipe)
                idle.append(pipe)
                if answer is None:
                    yield done
                else:
                    failures[done.number] = InputError(
                        answer[0], location=answer[1], help=answer[2]
                    )
        if failures:  # pieces are sent in order, so the first failing one is among these
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
            help="run the same command again to resume; fewer --workers need less memory",
        )


def serve(descriptor: int) -> None:
    """Run a worker: make a shard of each piece received through a pipe, until the pipe closes.

    Args:
        descriptor: file descriptor of the pipe; the worker sends None for each finished
            shard, or the parts of the error.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles interrupts
    with Connection(descriptor) as pipe, suppress(EOFError, BrokenPipeError, ConnectionError):
        maker = Maker(pipe.recv())
        while True:
            piece = pipe.recv()
            try:
                maker.make(piece)
            except InputError as error:
                pipe.send((error.problem, error.location, error.help))
            else:
                pipe.send(None)


def give_back_memory() -> None:
    """Return freed memory to the operating system, for the workers, if the C library can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
