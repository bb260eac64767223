"""Variants of blocks that take parts of axes, shift and join them."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.axes.concatenate import CONCATENATE
from weft.blocks.axes.shift import SHIFT
from weft.blocks.axes.slice import SLICE, SPLIT
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "slice, from the end": replace(SLICE, example={"axis": "width", "start": 1, "stop": -2}),
    "slice, the rest": replace(SLICE, example={"axis": "width", "start": 3}),
    "slice, every second feature": replace(SLICE, example={"axis": "width", "start": 1, "step": 2}),
    "slice, every third of some": replace(
        SLICE, example={"axis": "width", "start": 1, "stop": 8, "step": 3}
    ),
    "slice, first position": replace(SLICE, example={"index": 0}, example_inputs={"x": "f[B S 8]"}),
    "slice, last position": replace(SLICE, example={"index": -1}, example_inputs={"x": "f[B S 8]"}),
    "slice, some positions": replace(
        SLICE, example={"start": 1, "stop": 3}, example_inputs={"x": "f[B S 8]"}
    ),
    "slice, all but some positions": replace(
        SLICE, example={"start": 1, "stop": -1}, example_inputs={"x": "f[B S 8]"}
    ),
    "slice, every second position": replace(
        SLICE, example={"step": 2}, example_inputs={"x": "f[B 2*S 8]"}
    ),
    "slice, a layer": replace(
        SLICE, example={"axis": "layer", "index": -2}, example_inputs={"x": "f[3 B S 8]"}
    ),
    "slice, layers": replace(
        SLICE, example={"axis": "layer", "start": 1}, example_inputs={"x": "f[3 B S 8]"}
    ),
    "split, three": replace(SPLIT, example={"names": ("a", "b", "c"), "sizes": (1, 5, 2)}),
    "slice, the last positions of ids": replace(
        SLICE, example={"start": -2}, example_inputs={"x": "ids:9[B S]"}
    ),
    "shift, vectors": replace(
        SHIFT, example={"by": 2, "fill": 0.5}, example_inputs={"x": "f[B T 8]"}
    ),
    "shift, vectors in heads": replace(SHIFT, example_inputs={"x": "f[B T 2 4]"}),
    "shift, a mask": replace(SHIFT, example={"by": 3}, example_inputs={"x": "mask[B T]"}),
    "shift, to the left": replace(
        SHIFT, example={"by": -2}, example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"}
    ),
    "shift, ids to the left": replace(SHIFT, example={"by": -1}),
    "concatenate, three": replace(
        CONCATENATE,
        example={"names": ("z", "x", "w")},
        example_inputs={"x": "f[B T 8]", "z": "f[B T 5]", "w": "f[B T 1]"},
    ),
    "concatenate, positions": replace(
        CONCATENATE,
        example={"axis": "time", "names": ("z", "x")},
        example_inputs={"x": "f[B T 8]", "z": "f[B S 8]"},
    ),
    "concatenate, masks": replace(
        CONCATENATE,
        example={"axis": "S", "names": ("z", "x")},
        example_inputs={"x": "mask[B T]", "z": "mask[B S]"},
    ),
}
