"""Parsers of the paper's section 6.3: counts by hand, and small sizes for tests."""


def count(d_model: int, d_ff: int, layers: int, vocab: int, symbols: int = 128) -> int:
    """Return the parameters: a word table, and a symbol table tied to the output projection.

    All projections but the last have a bias.
    """
    attention = 4 * d_model**2 + 4 * d_model
    feed_forward = 2 * d_model * d_ff + d_ff + d_model
    encoder = attention + feed_forward + 2 * 2 * d_model
    decoder = 2 * attention + feed_forward + 3 * 2 * d_model
    return (vocab + symbols) * d_model + layers * (encoder + decoder)


SMALL = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 30, "target_vocab": 20}
SMALL_TIED = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 30}

MODELS = {
    # 16384000 + 131072 + 4 * (8399872 + 12600320)
    "parsing-wsj": {"parameters": count(1024, 2048, 4, 16_000), "small": SMALL},
    "parsing-semi": {"parameters": count(1024, 2048, 4, 32_000), "small": SMALL},
    # One table for words on both sides and symbols.
    "parsing-copy": {"parameters": count(192, 512, 3, 4_000, 0), "small": SMALL_TIED},
    # As parsing-copy, and a norm at the end of each stack.
    "parsing-aligned": {
        "parameters": count(192, 512, 3, 4_000, 0) + 2 * 2 * 192,
        "small": {**SMALL_TIED, "source_vocab": 20},
    },
    # As parsing-copy, and a query and a gate.
    "parsing-pointer": {
        "parameters": count(192, 512, 3, 4_000, 0) + 192 * 192 + 193,
        "small": SMALL_TIED,
    },
    "parsing-small": {"parameters": count(256, 512, 3, 8_000), "small": SMALL},
}
