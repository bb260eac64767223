"""Shipped state space specs: counts by hand, and small sizes for tests."""

CONVOLVED = 1536 + 2 * 128
"""x, B and C of one group."""
MIXER = (
    768 * (1536 + CONVOLVED + 24)
    + CONVOLVED * (4 + 1)  # a kernel of 4 and a bias
    + 3 * 24  # dt's bias, A and D of each head
    + 1536  # the norm
    + 1536 * 768
)

MODELS = {
    # A tied table, 24 mixers with a norm before each, and a last norm.
    "mamba": {
        "parameters": 50_288 * 768 + 24 * (768 + MIXER) + 768,
        "small": {"d_model": 8, "heads": 4, "d_state": 5, "chunk": 4, "layers": 2, "vocab": 30},
    },
}
