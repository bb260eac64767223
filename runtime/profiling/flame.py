"""Flame graph: stacks and their seconds, as text for other tools and as a picture.

Source: B. Gregg 2016, The flame graph, https://doi.org/10.1145/2909476
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from zlib import crc32

WIDTH, ROW, LETTER = 1200.0, 18, 6.6
"""Pixels of the picture, of a row, and of a letter."""
THINNEST = 0.4
"""Pixels below which a box is left out, with all above it."""

Stacks = Mapping[tuple[str, ...], float]


@dataclass(slots=True)
class _Box:
    """One box: what it took, and what stands on it."""

    seconds: float = 0.0
    inside: dict[str, _Box] = field(default_factory=dict)


def collapsed(stacks: Stacks) -> str:
    """Return stacks as lines `a;b;c COUNT`, in microseconds, as flame graph tools read them."""
    lines = [
        f"{';'.join(part.replace(';', ',') for part in path)} {round(seconds * 1e6)}"
        for path, seconds in sorted(stacks.items())
        if round(seconds * 1e6)
    ]
    return "".join(f"{line}\n" for line in lines)


def flame_svg(stacks: Stacks, title: str) -> str:
    """Return a picture: the whole at the bottom, what it consists of above it.

    It needs nothing from outside; a browser shows the name and time of a box that is
    pointed at.

    Args:
        stacks: path from the whole to an operation, and its seconds.
        title: above the picture.
    """
    whole = _Box()
    for path, seconds in sorted(stacks.items()):
        box = whole
        box.seconds += seconds
        for part in path:
            box = box.inside.setdefault(part, _Box())
            box.seconds += seconds
    depth = max(map(len, stacks), default=0) + 1
    height = (depth + 2) * ROW
    parts: list[str] = []
    scale = WIDTH / whole.seconds if whole.seconds else 0.0

    def draw(name: str, box: _Box, left: float, level: int) -> None:
        width = box.seconds * scale
        if width < THINNEST:
            return
        top = height - (level + 1) * ROW
        share = box.seconds / whole.seconds
        told = escape(f"{name}: {box.seconds * 1e3:.2f} ms, {share:.1%}")
        shown = name if len(name) * LETTER < width - 4 else name[: int((width - 8) / LETTER)]
        hue = crc32(name.encode()) % 50
        parts.append(
            f'<g><title>{told}</title><rect x="{left:.1f}" y="{top}" width="{width:.1f}" '
            f'height="{ROW - 1}" fill="hsl({hue},75%,{62 + hue % 3 * 5}%)"/>'
            f'<text x="{left + 3:.1f}" y="{top + 13}">{escape(shown)}</text></g>'
        )
        for inner, inside in sorted(box.inside.items(), key=lambda pair: -pair[1].seconds):
            draw(inner, inside, left, level + 1)
            left += inside.seconds * scale

    draw("update", whole, 0.0, 0)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height}" '
        'font-family="monospace" font-size="11">\n'
        f'<text x="4" y="14" font-weight="bold">{escape(title)}</text>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
