"""Shipped specs that objectives train: counts by hand, and small sizes for tests."""

LAYER = 4 * 768 * (768 + 1) + 2 * 768 * 3072 + 3072 + 768 + 2 * 2 * 768
"""Attention, feed-forward and two norms of BERT base and GPT-2 small."""
NARROW = 4 * 256 * (256 + 1) + 2 * 256 * 1024 + 1024 + 256 + 2 * 2 * 256
"""The same at width 256."""
ENCODER = (30_522 + 512) * 768 + 2 * 768 + 12 * LAYER
"""Words, positions, a norm and twelve layers."""
SMALL = {"d_model": 16, "heads": 2, "vocab": 30, "max_length": 48}

MODELS: dict[str, dict[str, object]] = {}
VARIANTS = {
    # The exits share the norm and the output projection, which is tied to the words.
    "gpt2-exits": {
        "parameters": (50_257 + 1024) * 768 + 12 * LAYER + 2 * 768,
        "small": {**SMALL, "layers": 3},
    },
    "sentence-encoder": {"parameters": ENCODER, "small": {**SMALL, "layers": 2}},
    # A linear map and one score.
    "electra": {
        "parameters": ENCODER + (768 + 1) * 768 + 768 + 1,
        "small": {**SMALL, "layers": 2},
    },
    # Words and positions of width 768 and their norm, a map to 256, layers, a map to 768 with a
    # norm, and a bias of the output projection, which is tied to the words.
    "electra-generator": {
        "parameters": (30_522 + 512) * 768
        + 2 * 768
        + (768 + 1) * 256
        + 12 * NARROW
        + (256 + 1) * 768
        + 2 * 768
        + 30_522,
        "small": {**SMALL, "layers": 2, "d_embedding": 12},
    },
}
