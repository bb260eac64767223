"""Positions: where dot places the parts of pictures; without dot, where the grid places them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence

from .grid import grid_positions
from .picture import Picture
from .placement import PicturePlacement, read_layouts
from .render import graphviz_output
from .writer import FRAME_LINES, Look, is_large, write

LONGEST_LAYOUT = 60
"""Timeout of dot, in seconds."""


def positions(pictures: Sequence[Picture], look: Look) -> list[PicturePlacement]:
    """Return positions for pictures: those that the SVG has.

    Without dot, every picture is placed as large ones are.

    Args:
        pictures: the pictures.
        look: how they are written.

    Raises:
        InputError: dot fails.
    """
    small = [index for index, picture in enumerate(pictures) if not is_large(picture)]
    layouts: dict[int, PicturePlacement] = {}
    if small:
        text = "".join(write(pictures[index], look).source for index in small)
        try:
            layouts = dict(zip(small, copy.deepcopy(_dot(text)), strict=True))
        except FileNotFoundError:
            layouts = {}
    return [
        layouts.get(index) or grid_positions(picture, FRAME_LINES)
        for index, picture in enumerate(pictures)
    ]


@functools.lru_cache(maxsize=16)
def _dot(text: str) -> list[PicturePlacement]:
    """Return where dot places one or several pictures, in one process.

    Most edits of a spec change no word in its picture.
    """
    content = graphviz_output(["dot", "-Tjson0"], text, "drawing", seconds=LONGEST_LAYOUT)
    return [*read_layouts(content)]
