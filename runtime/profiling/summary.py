"""Summary: events of torch's profiler, added up by node, forward and backward.

Every event's own time goes to the innermost scope around it.  What autograd runs carries
the number of the forward operation that it belongs to, and so goes to that one's node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .scopes import BETWEEN, DATA, LOSS, NODE

BACKWARD = "autograd::engine::evaluate_function"
GRADIENTS = "accumulated gradients"
OPTIMIZER = "optimizer"
WAITING = "waiting for the next batch"
BETWEEN_UPDATES = "between updates"
REST = "rest of the update"
LOST = "loss"
SYNCS = ("aten::_local_scalar_dense", "cudaStreamSynchronize", "cudaDeviceSynchronize")
"""Where the host waits for the device."""
MICRO = 1e-6


@dataclass(slots=True)
class Spent:
    """What one node took, each of them in seconds or bytes."""

    forward: float = 0.0
    backward: float = 0.0
    memory: int = 0
    """Bytes that the forward pass leaves behind, for the backward pass most of them."""

    @property
    def total(self) -> float:
        """Return forward and backward together."""
        return self.forward + self.backward


@dataclass(slots=True)
class Profile:
    """Where time and memory of one update went; averages of some updates."""

    updates: int
    device: str
    seconds: float
    """Of one update by the clock, while it was profiled."""
    nodes: dict[str, Spent]
    """By path as `weft cost` has it, slots after a slash; the loss under `loss`."""
    other: dict[str, float]
    """Seconds of what belongs to no node."""
    syncs: float
    """How often the host waited for the device, in one update."""
    sync_seconds: float
    stacks: dict[tuple[str, ...], float] = field(default_factory=dict, repr=False)
    """Path from the whole to an operation, and its seconds."""

    def as_json(self) -> dict[str, Any]:
        """Return it as plain data, stacks aside."""
        return {
            "updates": self.updates,
            "device": self.device,
            "seconds": self.seconds,
            "nodes": {path: asdict(spent) for path, spent in self.nodes.items()},
            "other": self.other,
            "syncs": self.syncs,
            "sync_seconds": self.sync_seconds,
        }


@dataclass(frozen=True, slots=True)
class _Place:
    """What runs where an event runs."""

    node: str | None = None
    phase: str = "forward"
    other: str = REST
    """Name of the time when there is no node."""


def summarize(events: Iterable[Any], *, updates: int, seconds: float, device: str) -> Profile:
    """Add up what torch's profiler recorded.

    Args:
        events: its function events, ordered by start.
        updates: how many were recorded; figures are divided by it.
        seconds: how long one took by the clock.
        device: kind of device, whose time counts: `cpu` or `cuda`.
    """
    hosts = [event for event in events if "CPU" in str(event.device_type)]
    roots = [event for event in hosts if event.cpu_parent is None]
    owners = _owners(roots)
    nodes: dict[str, Spent] = defaultdict(Spent)
    other: Counter[str] = Counter()
    stacks: Counter[tuple[str, ...]] = Counter()
    passes = max(1, sum(event.name == LOSS for event in hosts))
    kept: Counter[str] = Counter()
    on_host = device == "cpu"
    for event, place in _placed(roots, owners):
        took = event.self_cpu_time_total if on_host else event.self_device_time_total
        if place.other in (WAITING, BETWEEN_UPDATES):
            took = event.self_cpu_time_total
        took *= MICRO / updates
        if place.node is None:
            other[place.other] += took
            path: tuple[str, ...] = (place.other,)
        else:
            spent = nodes[place.node]
            if place.phase == "forward":
                spent.forward += took
                kept[place.node] += (
                    event.self_cpu_memory_usage if on_host else event.self_device_memory_usage
                )
            else:
                spent.backward += took
            path = (place.phase, *place.node.replace("/", ".").split("."))
        if took > 0:
            stacks[(*path, _short(event.name))] += took
    for path_, count in kept.items():
        nodes[path_].memory = max(0, round(count / passes))
    waits = [event for event in hosts if event.name in SYNCS]
    return Profile(
        updates=updates,
        device=device,
        seconds=seconds,
        nodes=dict(nodes),
        other=dict(other),
        syncs=len(waits) / updates,
        sync_seconds=sum(event.cpu_time_total for event in waits) * MICRO / updates,
        stacks=dict(stacks),
    )


def by_row(profile: Profile, paths: Iterable[str]) -> dict[str, Spent]:
    """Add what slots took to the rows of a table that has none for them.

    Args:
        profile: what was measured.
        paths: rows that there are.
    """
    known = set(paths)
    rows: dict[str, Spent] = defaultdict(Spent)
    for path, spent in profile.nodes.items():
        row = path
        while row not in known and "/" in row:
            row = row.rpartition("/")[0]
        into = rows[row]
        into.forward += spent.forward
        into.backward += spent.backward
        into.memory += spent.memory
    return dict(rows)


def _owners(roots: Iterable[Any]) -> dict[tuple[int, int], str]:
    """Return the node of each numbered forward operation, by thread and number.

    Of several with one number, the last made the step of the backward pass.
    """
    found: dict[tuple[int, int], str] = {}

    def visit(event: Any, node: str | None) -> None:
        if event.name.startswith(NODE):
            node = event.name.removeprefix(NODE)
        elif event.name == LOSS:
            node = LOST
        if node is not None and event.sequence_nr >= 0 and not event.name.startswith(BACKWARD):
            found[event.thread, event.sequence_nr] = node
        for child in event.cpu_children:
            visit(child, node)

    for root in roots:
        visit(root, None)
    return found


def _placed(
    roots: Iterable[Any], owners: Mapping[tuple[int, int], str]
) -> Iterator[tuple[Any, _Place]]:
    """Yield every event and where it belongs."""
    threads = {thread for thread, _ in owners}

    def visit(event: Any, place: _Place) -> Iterator[tuple[Any, _Place]]:
        name = event.name
        if name.startswith(NODE):
            place = _Place(name.removeprefix(NODE), place.phase)
        elif name == LOSS:
            place = _Place(LOST, place.phase)
        elif name == DATA:
            place = _Place(other=WAITING)
        elif name == BETWEEN:
            place = _Place(other=BETWEEN_UPDATES)
        elif name.startswith("Optimizer."):
            place = _Place(other=OPTIMIZER)
        elif name.startswith(BACKWARD):
            place = _Place(None, "backward", GRADIENTS)
            for thread in (event.fwd_thread, event.thread, *threads):
                if (owner := owners.get((thread, event.sequence_nr))) is not None:
                    place = _Place(owner, "backward")
                    break
        yield event, place
        for child in event.cpu_children:
            yield from visit(child, place)

    for root in roots:
        yield from visit(root, _Place())


def _short(name: str) -> str:
    """Return the name of an event as a picture shows it."""
    if name.startswith(NODE) or name == LOSS:
        return "python"
    return name.removeprefix(f"{BACKWARD}: ").removeprefix("torch::autograd::")
