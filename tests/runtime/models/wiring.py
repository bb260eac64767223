"""Wirings of layers, and attentions of other kinds: counts by hand, and small sizes to run."""


def layers(d_model: int) -> tuple[int, int]:
    """Return the weights of an encoder's and of a decoder's layer, all maps with biases."""
    attention, norm = 4 * d_model**2 + 4 * d_model, 2 * d_model
    feed_forward = 2 * d_model * 4 * d_model + 5 * d_model
    encoder = attention + feed_forward + 2 * norm
    return encoder, encoder + attention + norm


SMALL = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 30}
BERT = {"d_model": 16, "heads": 2, "layers": 2, "vocab": 30, "max_length": 48}
BASE = 37_000 * 512 + 6 * sum(layers(512))
NORM = 2 * 512


def masked_words(vocab: int, layer: int) -> int:
    """Count words, 4096 positions, a norm, 12 layers, and the head: a map, a norm, a bias."""
    head = 768**2 + 768 + 2 * 768 + vocab
    return (vocab + 4096) * 768 + 2 * 768 + 12 * layer + head


MODELS = {
    # Global positions have queries, keys and values of their own.
    "longformer": {
        "parameters": masked_words(50_265, layers(768)[0] + 3 * (768**2 + 768)),
        "small": {**BERT, "block": 4, "window": 3},
    },
    "bigbird": {
        "parameters": masked_words(50_358, layers(768)[0]),
        "small": {**BERT, "block": 2, "random_blocks": 2},
    },
    # Words, positions and types of 128 numbers, their norm, a map to 768; one layer for twelve;
    # a map back, a norm, a bias: 11,221,680.
    "albert": {
        "parameters": (30_000 + 512 + 2) * 128
        + 2 * 128
        + 128 * 768
        + 768
        + layers(768)[0]
        + 768 * 128
        + 128
        + 2 * 128
        + 30_000,
        "small": {**BERT, "d_embedding": 12},
    },
    # One layer of each stack, at twice the width of the base; positions and steps are waves.
    "universal-transformer": {
        "parameters": 37_000 * 1024 + sum(layers(1024)),
        "small": {"d_model": 32, "heads": 4, "d_ff": 48, "steps": 3, "vocab": 30},
    },
}
VARIANTS = {
    name: {"parameters": count, "small": SMALL}
    for name, count in {
        # A second norm in each of 30 sub-layers, and one after each stack.
        "transformer-sandwich": BASE + 30 * NORM + 2 * NORM,
        # In each layer one norm goes with the sub-layer that is beside another now.
        "transformer-parallel": BASE - 12 * NORM + 2 * NORM,
        # A number for each sub-layer in place of its norm.
        "transformer-rezero": BASE - 30 * NORM + 30,
        # A vector for each sub-layer, and a norm after each stack.
        "transformer-layerscale-droppath": BASE + 30 * 512 + 2 * NORM,
        # A number for each of 8 heads in 18 attentions.
        "transformer-headgates": BASE + 18 * 8,
        # Maps as before.
        "linear-transformer": BASE,
    }.items()
}
# The decoder's scales leave 0 first, then the encoder's, and then what these scale.
VARIANTS["transformer-rezero"]["updates"] = 3
