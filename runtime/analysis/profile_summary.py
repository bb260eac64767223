"""Summary of profiler events by node, forward and backward.

The self time of every event counts for the innermost scope around it.  Events of autograd
have the sequence number of their forward operation, and count for its node.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

from ...specs.escaping import html_text
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


WIDTH, ROW, LETTER = 1200.0, 18, 6.6
"""Width of the picture, height of a row and width of a letter, in pixels."""
THINNEST = 0.4
"""Minimum width of a box in pixels; narrower boxes and those above them are left out."""

Stacks = Mapping[tuple[str, ...], float]


@dataclass(slots=True)
class _Box:
    """One box: its time, and the boxes above it."""

    seconds: float = 0.0
    inside: dict[str, _Box] = field(default_factory=dict)


def collapsed(stacks: Stacks) -> str:
    """Return stacks as lines `a;b;c MICROSECONDS`, the input format of flame graph tools."""
    lines = [
        f"{';'.join(part.replace(';', ',') for part in path)} {round(seconds * 1e6)}"
        for path, seconds in sorted(stacks.items())
        if round(seconds * 1e6)
    ]
    return "".join(f"{line}\n" for line in lines)


def flame_svg(stacks: Stacks, title: str) -> str:
    """Return a flame graph as SVG, with the complete update at the bottom.

    The file needs no external resources; a browser shows the name and the time of a box in its
    tooltip.

    Args:
        stacks: seconds of each operation, by its path from the root.
        title: title of the picture.
    """
    root = _Box()
    for path, seconds in sorted(stacks.items()):
        box = root
        box.seconds += seconds
        for part in path:
            box = box.inside.setdefault(part, _Box())
            box.seconds += seconds
    depth = max(map(len, stacks), default=0) + 1
    height = (depth + 2) * ROW
    parts: list[str] = []
    scale = WIDTH / root.seconds if root.seconds else 0.0

    def draw(name: str, box: _Box, x: float, level: int) -> None:
        width = box.seconds * scale
        if width < THINNEST:
            return
        top = height - (level + 1) * ROW
        share = box.seconds / root.seconds
        tooltip = html_text(f"{name}: {box.seconds * 1e3:.2f} ms, {share:.1%}")
        shown = name if len(name) * LETTER < width - 4 else name[: int((width - 8) / LETTER)]
        hue = crc32(name.encode()) % 50
        parts.append(
            f'<g><title>{tooltip}</title><rect x="{x:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{ROW - 1}" fill="hsl({hue},75%,{62 + hue % 3 * 5}%)"/>'
            f'<text x="{x + 3:.1f}" y="{top + 13}">{html_text(shown)}</text></g>'
        )
        for inner, inside in sorted(box.inside.items(), key=lambda pair: -pair[1].seconds):
            draw(inner, inside, x, level + 1)
            x += inside.seconds * scale

    draw("update", root, 0.0, 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" '
        'font-family="monospace" font-size="11">\n'
        f'<text x="4" y="14" font-weight="bold">{html_text(title)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def table(profile: Profile) -> str:
    """Return a profile as a text table, sorted by time."""
    rows = [("node", "forward ms", "backward ms", "share", "memory kept")]
    total = sum(spent.total for spent in profile.nodes.values()) + sum(profile.other.values())
    total = total or 1.0
    for path, spent in sorted(profile.nodes.items(), key=lambda pair: -pair[1].total):
        rows.append(
            (
                path,
                f"{spent.forward * 1e3:.2f}",
                f"{spent.backward * 1e3:.2f}",
                f"{spent.total / total:.1%}",
                f"{spent.memory:,}" if spent.memory else "",
            )
        )
    rows += [
        (name, f"{seconds * 1e3:.2f}", "", f"{seconds / total:.1%}", "")
        for name, seconds in sorted(profile.other.items(), key=lambda pair: -pair[1])
    ]
    width = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(
            cell.ljust(width[0]) if at == 0 else cell.rjust(width[at])
            for at, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    rule = "-" * max(map(len, lines))
    forward = sum(spent.forward for spent in profile.nodes.values())
    backward = sum(spent.backward for spent in profile.nodes.values())
    clock = "device time" if profile.device != "cpu" else "CPU time"
    footer = [
        f"wall clock   {profile.seconds * 1e3:,.1f} ms per update, mean of {profile.updates}",
        f"forward      {forward * 1e3:,.1f} ms, backward {backward * 1e3:,.1f} ms: {clock}",
        f"syncs        {profile.syncs:.1f} per update, {profile.sync_seconds * 1e3:.2f} ms",
        "memory kept  bytes that the forward pass of a node leaves allocated",
    ]
    return "\n".join([lines[0], rule, *lines[1:], "", *footer])


def write(profile: Profile, folder: Path, title: str) -> list[Path]:
    """Write a profile into a folder as JSON, collapsed stacks and a flame graph.

    Returns:
        The written files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "profile.json": json.dumps(profile.as_json(), indent=2) + "\n",
        "stacks.txt": collapsed(profile.stacks),
        "flame.svg": flame_svg(profile.stacks, title),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]
