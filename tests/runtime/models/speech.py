"""Shipped specs for speech: counts by hand, and small sizes for tests."""

ATTENTION = 4 * 384**2 + 3 * 384
"""Four maps; the key map has no bias."""
LAYER = ATTENTION + 2 * 384 * 1536 + 1536 + 384 + 2 * 2 * 384
"""Attention, feed-forward and two norms."""
WHISPER = (
    384 * (3 * 80 + 1)  # two convolutions
    + 384 * (3 * 384 + 1)
    + 4 * LAYER
    + 4 * (LAYER + ATTENTION + 2 * 384)  # and attention to the encoder, with a norm
    + 2 * 2 * 384  # the norms at the ends
    + (51_865 + 448) * 384  # words (input and output tied) and their positions
)
"""37,184,640; the published 37,760,640 includes the encoder's sinusoids."""
SMALL = {
    "d_model": 16,
    "heads": 2,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "max_length": 12,
    "vocab": 30,
}

ATTENTION_256 = 4 * 256 * (256 + 1)
FEED_FORWARD_256 = 2 * 256 * 1024 + 1024 + 256
SPEECH = {"d_model": 16, "heads": 2, "layers": 2, "vocab": 30}

MODELS = {
    "whisper": {"parameters": WHISPER, "small": {**SMALL, "mels": 6}},
    # Two convolutions, six layers with two norms each, a norm and the head.
    "speech-ctc": {
        "parameters": 256 * (3 * 80 + 1)
        + 256 * (3 * 256 + 1)
        + 6 * (ATTENTION_256 + FEED_FORWARD_256 + 2 * 2 * 256)
        + 2 * 256
        + 1000 * (256 + 1),
        "small": {**SPEECH, "mels": 6},
    },
    # Words (input and output tied), positions, two layers with three norms each, and a norm.
    "speech-decoder": {
        "parameters": (1000 + 448) * 256
        + 2 * (2 * ATTENTION_256 + FEED_FORWARD_256 + 3 * 2 * 256)
        + 2 * 256,
        "small": {**SPEECH, "d_memory": 12, "max_length": 12},
    },
}
VARIANTS = {"whisper-waveform": {"parameters": WHISPER, "small": SMALL}}
