"""Output of a profile as a table and as files in a folder, among them a flame graph.

A flame graph shows stacks with their times, as collapsed text and as SVG.

Source: of flame graphs, B. Gregg 2016, The flame graph, https://doi.org/10.1145/2909476
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from ...specs.escaping import html_text
from .profile_summary import Profile

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
