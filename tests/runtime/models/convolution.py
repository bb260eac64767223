"""Shipped specs with convolutions: counts by hand, and small sizes for tests."""

SQUARE = 512 * 512 + 512
"""A linear map at width 512."""
GATED = 2 * 512 * 512 * 3 + 2 * 512
"""A gated convolution of kernel 3 at width 512."""
NARROW = 2 * 1600 + 1600 * 800 + 800 + 2 * 800
"""A norm of 1600, a map to 800, a norm."""
WIDEN = 2 * 800 + 800 * 1600 + 1600
"""A norm of 800, a map to 1600."""
DILATED = 800 * 800 * 3 + 800
UNIT = 3 * (512 * 512 * 3 + 512)
"""Two gates and a candidate, each a convolution of kernel 3 at width 512."""

MODELS = {
    # Two word embeddings and two position tables; four maps into and out of the stacks; 20 encoder
    # layers, and 20 decoder layers with two maps around the attention; a head.
    "conv-s2s": {
        "parameters": 2 * (40_000 + 1_024) * 512
        + 4 * SQUARE
        + 20 * GATED
        + 20 * (GATED + 2 * SQUARE)
        + 40_000 * (512 + 1),
        "small": {"d_embedding": 12, "d_model": 16, "layers": 2, "vocab": 30},
    },
    # Two tables of 323 characters, 60 residual blocks, a norm and a head.
    "bytenet": {
        "parameters": 2 * 323 * 1600
        + 60 * (NARROW + DILATED + WIDEN)
        + 2 * 1600
        + 323 * (1600 + 1),
        "small": {"d_model": 8, "sets": 2, "vocab": 30},
    },
    # Two tables; two units in the encoder, independent of the number of steps; two in the decoder,
    # which also convolve the tape to three times the width; a head.
    "extended-neural-gpu": {
        "parameters": 2 * 32_000 * 512 + 4 * UNIT + 2 * (3 * 512 * 512 * 3) + 32_000 * (512 + 1),
        "small": {"d_model": 8, "steps": 3, "vocab": 30},
    },
}
