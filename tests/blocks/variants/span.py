"""Variants of span scores, word vectors and pointers whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.attention.pointer_generator import POINTER_HEAD
from weft.blocks.convolution.char_cnn import WORD_CONVOLUTION
from weft.blocks.pooling.span import SPAN_SCORE
from weft.graphs.ir.block_type import BlockType

WORDS = {"x": "f[B T S 8]"}

READ = {"x": "f[B T 8]", "memory": "f[B S 6]", "ids": "ids:9[B S]"}

VARIANTS: dict[str, BlockType] = {
    "pointer_head, no mask": replace(POINTER_HEAD, example_inputs=READ),
    "span_score, no mask": replace(SPAN_SCORE, example_inputs={"x": "f[B T 8]"}),
    "word_convolution, no mask": replace(
        WORD_CONVOLUTION, example={"d_out": 6, "kernel": 1}, example_inputs={"x": "f[B T 8]"}
    ),
    "word_convolution, mean": replace(
        WORD_CONVOLUTION, example={"d_out": 6, "kernel": 5, "pool": "mean"}
    ),
    "word_convolution, even": replace(WORD_CONVOLUTION, example={"d_out": 6, "kernel": 4}),
    "word_convolution, words": replace(WORD_CONVOLUTION, example_inputs=WORDS),
}
