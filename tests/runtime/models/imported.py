"""Shipped specs of pretrained models: published counts by hand, and small sizes for tests."""


def attention(d_model: int, inner: int | None = None) -> int:
    """Return the parameters of four maps with biases."""
    inner = inner or d_model
    return 3 * (d_model + 1) * inner + (inner + 1) * d_model


def feed_forward(d_model: int) -> int:
    """Return the parameters of two maps with biases and an inner width of 4 d_model."""
    return (d_model + 1) * 4 * d_model + (4 * d_model + 1) * d_model


def encoder_decoder(d_model: int, layers: int) -> int:
    """Return the parameters of both stacks' layers, with two and three norms."""
    encoder = attention(d_model) + feed_forward(d_model) + 2 * 2 * d_model
    return layers * (2 * encoder + attention(d_model) + 2 * d_model)


SMALL = {"d_model": 16, "heads": 2, "layers": 2, "vocab": 30}
T5_LAYER = 4 * 512 * 512 + 2 * 512 * 2048 + 2 * 512

T5_GATED = 4 * 512 * 6 * 64 + 3 * 512 * 1024 + 2 * 512
"""A layer of T5 1.1, whose heads together are narrower than d_model."""

BERT = (30_522 + 512 + 2) * 768 + 2 * 768 + 12 * (attention(768) + feed_forward(768) + 2 * 2 * 768)
"""BERT without a head."""
LAYERED = {**SMALL, "max_length": 48}

VARIANTS = {
    # A layer of tanh, and a head of two classes: 109,483,778.
    "bert-classifier": {
        "parameters": BERT + (768 + 1) * 768 + 2 * (768 + 1),
        "small": {**LAYERED, "labels": 5},
    },
    # A layer of tanh, and a head of one number: 109,483,009.
    "bert-regressor": {"parameters": BERT + (768 + 1) * 768 + (768 + 1), "small": LAYERED},
    # A head of two tags: 108,893,186.
    "bert-tagger": {"parameters": BERT + 2 * (768 + 1), "small": {**LAYERED, "labels": 5}},
    # As gpt2.
    "gpt2-prefix": {"parameters": 124_439_808, "small": LAYERED},
    # As T5, with heads of 6 x 64, gates, and an untied output projection: 76,961,152.
    "t5-1.1": {
        "parameters": 2 * 32_128 * 512
        + 16 * T5_GATED
        + 8 * (4 * 512 * 6 * 64 + 512)
        + 2 * 512
        + 2 * 32 * 6,
        "small": {**SMALL, "d_k": 8, "d_ff": 24},
    },
}
MODELS = {
    # Words, positions and types; a norm; 12 layers; a map, a norm and a bias: 109,514,298.
    "bert": {
        "parameters": (30_522 + 512 + 2) * 768
        + 2 * 768
        + 12 * (attention(768) + feed_forward(768) + 2 * 2 * 768)
        + (768 + 1) * 768
        + 2 * 768
        + 30_522,
        "small": {**SMALL, "max_length": 48},
    },
    # Words and positions, 12 layers, a norm: 124,439,808.
    "gpt2": {
        "parameters": (50_257 + 1024) * 768
        + 12 * (attention(768) + feed_forward(768) + 2 * 2 * 768)
        + 2 * 768,
        "small": {**SMALL, "max_length": 48},
    },
    # Words, two tables of positions, two norms, a bias of the output projection.
    "bart": {
        "parameters": (50_265 + 2 * 1024) * 1024
        + 2 * 2 * 1024
        + encoder_decoder(1024, 12)
        + 50_265,
        "small": {**SMALL, "max_length": 48},
    },
    # Words and a bias of the output projection.
    "marian": {
        "parameters": 58_101 * (512 + 1) + encoder_decoder(512, 6),
        "small": SMALL,
    },
    # Words, 12 layers and 6 more attentions with a norm, two norms, two tables of 32 x 8:
    # 60,506,624.
    "t5": {
        "parameters": 32_128 * 512
        + 12 * T5_LAYER
        + 6 * (4 * 512 * 512 + 512)
        + 2 * 512
        + 2 * 32 * 8,
        "small": {**SMALL, "d_k": 8, "d_ff": 24},
    },
}
