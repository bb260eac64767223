"""Tests of keeping freed memory and returning it after growth."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest
from weft.runtime.system import memory
from weft.runtime.system.memory import EVERY, GROWN, MemoryTrimmer, resident

needs_glibc = pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallopt") or not resident(), reason="needs glibc and Linux"
)


def grown(script: str) -> tuple[int, int]:
    """Run a script in a process of its own, to which the setting applies; return its two sizes."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    kept, left = map(int, done.stdout.split())
    return kept, left


class Trimmed:
    """A substitute for the C library that counts calls."""

    def __init__(self) -> None:
        """Start at zero."""
        self.times = 0

    def malloc_trim(self, pad: int) -> int:
        """Count a call."""
        assert pad == 0
        self.times += 1
        return 1


def test_memory_is_returned_after_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is returned after growth, not while it is constant; then the level is set anew."""
    libc = Trimmed()
    monkeypatch.setattr(memory, "_kept", [libc])
    sizes = iter([1000, 1000 * GROWN, 1000 * GROWN + 1, 1500, 1500 * GROWN, 9000])
    monkeypatch.setattr(memory, "resident", lambda: next(sizes))
    growth = MemoryTrimmer()

    given_back = [update for update in range(1, 6 * EVERY + 1) if growth.look(update)]

    assert given_back == [3 * EVERY, 6 * EVERY]
    assert libc.times == 2


def test_memory_is_not_returned_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `keep_freed_memory` nothing is returned."""
    monkeypatch.setattr(memory, "_kept", [])
    monkeypatch.setattr(memory, "resident", lambda: pytest.fail("looked"))
    assert not MemoryTrimmer().look(EVERY)


SCRIPT = """
from weft.runtime.system import memory
assert memory.keep_freed_memory()
memory.EVERY = 1
growth, before = memory.MemoryTrimmer(), memory.resident()
growth.look(1)
both = [(bytearray(2**20), bytes(5000)) for _ in range(100)]
# Blocks in use lie between the freed ones.
stays = [small for _, small in both]
del both
kept = memory.resident() - before
assert growth.look(1)
print(kept, memory.resident() - before)
"""


@pytest.mark.integration
@needs_glibc
def test_freed_memory_is_returned_to_the_system() -> None:
    """Blocks in use that lie between the freed ones do not prevent it."""
    kept, left = grown(SCRIPT)
    assert kept > 90 * 2**20
    assert left < 10 * 2**20


LIMITED = """
import ctypes
from weft.runtime.system import memory
assert memory.keep_freed_memory(128 * 2**20)
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
before = memory.resident()
for megabytes in (40, 320):
    block = libc.malloc(megabytes * 2**20)
    libc.memset(block, 1, megabytes * 2**20)
    libc.free(block)
    print(memory.resident() - before)
"""


@pytest.mark.integration
@needs_glibc
def test_a_limited_amount_of_freed_memory_is_kept() -> None:
    """A freed block of 40 MB stays, which glibc would have mapped; one of 320 MB does not."""
    kept, left = grown(LIMITED)
    assert kept > 38 * 2**20
    assert left < 140 * 2**20
