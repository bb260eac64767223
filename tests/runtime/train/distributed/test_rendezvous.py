"""Tests of the rendezvous with entries of dead processes in the store."""

from __future__ import annotations

import secrets
import threading
import time
from datetime import timedelta

import pytest
from torch.distributed import HashStore
from weft.runtime.train.distributed.world import meet
from weft.specs.findings import InputError

SOON = timedelta(seconds=20)


def together(store: HashStore, size: int, late: float = 0.0) -> list[str]:
    """Run the rendezvous in threads, the last one delayed; return the result of each."""
    found: dict[int, str] = {}

    def join(rank: int) -> None:
        if rank == size - 1:
            time.sleep(late)
        group_store = meet(store, rank, size, SOON)
        if rank == 0:
            group_store.set("token", secrets.token_hex(4))
        found[rank] = group_store.get("token").decode()

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[rank] for rank in range(size)]


@pytest.mark.integration
def test_each_start_has_its_own_namespace() -> None:
    """The same store serves three starts, the second with fewer processes."""
    store = HashStore()

    rooms = [together(store, size, late) for size, late in ((3, 0.0), (2, 0.2), (3, 0.2))]

    assert [len(set(each)) for each in rooms] == [1, 1, 1]
    assert len({each[0] for each in rooms}) == 3


@pytest.mark.integration
def test_a_dead_process_does_not_count_as_registered() -> None:
    """The others wait until a process has registered again, although its old name is stored."""
    store = HashStore()
    together(store, 2)

    with pytest.raises(InputError, match="process 0 of 2 did not reach all others"):
        meet(store, 0, 2, timedelta(seconds=0.3))
    assert len(set(together(store, 2, 0.3))) == 1
