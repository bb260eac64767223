"""Variants of layer wiring and attention: counts by hand, and small sizes for tests."""


def layers(d_model: int) -> tuple[int, int]:
    """Return the parameters of an encoder layer and a decoder layer, all maps with biases."""
    attention, norm = 4 * d_model**2 + 4 * d_model, 2 * d_model
    feed_forward = 2 * d_model * 4 * d_model + 5 * d_model
    encoder = attention + feed_forward + 2 * norm
    return encoder, encoder + attention + norm


SMALL = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 30}
BERT = {"d_model": 16, "heads": 2, "layers": 2, "vocab": 30, "max_length": 48}
BASE = 37_000 * 512 + 6 * sum(layers(512))
NORM = 2 * 512


def masked_words(vocab: int, layer: int) -> int:
    """Return parameters: words, 4096 positions, norm, 12 layers, head (map, norm, bias)."""
    head = 768**2 + 768 + 2 * 768 + vocab
    return (vocab + 4096) * 768 + 2 * 768 + 12 * layer + head


MODELS = {
    # Global positions have separate queries, keys and values.
    "longformer": {
        "parameters": masked_words(50_265, layers(768)[0] + 3 * (768**2 + 768)),
        "small": {**BERT, "block": 4, "window": 3},
    },
    "bigbird": {
        "parameters": masked_words(50_358, layers(768)[0]),
        "small": {**BERT, "block": 2, "random_blocks": 2},
    },
    # Words, positions and types of width 128, a norm, a map to 768; one layer used twelve times;
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
    # One layer per stack, at twice the width of the base; positions and steps are sinusoids.
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
        # Each layer loses one norm, because two sub-layers are parallel.
        "transformer-parallel": BASE - 12 * NORM + 2 * NORM,
        # A scalar per sub-layer instead of its norm.
        "transformer-rezero": BASE - 30 * NORM + 30,
        # A vector per sub-layer, and a norm after each stack.
        "transformer-layerscale-droppath": BASE + 30 * 512 + 2 * NORM,
        # A scalar for each of 8 heads in 18 attentions.
        "transformer-headgates": BASE + 18 * 8,
        # The same maps as the base.
        "linear-transformer": BASE,
    }.items()
}
# Update 1 moves the decoder's scales from 0, update 2 the encoder's, update 3 the scaled weights.
VARIANTS["transformer-rezero"]["updates"] = 3
