"""Shipped decoder-only specs: counts by hand, and small sizes for tests."""


def llama(d_model: int, d_k: int, heads: int, kv_heads: int, d_ff: int) -> int:
    """Return the parameters of a layer: queries and output, keys and values, 3 maps, 2 norms."""
    attention = 2 * heads * d_k * d_model + 2 * kv_heads * d_k * d_model
    return attention + 3 * d_model * d_ff + 2 * d_model


SMALL = {"d_model": 32, "heads": 4, "kv_heads": 2, "d_k": 8, "d_ff": 48, "layers": 2, "vocab": 30}

MODELS = {
    # Two tables, 32 layers, a norm: 6,738,415,616.
    "llama": {
        "parameters": 2 * 32_000 * 4096 + 32 * llama(4096, 128, 32, 32, 11_008) + 4096,
        "small": SMALL,
    },
    # 7,241,732,096.
    "mistral": {
        "parameters": 2 * 32_000 * 4096 + 32 * llama(4096, 128, 32, 8, 14_336) + 4096,
        "small": {**SMALL, "sliding_window": 4},
    },
    # One table, a norm: 2,506,172,416.
    "gemma": {
        "parameters": 256_000 * 2048 + 18 * llama(2048, 256, 8, 1, 16_384) + 2048,
        "small": SMALL,
    },
    # Two tables; 12 layers with 4 maps of attention and 8 of feed-forward, and two weights of their
    # inputs; 11 shares of the first values, and 6 weights of skips: 162,201,641.
    "modded-nanogpt": {
        "parameters": 2 * 50_304 * 768 + 12 * (12 * 768**2 + 2) + 11 + 6,
        "small": {"d_model": 16, "heads": 2, "layers": 4, "vocab": 30},
        "updates": 3,  # the output map and the last maps of all layers begin at 0
    },
}
VARIANTS = {
    # One table and a norm for 30 layers, 134,515,008.
    "llama-tied": {
        "parameters": 49_152 * 576 + 30 * llama(576, 64, 9, 3, 1536) + 576,
        "small": SMALL,
    },
}
