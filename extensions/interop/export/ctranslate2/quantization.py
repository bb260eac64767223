"""Number formats of exported weights, without the code that writes them."""

from __future__ import annotations

from typing import Literal, get_args

Quantization = Literal[
    "float32",
    "float16",
    "bfloat16",
    "int16",
    "int8",
    "int8_float32",
    "int8_float16",
    "int8_bfloat16",
]
"""A format in which CTranslate2 stores weights."""
QUANTIZATIONS: tuple[str, ...] = get_args(Quantization)
