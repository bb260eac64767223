"""Errors of a training of several processes: each is reported once.

Most errors, such as a mistake in the run, occur in all processes, and the main process reports
them.  One that occurs only in another process, such as a file that is missing on its machine, is
reported there, with its name.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from ....specs.findings import InputError
from .world import MAIN, OTHER, FailedElsewhereError, errors, is_main_process, launched

PATIENCE = 10.0
"""Seconds in which the main process reports an error that it has too."""


@contextmanager
def reported_once() -> Iterator[None]:
    """Raise `FailedElsewhereError` in the block for an error that another process reports.

    Raises:
        Exception: the block raised it, and this process is the one that reports it.
        FailedElsewhereError: another process reports it.
    """
    if not launched():
        yield
        return
    try:
        yield
    except FailedElsewhereError:
        raise
    except InputError as error:
        raise _reported(error) from error
    except Exception as error:
        if isinstance(error, dist.DistError) or (
            isinstance(error, RuntimeError) and "gloo" in str(error)
        ):
            raise _disconnected() from error
        if _reported_by_main(f"{type(error).__name__}: {error}"):
            raise FailedElsewhereError from error
        raise


def _reported(error: InputError) -> InputError:
    """Return the error of this process; `FailedElsewhereError` if the main process has it too."""
    if _reported_by_main(str(error)):
        return FailedElsewhereError()
    if is_main_process():
        return error
    name = f"process {os.environ['RANK']} on {socket.gethostname()}"
    return InputError(f"{name}: {error.problem}", location=error.location, help=error.help)


def _reported_by_main(text: str) -> bool:
    """Return whether this is another process than the main one, which reports the same error."""
    with suppress(RuntimeError, OSError):  # without a store, each process reports its error
        store = errors()
        if is_main_process():
            store.set(MAIN, text)
        elif _arrived(store, MAIN) == text:
            return True
        else:
            store.set(OTHER, text)
    return False


def _disconnected() -> InputError:
    """Return the error of a process that lost the connection to another one."""
    with suppress(RuntimeError, OSError):
        if not is_main_process() or _arrived(errors(), OTHER):
            return FailedElsewhereError()
    return InputError(
        "the connection to another process of the training is lost",
        help="it was killed, or its machine is gone; start the training again with --resume",
    )


def _arrived(store: Store, key: str) -> str:
    """Return the text of a key, which may arrive late; empty if it does not."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if store.check([key]):
            return store.get(key).decode()
        time.sleep(0.1)
    return ""
