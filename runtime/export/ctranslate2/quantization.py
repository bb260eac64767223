"""Number formats of exported weights, without the code that writes them."""

QUANTIZATIONS = (
    "float32",
    "float16",
    "bfloat16",
    "int16",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
)
"""The formats in which CTranslate2 stores weights."""
