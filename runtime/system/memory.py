"""Reuse of freed memory between training steps (glibc), its release, and the free memory."""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

_MMAP_MAX = -4
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_KEPT = 2**31 - 1
_AHEAD = 64 * 2**20
WHILE_DECODING = 128 * 2**20
"""Bytes that decoding commands keep: more than the logits of a step with a large vocabulary."""
EVERY = 50
"""Updates between two checks of the resident memory."""
GROWN = 1.25
"""Growth factor of the resident memory at which freed memory is returned to the system."""

_kept: list[ctypes.CDLL] = []
"""The C library, once `keep_freed_memory` has configured it for this process."""


def keep_freed_memory(most: int = _KEPT) -> bool:
    """Keep freed memory for the next step instead of returning it to the system.

    By default glibc maps each large tensor anew and unmaps it when it is freed, so that the
    system allocates and clears every page in every step: a fifth of the time of a step of
    Transformer base on the CPU.  The setting applies to the entire process, so only commands
    that own their process should call this.

    Args:
        most: bytes at the end of the heap that are kept; memory between blocks in use always is,
            and `MemoryTrimmer` returns it only without a limit.

    Returns:
        Whether the setting was applied; False without glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, most), (_TOP_PAD, min(_AHEAD, most // 2)))
    done = all(mallopt(name, value) == 1 for name, value in settings)
    if done and most == _KEPT and hasattr(libc, "malloc_trim"):
        _kept[:] = [libc]
    return done


class MemoryTrimmer:
    """Return freed memory to the system when the process has grown.

    Tensors of new sizes do not fit into the freed blocks of others, so a process that keeps
    all freed memory keeps growing.  After `malloc_trim` the system owns the pages of these
    blocks again and maps the needed ones anew, which costs half a second now and then.
    """

    def __init__(self) -> None:
        """Start without a reference level."""
        self._level = 0

    def look(self, update: int) -> bool:
        """Check the memory of the process after an update.

        Returns:
            Whether freed memory was returned to the system.
        """
        if update % EVERY or not _kept:
            return False
        now = resident()
        if not self._level:
            self._level = now
        if now <= GROWN * self._level:
            return False
        _kept[0].malloc_trim(0)
        # The next check sets a new reference level, which includes what the next updates need.
        self._level = 0
        return True


def give_back_memory() -> None:
    """Return freed memory to the operating system, if the C library can."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def resident() -> int:
    """Return the resident memory of the process in bytes, without files; 0 if unknown."""
    with suppress(OSError, ValueError, IndexError):
        _, total, shared = Path("/proc/self/statm").read_text().split()[:3]
        return (int(total) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def available() -> int:
    """Return the memory in bytes that new processes can use; 0 if unknown.

    A limit of the control group, as in a container, counts as well.
    """
    limits: list[int] = []
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        [line] = [entry for entry in lines if entry.startswith("MemAvailable:")]
        limits.append(int(line.split()[1]) * 1024)
    group = Path("/sys/fs/cgroup")
    with suppress(OSError, ValueError, KeyError):
        limit = int((group / "memory.max").read_text())
        words = (group / "memory.stat").read_text().split()
        used = dict(zip(words[::2], words[1::2], strict=False))
        limits.append(max(1, limit - int(used["anon"])))
    return min(limits, default=0)
