"""Shipped specs with mixtures of experts: counts by hand, and small sizes for tests."""

ATTENTION = 4 * (512 * 512 + 512) + 2 * 512
"""Four maps and the norm after the attention."""
FEED_FORWARD = 2 * 512 * 2048 + 2048 + 512
MIXTURE = 8 * 512 + 8 * FEED_FORWARD

MODELS = {
    # A tied table; six layers per stack, three of them with a mixture; one more norm per layer.
    "moe-transformer": {
        "parameters": 37_000 * 512
        + 6 * (3 * ATTENTION + 2 * 2 * 512)
        + 6 * (FEED_FORWARD + MIXTURE),
        "small": {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 4, "experts": 4, "vocab": 30},
    },
}
