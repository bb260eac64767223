"""Summary of profiler events by node, forward and backward.

The self time of every event counts for the innermost scope around it.  Events of autograd
have the sequence number of their forward operation, and count for its node.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .profile_scopes import BETWEEN, DATA, LOSS, NODE

BACKWARD = "autograd::engine::evaluate_function"
GRADIENTS = "accumulated gradients"
OPTIMIZER = "optimizer"
WAITING = "waiting for the next batch"
BETWEEN_UPDATES = "between updates"
REST = "rest of the update"
LOST = "loss"
SYNCS = ("aten::_local_scalar_dense", "cudaStreamSynchronize", "cudaDeviceSynchronize")
"""Events in which the host waits for the device."""
MICRO = 1e-6


@dataclass(slots=True)
class Spent:
    """Time and memory of one node, in seconds and bytes."""

    forward: float = 0.0
    backward: float = 0.0
    memory: int = 0
    """Bytes that the forward pass leaves allocated, most of them for the backward pass."""

    @property
    def total(self) -> float:
        """Seconds of forward and backward together."""
        return self.forward + self.backward


@dataclass(slots=True)
class Profile:
    """Time and memory of one update, averaged over the recorded updates."""

    updates: int
    device: str
    seconds: float
    """Wall-clock time of one update while profiled."""
    nodes: dict[str, Spent]
    """By path as in `weft cost`, with slots after a slash; the loss is under `loss`."""
    other: dict[str, float]
    """Seconds that belong to no node, by name."""
    syncs: float
    """Number of times per update that the host waited for the device."""
    sync_seconds: float
    """Seconds per update that the host waited for the device."""
    stacks: dict[tuple[str, ...], float] = field(default_factory=dict, repr=False)
    """Seconds of each operation, by its path from the root."""

    def as_json(self) -> dict[str, Any]:
        """Return the profile without its stacks as JSON-compatible data."""
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
    """Node and phase that an event belongs to."""

    node: str | None = None
    phase: str = "forward"
    other: str = REST
    """Name under which the time is counted if there is no node."""


def summarize(events: Iterable[Any], *, updates: int, seconds: float, device: str) -> Profile:
    """Summarize the events of torch's profiler.

    Args:
        events: function events, ordered by start.
        updates: number of recorded updates; all figures are divided by it.
        seconds: wall-clock time of one update.
        device: type of the device whose time is counted: `cpu` or `cuda`.
    """
    hosts = [event for event in events if "CPU" in str(event.device_type)]
    roots = [event for event in hosts if event.cpu_parent is None]
    owners = _owners(roots)
    nodes: dict[str, Spent] = defaultdict(Spent)
    other: Counter[str] = Counter()
    stacks: Counter[tuple[str, ...]] = Counter()
    passes = max(1, sum(event.name == LOSS for event in hosts))
    bytes_by_node: Counter[str] = Counter()
    on_host = device == "cpu"
    for event, context in _placed(roots, owners):
        time_us = event.self_cpu_time_total if on_host else event.self_device_time_total
        if context.other in (WAITING, BETWEEN_UPDATES):
            time_us = event.self_cpu_time_total
        seconds_each = time_us * MICRO / updates
        if context.node is None:
            other[context.other] += seconds_each
            path: tuple[str, ...] = (context.other,)
        else:
            spent = nodes[context.node]
            if context.phase == "forward":
                spent.forward += seconds_each
                bytes_by_node[context.node] += (
                    event.self_cpu_memory_usage if on_host else event.self_device_memory_usage
                )
            else:
                spent.backward += seconds_each
            path = (context.phase, *context.node.replace("/", ".").split("."))
        if seconds_each > 0:
            stacks[(*path, _short(event.name))] += seconds_each
    for path_, count in bytes_by_node.items():
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
    """Sum the figures of a profile by the rows of a table.

    Slots without a row of their own count for the row of their node.

    Args:
        profile: measured profile.
        paths: rows of the table.
    """
    path_set = set(paths)
    rows: dict[str, Spent] = defaultdict(Spent)
    for path, spent in profile.nodes.items():
        row = path
        while row not in path_set and "/" in row:
            row = row.rpartition("/")[0]
        into = rows[row]
        into.forward += spent.forward
        into.backward += spent.backward
        into.memory += spent.memory
    return dict(rows)


def _owners(roots: Iterable[Any]) -> dict[tuple[int, int], str]:
    """Return the node of each numbered forward operation, by thread and number.

    If several operations share a number, the last one made the backward step.
    """
    node_by_call: dict[tuple[int, int], str] = {}

    def visit(event: Any, node: str | None) -> None:
        if event.name.startswith(NODE):
            node = event.name.removeprefix(NODE)
        elif event.name == LOSS:
            node = LOST
        if node is not None and event.sequence_nr >= 0 and not event.name.startswith(BACKWARD):
            node_by_call[event.thread, event.sequence_nr] = node
        for child in event.cpu_children:
            visit(child, node)

    for root in roots:
        visit(root, None)
    return node_by_call


def _placed(
    roots: Iterable[Any], owners: Mapping[tuple[int, int], str]
) -> Iterator[tuple[Any, _Place]]:
    """Yield every event with its node and phase."""
    threads = {thread for thread, _ in owners}

    def visit(event: Any, context: _Place) -> Iterator[tuple[Any, _Place]]:
        name = event.name
        if name.startswith(NODE):
            context = _Place(name.removeprefix(NODE), context.phase)
        elif name == LOSS:
            context = _Place(LOST, context.phase)
        elif name == DATA:
            context = _Place(other=WAITING)
        elif name == BETWEEN:
            context = _Place(other=BETWEEN_UPDATES)
        elif name.startswith("Optimizer."):
            context = _Place(other=OPTIMIZER)
        elif name.startswith(BACKWARD):
            context = _Place(None, "backward", GRADIENTS)
            for thread in (event.fwd_thread, event.thread, *threads):
                if (owner := owners.get((thread, event.sequence_nr))) is not None:
                    context = _Place(owner, "backward")
                    break
        yield event, context
        for child in event.cpu_children:
            yield from visit(child, context)

    for root in roots:
        yield from visit(root, _Place())


def _short(name: str) -> str:
    """Return a short name of an event for the flame graph."""
    if name.startswith(NODE) or name == LOSS:
        return "python"
    return name.removeprefix(f"{BACKWARD}: ").removeprefix("torch::autograd::")
