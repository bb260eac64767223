"""Faults at the file operations of a process: it is killed, or its disk is full.

`inject` counts the operations that change files below a folder.  Operation number `at` is the
first one that fails.  The operations are found by Python's audit events (opening for writing,
making, renaming and removing), and by wrappers around the functions that have none (writing,
flushing to the disk, and writing tensors).  A write that fails leaves half of its bytes behind.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import safetensors.torch
from safetensors import SafetensorError

Mode = Literal["count", "kill", "full"]
"""What happens at an operation: nothing, SIGKILL, or the error of a full disk from then on."""
EVENTS = ("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate")
"""Audit events of operations on files, besides `open`."""
NEEDS_NO_SPACE = ("os.remove", "os.rmdir", "os.chmod", "os.truncate")
"""Operations that succeed on a full disk."""


class Faults:
    """The operations on the files of a folder, counted from 1, and the fault at one of them."""

    def __init__(self, folder: Path, mode: Mode, at: int, log: Path | None) -> None:
        """Watch the files of a folder; see `inject`."""
        self.folder, self.mode, self.at, self.log = folder.resolve(), mode, at, log
        self.count = 0
        self.busy = False

    def meets(self, operation: str, path: Path) -> bool:
        """Count an operation; return whether the fault happens at it."""
        if self.folder not in path.parents and path != self.folder:
            return False
        if self.mode == "full" and operation in NEEDS_NO_SPACE:
            return False
        self.count += 1
        if self.log is not None:
            self.busy = True  # the log is a file, too
            with self.log.open("a") as file:
                file.write(f"{self.count} {operation} {path.relative_to(self.folder)}\n")
            self.busy = False
        # Only the first renaming fails: a renaming back needs no new space.
        again = self.mode == "full" and self.count >= self.at and operation != "os.rename"
        return self.count == self.at or again

    def strike(self, path: Path) -> None:
        """Kill the process, or raise the error of a full disk; do nothing if counting."""
        if self.mode == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.mode == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Fail before an operation that has an audit event."""
        if self.busy:
            return
        if event == "open":
            if not isinstance(args[0], str | bytes | os.PathLike) or not _writes(*args[1:]):
                return
            path = Path(os.fsdecode(args[0])).absolute()
            event = "open"
        elif event in EVENTS:
            path = _located(event, args)
        else:
            return
        if self.meets(event, path):
            self.strike(path)

    def at_half(self, operation: str, path: Any, write: Callable[[], Any], half: Any) -> Any:
        """Write a file; at the fault, write only half of it and then fail.

        Args:
            operation: name of the operation.
            path: the file.
            write: writes all of it.
            half: writes half of it.
        """
        where = Path(path).absolute()
        if self.busy or not self.meets(operation, where):
            return write()
        self.busy = True
        half()
        self.busy = False
        self.strike(where)
        return write()  # operations are only counted


def _writes(mode: Any, flags: int) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _located(event: str, args: tuple[Any, ...]) -> Path:
    """Return the path of an operation, also if it is relative to an open folder."""
    name = os.fsdecode(args[0]) if not isinstance(args[0], int) else f"/proc/self/fd/{args[0]}"
    folder = args[-1]
    relative = event in ("os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.rename")
    if relative and isinstance(folder, int) and folder >= 0 and not Path(name).is_absolute():
        return Path(f"/proc/self/fd/{folder}").resolve() / name
    return Path(name).absolute()


def inject(folder: Path, mode: Mode, at: int = 0, log: Path | None = None) -> Faults:
    """Make the operations of this process on the files of a folder fail; this cannot be undone.

    Args:
        folder: folder whose files are watched.
        mode: what happens.
        at: number of the operation, from 1.
        log: file to which each operation is written as a line, outside of the folder.
    """
    faults = Faults(folder, mode, at, log)
    sys.addaudithook(faults.audit)

    path_class: Any = Path
    for name in ("write_text", "write_bytes"):
        setattr(path_class, name, _writing(faults, getattr(Path, name)))
    modules: Any = (shutil, safetensors.torch)
    copyfile, serialize = shutil.copyfile, modules[1].serialize_file

    def copying(source: Any, path: Any, **more: Any) -> Any:
        def copy() -> Any:
            return copyfile(source, path, **more)

        return faults.at_half("copy", path, copy, lambda: _cut(copy, path))

    def serializing(tensors: Any, path: Any, **more: Any) -> None:
        def write() -> None:
            serialize(tensors, path, **more)

        try:
            faults.at_half("tensors", path, write, lambda: _cut(write, path))
        except OSError as error:  # as safetensors reports it
            text = f"I/O error: {error.strerror} (os error {error.errno})"
            raise SafetensorError(f"Error while serializing: {text}") from error

    modules[0].copyfile, modules[1].serialize_file = copying, serializing
    fsync = os.fsync

    def syncing(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").resolve()
        if faults.meets("fsync", path):
            faults.strike(path)
        fsync(descriptor)

    os.fsync = syncing  # type: ignore[assignment]
    return faults


def _writing(faults: Faults, write: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Path.write_text` or `Path.write_bytes` with the fault."""

    def writing(path: Path, data: Any, *args: Any, **more: Any) -> Any:
        return faults.at_half(
            "write",
            path,
            lambda: write(path, data, *args, **more),
            lambda: write(path, data[: len(data) // 2], *args, **more),
        )

    return writing


def _cut(write: Callable[[], Any], path: Any) -> None:
    """Write a file and cut off its second half."""
    write()
    os.truncate(path, Path(path).stat().st_size // 2)
