"""The Transformer of the paper and its variants: counts by hand, and small sizes."""

SMALL = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 30}

ENCODER_LAYER = 4 * 512**2 + 4 * 512 + 2 * 512 * 2048 + 2048 + 512 + 2 * 2 * 512
"""Attention, feed-forward and two norms, at width 512."""
DECODER_LAYER = ENCODER_LAYER + 4 * 512**2 + 4 * 512 + 2 * 512
"""One more attention and its norm."""
BASE = 37_000 * 512 + 6 * (ENCODER_LAYER + DECODER_LAYER)
BIG = 37_000 * 1024 + 6 * (12_596_224 + 16_796_672)
TINY = 10_000 * 128 + 4 * (132_480 + 198_784)

MODELS = {
    name: {"parameters": count, "small": SMALL}
    for name, count in {
        "transformer-base": BASE,
        "transformer-big": BIG,
        "transformer-tiny": TINY,
    }.items()
}
VARIANTS = {
    name: {"parameters": count, "small": SMALL}
    for name, count in {
        # One more norm of 2 * 512 after each stack.
        "transformer-prenorm": BASE + 2 * 2 * 512,
        # 6 * 2 + 6 * 3 norms lose their shifts of 512.
        "transformer-rmsnorm": BASE - 30 * 512,
        # 3 maps of 512 x 1365 instead of 2 of 512 x 2048, and their biases, in 12 layers.
        "transformer-swiglu": BASE + 12 * (3 * 512 * 1365 + 2 * 1365 - (2 * 512 * 2048 + 2048)),
        # Keys and values of 18 attentions: 2 heads of 64 instead of 8.
        "transformer-gqa": BASE - 18 * 2 * (6 * 64 * 512 + 6 * 64),
        "transformer-rotary": BASE,
        # One layer per stack instead of six.
        "transformer-shared": BASE - 5 * (ENCODER_LAYER + DECODER_LAYER),
        "transformer-local": BASE,
        # Six more layers of the encoder, five fewer of the decoder.
        "transformer-deep-shallow": BASE + 6 * ENCODER_LAYER - 5 * DECODER_LAYER,
        # Two more tables of 37000 x 512.
        "transformer-untied": BASE + 2 * 37_000 * 512,
        "transformer-frozen": BASE,
        "transformer-alibi": BASE,
        # A table of 32 x 8 in each of 12 self-attentions.
        "transformer-t5-bias": BASE + 12 * 32 * 8,
        # A vocabulary of 40960.
        "transformer-released": BASE + 3_960 * 512,
    }.items()
}
