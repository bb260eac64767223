"""Shipped specs that predict all words in parallel: counts by hand, and small sizes."""

MODELS = {
    # transformer-base with a length token, and a map to 256 lengths.
    "mask-predict": {
        "parameters": 63_082_496 + 512 + 256 * (512 + 1),
        "small": {
            "d_model": 32,
            "heads": 4,
            "d_ff": 48,
            "layers": 2,
            "vocab": 30,
            "max_length": 16,
        },
    },
}
