"""Shipped specs for images: counts by hand, and small sizes for tests."""

MODELS = {
    # Patches of 16 x 16 x 3, a class token, 197 positions; 12 layers of attention,
    # feed-forward and two norms; a norm and 1000 labels: 86,567,656.
    "vit": {
        "parameters": 768 * (16 * 16 * 3 + 1)
        + 768
        + 197 * 768
        + 12 * (4 * (768 + 1) * 768 + (768 + 1) * 3072 + (3072 + 1) * 768 + 2 * 2 * 768)
        + 2 * 768
        + (768 + 1) * 1000,
        "small": {
            "d_model": 16,
            "heads": 2,
            "layers": 2,
            "height": 8,
            "width": 12,
            "patch": 4,
            "labels": 5,
        },
    },
}
