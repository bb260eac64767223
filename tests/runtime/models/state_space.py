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

GLA = (
    2 * 512 * 1024  # queries and keys
    + 2 * 1024 * 1024  # values and the output
    + 16 * 1024  # the decays, of rank 16
    + (16 + 1) * 512
    + (1024 + 1) * 1024  # the gate
    + 2 * 256  # the norm of a head
)

MODELS = {
    # A tied table, 24 mixers with a norm before each, and a last norm.
    "mamba": {
        "parameters": 50_288 * 768 + 24 * (768 + MIXER) + 768,
        "small": {"d_model": 8, "heads": 4, "d_state": 5, "chunk": 4, "layers": 2, "vocab": 30},
    },
    # A tied table, 24 layers of GLA and SwiGLU with a norm before each, and a last norm:
    # 341,738,496.
    "gla": {
        "parameters": 32_000 * 1024 + 24 * (GLA + 3 * 1024 * 2816 + 2 * 1024) + 1024,
        "small": {
            "d_model": 16,
            "heads": 2,
            "d_ff": 24,
            "rank": 3,
            "chunk": 4,
            "layers": 2,
            "vocab": 30,
        },
    },
}
