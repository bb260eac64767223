"""Shipped recurrent specs: counts by hand, and small sizes for tests."""

VOCAB = 37_000

MODELS = {
    # Two tables of 512; three GRUs, of 3 * 512 rows, from 512 and state 512, with two biases;
    # additive attention of W, U and v; a head from 512 + 1024 with a bias.
    "gru-attention": {
        "parameters": 2 * VOCAB * 512
        + 3 * 3 * 512 * (512 + 512 + 2)
        + 512 * (512 + 1024 + 1)
        + VOCAB * (512 + 1024 + 1),
        "small": {"d_model": 16, "d_hidden": 12, "vocab": 30},
    },
    # Two tables; LSTMs of 4 rows per unit: two of 256, three residual ones, the decoder's bottom,
    # three that read 1024; additive attention; a head from 512 with a bias.
    "gnmt-small": {
        "parameters": 2 * 32_000 * 512
        + 2 * 4 * 256 * (512 + 256 + 2)
        + 4 * 4 * 512 * (512 + 512 + 2)
        + 3 * 4 * 512 * (1024 + 512 + 2)
        + 512 * (512 + 512 + 1)
        + 32_000 * (512 + 1),
        "small": {"d_model": 16, "layers": 2, "vocab": 30},
    },
    # A table of 512; two layers of two LSTMs of 256 units that read 512; a head of 45 tags:
    # 18,537,005.
    "lstm-tagger": {
        "parameters": 30_000 * 512 + 2 * 2 * 4 * 256 * (512 + 256 + 2) + 45 * (512 + 1),
        "small": {"d_model": 8, "layers": 2, "vocab": 30, "labels": 5},
    },
}
