"""Memory: what the process does with memory that a step of training has freed."""

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
EVERY = 50
"""Updates between two looks at how much memory the process has."""
GROWN = 1.25
"""Times the memory of `EVERY` updates after which freed memory is given back."""

_kept: list[ctypes.CDLL] = []
"""The C library, once it was told to keep freed memory: a setting of the process."""


def keep_freed_memory() -> bool:
    """Keep what is freed for the next step, instead of giving it back to the system.

    On the CPU, glibc maps each large tensor anew and unmaps it when it is freed, so that the
    system hands out and clears every page of every step: a fifth of the time of a step of
    Transformer base.  It is a setting of the whole process, for commands that own theirs.

    Returns:
        Whether it was done: not without glibc.
    """
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None)
    mallopt = getattr(libc, "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _AHEAD))
    done = all(mallopt(name, value) == 1 for name, value in settings)
    if done and hasattr(libc, "malloc_trim"):
        _kept[:] = [libc]
    return done


class Growth:
    """Gives freed memory back where it is kept and has grown.

    Tensors of ever new sizes do not fit into the pieces that others left, so a process grows
    for as long as it keeps them all.  Given back, the pages of all pieces are the system's
    again, and those that are needed come anew: half a second, now and then.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._level = 0

    def look(self, update: int) -> bool:
        """Look at the memory of the process after an update.

        Returns:
            Whether freed memory was given back.
        """
        if update % EVERY or not _kept:
            return False
        now = resident()
        if not self._level:
            self._level = now
        if now <= GROWN * self._level:
            return False
        _kept[0].malloc_trim(0)
        # What the next updates need is seen at the next look.
        self._level = 0
        return True


def resident() -> int:
    """Return the bytes of memory that the process has, files aside; 0 where nobody tells."""
    with suppress(OSError, ValueError, IndexError):
        _, whole, shared = Path("/proc/self/statm").read_text().split()[:3]
        return (int(whole) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0
