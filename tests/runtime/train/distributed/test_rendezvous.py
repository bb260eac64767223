"""Processes meet those of their own start, whatever dead ones left in the store."""

from __future__ import annotations

import secrets
import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import HashStore
from weft.runtime.train.distributed.rendezvous import meet
from weft.specs.findings import InputError

SOON = timedelta(seconds=20)


def together(store: HashStore, size: int, late: float = 0.0) -> list[str]:
    """Let processes meet, here threads; the last of them comes late.  Return what each finds."""
    found: dict[int, str] = {}

    def come(rank: int) -> None:
        if rank == size - 1:
            time.sleep(late)
        room = meet(store, rank, size, SOON)
        if rank == 0:
            room.set("token", secrets.token_hex(4))
        found[rank] = room.get("token").decode()

    threads = [threading.Thread(target=come, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


def test_each_start_has_a_room_of_its_own() -> None:
    """The same store serves three starts, the second of fewer processes."""
    store = HashStore()

    rooms = [together(store, size, late) for size, late in ((3, 0.0), (2, 0.2), (3, 0.2))]

    assert [len(set(each)) for each in rooms] == [1, 1, 1]
    assert len({each[0] for each in rooms}) == 3


def test_one_that_died_is_not_taken_for_one_that_comes() -> None:
    """The others wait until it has come again, though its old name is still there."""
    store = HashStore()
    together(store, 2)

    with pytest.raises(InputError, match="process 0 of 2 did not reach all others"):
        meet(store, 0, 2, timedelta(seconds=0.3))
    assert len(set(together(store, 2, 0.3))) == 1
