"""Variants of losses and noise whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.losses.cross_entropy import CROSS_ENTROPY
from weft.blocks.losses.ctc import CTC
from weft.blocks.losses.elementwise import BINARY_CROSS_ENTROPY, MEAN_SQUARED_ERROR
from weft.blocks.losses.pairs import CONTRASTIVE, KL_DIVERGENCE
from weft.blocks.noise.corrupt import DROP_TOKENS, MASK_TOKENS, SAMPLE_TOKENS
from weft.blocks.noise.structure import PREFIX_MASK
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "cross_entropy, classes": replace(
        CROSS_ENTROPY,
        example={"label_smoothing": 0.1, "spread": "others"},
        example_inputs={"logits": "f[B 11]", "classes": "label:11[B]"},
    ),
    "binary_cross_entropy, labels": replace(
        BINARY_CROSS_ENTROPY, example_inputs={"logits": "f[B 8]", "labels": "f[B 8]"}
    ),
    "binary_cross_entropy, truth": replace(
        BINARY_CROSS_ENTROPY, example_inputs={"logits": "f[B T 1]", "truth": "mask[B T]"}
    ),
    "mean_squared_error, numbers": replace(
        MEAN_SQUARED_ERROR, example_inputs={"x": "f[B 1]", "numbers": "f[B]"}
    ),
    "kl_divergence, classes": replace(
        KL_DIVERGENCE,
        example={"direction": "symmetric"},
        example_inputs={"logits": "f[B 11]", "target": "f[B 11]", "classes": "label:11[B]"},
    ),
    "contrastive, mask": replace(
        CONTRASTIVE,
        example={"directions": "forward"},
        example_inputs={"x": "f[B 8]", "z": "f[B 8]", "mask": "mask[B T]"},
    ),
    "ctc, sentences": replace(
        CTC,
        example={"per": "sentences", "blank": 10},
        example_inputs={"logits": "f[B S 11]", "labels": "ids:11[B T]"},
    ),
    "mask_tokens, uniform": replace(
        MASK_TOKENS, example={"rate": "uniform", "random": 0.0, "keep": 0.0, "first": 6}
    ),
    "drop_tokens, training": replace(DROP_TOKENS, example={}),
    "sample_tokens, all": replace(SAMPLE_TOKENS, example_inputs={"logits": "f[B T 11]"}),
    "prefix_mask, no mask": replace(PREFIX_MASK, example_inputs={"ids": "ids:11[B T]"}),
}
