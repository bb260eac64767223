"""Character CNN: one vector per word from the vectors of its characters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Params


class WordConvolutionParams(Params):
    """Params of `word_convolution`."""

    d_out: Count
    """Width of the output."""
    kernel: Count = 3
    """Size of the convolution kernel, in parts; an even kernel reads one more part after its center
    than before it."""
    pool: Literal["max", "mean"] = "max"
    """How the outputs of a word's parts are pooled, feature by feature."""


def _signature(params: WordConvolutionParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... c d_in]", "vectors of the parts of words, such as characters"),
            port("mask", "mask[... c]?", "true at the parts of a word, false at padding"),
        ),
        outputs=(
            port("y", f"f[... {params.d_out}]", "one vector per word; zeros if it has no parts"),
        ),
        behavior={"c": "full"},
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    return {"weight": (a["d_out"], a["d_in"], a["kernel"]), "bias": (a["d_out"],)}


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    # A mean is taken before the convolution, which is linear.
    places = sizes["c"] if a["pool"] == "max" else 1
    work: int = 2 * sizes["..."] * places * a["d_in"] * a["d_out"] * a["kernel"]
    return work


WORD_CONVOLUTION = BlockType(
    name="word_convolution",
    family="convolution",
    mixes="word",
    doc="One vector per word: a convolution over the vectors of its parts, such as characters, "
    "then max or mean pooling; max_c (sum_k W_k x_{c+k} + b).",
    source="dos Santos & Zadrozny 2014, section 2.1.2; Ma & Hovy 2016, section 2.1",
    params=WordConvolutionParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    module=".convolution.char_cnn_module:WordConvolution",
    example={"d_out": 6},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
