"""Pointer-generator head: generate a word from the vocabulary or copy one from the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Params


class PointerHeadParams(Params):
    """Params of `pointer_head`."""

    vocab: Count
    """Size of the output vocabulary; the source ids must be ids of it too."""


def _signature(params: PointerHeadParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "decoder vectors"),
            port("memory", "f[b s d_memory]", "encoded source, which may be copied from"),
            port("ids", "ids:d_source[b s]", "ids of the source words"),
            port("mask", "mask[b s]?", "true at source positions that may be copied"),
        ),
        outputs=(port("y", f"f[b t {params.vocab}]", "log-probabilities of the next word"),),
        behavior={"s": "full"},
        ordered=False,
    )


def _arguments(params: PointerHeadParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    if sizes["d_source"] > params.vocab:
        msg = f"vocab is {params.vocab}, but the source vocabulary has {sizes['d_source']} ids"
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
    """Count the query, gate and vocabulary maps of every position, and the scores of all pairs."""
    a = arguments
    per_position = a["d_model"] * (a["d_memory"] + 1 + a["vocab"]) + sizes["s"] * a["d_memory"]
    work: int = 2 * sizes["b"] * sizes["t"] * per_position
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the encoded source, its ids and its mask."""
    rows, length = sizes["b"], sizes["s"]
    state = {
        "memory": StateTensor((rows, length, arguments["d_memory"])),
        "ids": StateTensor((rows, length), "int64"),
    }
    return state | ({"mask": StateTensor((rows, length), "bool")} if "mask" in wired else {})


POINTER_HEAD = BlockType(
    name="pointer_head",
    family="linear",
    mixes="pointer",
    doc="Pointer-generator head: a gated mixture of generating a word and copying a source word; "
    "log(g softmax(W x) + (1 - g) a), a_w the summed attention to the positions of word w.",
    source="See et al. 2017, section 2.2; Vinyals et al. 2015 (pointer networks), section 2.3",
    params=PointerHeadParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".attention.pointer_generator_module:PointerHead",
    steps=True,
    state=_state,
    example={"vocab": 9},
    example_inputs={
        "x": "f[B T 8]",
        "memory": "f[B S 6]",
        "ids": "ids:7[B S]",
        "mask": "mask[B S]",
    },
)
