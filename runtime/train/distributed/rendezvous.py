"""Rendezvous of the processes of one start, ignoring entries of processes that have died.

torchrun keeps one store of addresses for all restarts, so a new process may read the address
of a dead one and wait for it.  Therefore each process chooses a random name; rank 0 publishes
the names that it reads, and they are valid once every other rank has found its own name there.
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
"""Seconds between two polls of the store."""


def meet(store: Store, rank: int, size: int, patience: timedelta) -> PrefixStore:
    """Return a store with a key prefix that only the processes of this start use.

    Args:
        store: may contain entries of earlier starts.
        rank: rank of this process.
        size: number of processes.
        patience: timeout.

    Raises:
        InputError: not all processes arrived before the timeout.
    """
    own_name = secrets.token_hex(8)
    deadline = time.monotonic() + patience.total_seconds()
    store.set(f"here/{rank}", own_name)
    prefix = ""
    while time.monotonic() < deadline:
        if rank == 0:
            prefix = _publish(store, size)
            if prefix and store.check([f"{prefix}/{other}" for other in range(1, size)]):
                store.set(f"{prefix}/open", "")
                return PrefixStore(prefix, store)
        else:
            prefix = _published(store, rank, own_name) or prefix
            if prefix:
                store.set(f"{prefix}/{rank}", "")
                if store.check([f"{prefix}/open"]):
                    return PrefixStore(prefix, store)
        time.sleep(_PAUSE)
    raise InputError(
        f"process {rank} of {size} did not reach all others within"
        f" {patience.total_seconds():.0f} s",
        help="check the other processes for errors; torchrun --max-restarts tries again",
    )


def _publish(store: Store, size: int) -> str:
    """Publish the current names of all ranks; return the prefix derived from them, or ""."""
    keys = [f"here/{other}" for other in range(size)]
    if not store.check(keys):
        return ""
    names = [store.get(key).decode() for key in keys]
    prefix = hashlib.sha256(" ".join(names).encode()).hexdigest()[:16]
    store.set("met", json.dumps({"prefix": prefix, "names": names}))
    return prefix


def _published(store: Store, rank: int, own_name: str) -> str:
    """Return the prefix that rank 0 published, or "" if it does not include this process."""
    if not store.check(["met"]):
        return ""
    met = json.loads(store.get("met"))
    names = met["names"]
    return str(met["prefix"]) if rank < len(names) and names[rank] == own_name else ""
