"""Word: one vector for each word, from those of its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Params


class WordConvolutionParams(Params):
    """Params of `word_convolution`."""

    d_out: Count
    """Width of the result."""
    kernel: Count = 3
    """Parts that one result of the convolution reads; odd."""
    pool: Literal["max", "mean"] = "max"
    """What becomes of a word's results, number by number."""


def _signature(params: WordConvolutionParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... c d_in]", "vectors of parts, such as characters"),
            port("mask", "mask[... c]?", "which parts a word has"),
        ),
        outputs=(port("y", f"f[... {params.d_out}]", "one vector; zeros for a word of no parts"),),
        behavior={"c": "full"},
    )


def _arguments(params: WordConvolutionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if params.kernel % 2 == 0:
        msg = f"a kernel of {params.kernel} has no middle"
        raise ValueError(msg, f"use {params.kernel + 1}")
    return {**sizes, **params.model_dump()}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    return {"weight": (a["d_out"], a["d_in"], a["kernel"]), "bias": (a["d_out"],)}


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    work: int = 2 * sizes["..."] * sizes["c"] * a["d_in"] * a["d_out"] * a["kernel"]
    return work


WORD_CONVOLUTION = BlockType(
    name="word_convolution",
    doc="A vector for each word from those of its parts, such as characters; "
    "max_c (sum_k W_k x_{c+k} + b), or their mean.",
    source="dos Santos & Zadrozny 2014, section 2.1.2; Ma & Hovy 2016, section 2.1",
    params=WordConvolutionParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".convolution.char_cnn_module:WordConvolution",
    example={"d_out": 6},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
