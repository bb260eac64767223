"""Variants of mixtures of experts whose ports or behavior differ."""

from __future__ import annotations

from dataclasses import replace

from weft.blocks.feed_forward.mixture_of_experts import MIXTURE_OF_EXPERTS
from weft.graphs.ir.block_type import BlockType

VARIANTS: dict[str, BlockType] = {
    "mixture, no mask": replace(
        MIXTURE_OF_EXPERTS,
        example={"experts": 3, "d_ff": 10, "activation": "gelu", "bias": False},
        example_inputs={"x": "f[B T 8]"},
    ),
    "mixture, gated": replace(
        MIXTURE_OF_EXPERTS,
        example={"experts": 3, "d_ff": 10, "activation": "silu", "gated": True},
    ),
    "mixture, bounded gates": replace(
        MIXTURE_OF_EXPERTS,
        example={"experts": 3, "d_ff": 10, "gated": True, "limit": 0.5, "offset": 1.0},
    ),
    "mixture, sigmoid scores in groups": replace(
        MIXTURE_OF_EXPERTS,
        example={
            "experts": 6,
            "d_ff": 10,
            "scores": "sigmoid",
            "scaling": 2.5,
            "router_bias": True,
            "choice_bias": True,
            "groups": 3,
            "top_groups": 2,
        },
    ),
    "mixture, one expert each": replace(
        MIXTURE_OF_EXPERTS, example={"experts": 3, "d_ff": 16, "top_k": 1}
    ),
}
