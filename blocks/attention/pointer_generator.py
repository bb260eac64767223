"""Pointer: words of a vocabulary, and copies of what is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Count, Params


class PointerHeadParams(Params):
    """Params of `pointer_head`."""

    vocab: Count
    """Words that may be written; the ids that are read are among them."""


def _signature(params: PointerHeadParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "what writes"),
            port("memory", "f[b s d_memory]", "what may be pointed at"),
            port("ids", "ids:d_source[b s]", "which word a copy of each position is"),
            port("mask", "mask[b s]?", "which positions may be pointed at"),
        ),
        outputs=(port("y", f"f[b t {params.vocab}]", "log-probabilities of words"),),
        behavior={"s": "full"},
    )


def _arguments(params: PointerHeadParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if sizes["d_source"] > params.vocab:
        msg = f"{sizes['d_source']} words are read and only {params.vocab} may be written"
        raise ValueError(msg, f"set vocab to at least {sizes['d_source']}")
    return {name: sizes[name] for name in ("d_model", "d_memory")} | params.model_dump()


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model = arguments["d_model"]
    return {
        "query.weight": (arguments["d_memory"], d_model),
        "gate.weight": (1, d_model),
        "gate.bias": (1,),
        "out.weight": (arguments["vocab"], d_model),
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count query, gate and words of every position that writes, and the scores of pairs."""
    a = arguments
    each = a["d_model"] * (a["d_memory"] + 1 + a["vocab"]) + sizes["s"] * a["d_memory"]
    work: int = 2 * sizes["b"] * sizes["t"] * each
    return work


POINTER_HEAD = BlockType(
    name="pointer_head",
    doc="Words of a vocabulary mixed with copies of what is read; "
    "log (g softmax(W x) + (1 - g) sum of attention to the positions of each word).",
    source="See et al. 2017, section 2.2; Vinyals et al. 2015 (pointer networks), section 2.3",
    params=PointerHeadParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".attention.pointer_generator_module:PointerHead",
    steps=True,
    example={"vocab": 9},
    example_inputs={
        "x": "f[B T 8]",
        "memory": "f[B S 6]",
        "ids": "ids:7[B S]",
        "mask": "mask[B S]",
    },
)
