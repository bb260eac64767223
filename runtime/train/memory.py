"""Memory: what the process does with memory that a step of training has freed."""

from __future__ import annotations

import ctypes
import sys

_MMAP_MAX = -4
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_KEPT = 2**31 - 1
_AHEAD = 64 * 2**20


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
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _KEPT), (_TOP_PAD, _AHEAD))
    return all(mallopt(name, value) == 1 for name, value in settings)
