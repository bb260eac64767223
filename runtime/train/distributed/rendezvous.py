"""Meeting: processes find those that were started with them, and not those that died before.

torchrun keeps one store of addresses for all its restarts, so a new process may read where
a dead one was, and wait for it.  Here each gives itself a name of its own; the first process
reads all names, and what it reads is right once each of the others has found its own in it.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from datetime import timedelta

from torch.distributed.distributed_c10d import PrefixStore, Store

from ....specs.findings import InputError

_PAUSE = 0.02
"""Seconds between two looks into the store."""


def meet(store: Store, rank: int, size: int, patience: timedelta) -> PrefixStore:
    """Return a room of the store that only processes of this start know.

    Args:
        store: may hold what earlier ones wrote.
        rank: which process this is.
        size: how many there are.
        patience: how long to wait for the others.

    Raises:
        InputError: not all have come.
    """
    mine = secrets.token_hex(8)
    until = time.monotonic() + patience.total_seconds()
    store.set(f"here/{rank}", mine)
    room = ""
    while time.monotonic() < until:
        if rank == 0:
            room = _open(store, size)
            if room and store.check([f"{room}/{other}" for other in range(1, size)]):
                store.set(f"{room}/open", "")
                return PrefixStore(room, store)
        else:
            room = _found(store, rank, mine) or room
            if room:
                store.set(f"{room}/{rank}", "")
                if store.check([f"{room}/open"]):
                    return PrefixStore(room, store)
        time.sleep(_PAUSE)
    raise InputError(
        f"process {rank} of {size} did not meet all others in {patience.total_seconds():.0f} s",
        help="look for errors of the others; torchrun --max-restarts tries again",
    )


def _open(store: Store, size: int) -> str:
    """Write the names that are there now; return the room that is theirs."""
    keys = [f"here/{other}" for other in range(size)]
    if not store.check(keys):
        return ""
    names = [store.get(key).decode() for key in keys]
    room = hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    store.set("met", json.dumps({"room": room, "names": names}))
    return room


def _found(store: Store, rank: int, mine: str) -> str:
    """Return the room that the first process opened for this one, or nothing."""
    if not store.check(["met"]):
        return ""
    met = json.loads(store.get("met"))
    names = met["names"]
    return str(met["room"]) if rank < len(names) and names[rank] == mine else ""
