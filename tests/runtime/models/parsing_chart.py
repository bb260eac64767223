"""Encoder-only parsers: counts by hand, and small sizes for tests."""


def words(d_model: int, d_characters: int, vocab: int) -> int:
    """Return the parameters of words: mapped pieces of 256, characters of 32 in windows of 3."""
    d_pieces = d_model - d_characters
    return vocab * 256 + (256 + 1) * d_pieces + 257 * 32 + (3 * 32 + 1) * d_characters


def heads(d_model: int, labels: int, tags: int) -> int:
    """Return the parameters of span scores (hidden layer of 256 with a norm) and tags."""
    return (d_model + 1) * 256 + 2 * 256 + (256 + 1) * labels + (d_model + 1) * tags


def transformer(d_model: int, layers: int) -> int:
    """Return the parameters of layers, with feed-forward width 4 d_model, and a final norm."""
    attention = 4 * d_model**2 + 4 * d_model
    feed_forward = 8 * d_model**2 + 5 * d_model
    return layers * (attention + feed_forward + 4 * d_model) + 2 * d_model


def lstm(d_model: int, layers: int) -> int:
    """Return the parameters of bidirectional LSTMs, each direction half as wide as the model."""
    half = d_model // 2
    return layers * 2 * 4 * half * (d_model + half + 2)


SMALL = {
    "d_model": 16,
    "d_pieces": 8,
    "d_letters": 6,
    "d_characters": 4,
    "d_hidden": 10,
    "layers": 2,
    "vocab": 30,
    "labels": 5,
    "tags": 7,
}
SIZES = {"S": 9, "P": 3, "C": 5}

MODELS = {
    "parsing-span": {
        "parameters": words(384, 128, 8000) + transformer(384, 6) + heads(384, 100, 45),
        "small": {**SMALL, "heads": 2},
        "sizes": SIZES,
    },
    "parsing-span-lstm": {
        "parameters": words(512, 128, 8000) + lstm(512, 2) + heads(512, 100, 45),
        "small": SMALL,
        "sizes": SIZES,
    },
    "parsing-tags": {
        "parameters": words(512, 128, 8000) + lstm(512, 2) + (512 + 1) * (60 + 120 + 45),
        "small": {
            **{key: SMALL[key] for key in SMALL if key not in ("labels", "d_hidden")},
            "leaves": 6,
            "nodes": 5,
        },
        "sizes": SIZES,
    },
}
