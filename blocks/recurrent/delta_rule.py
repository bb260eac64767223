"""The delta rule: a state that maps keys to values, corrected at each position."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Flag, Params


class DeltaRuleParams(Params):
    """Params of `delta_rule`."""

    heads: Count = 1
    """Number of heads; the vectors are split into heads, in order."""
    normalize: Flag = True
    """Whether queries and keys are divided by their norms, so that the state cannot grow."""
    chunk: Count = 64
    """Chunk size in positions for the parallel computation; it affects time and memory, not the
    result."""


def _signature(params: DeltaRuleParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("query", "f[b t d_key]", "queries"),
            port("key", "f[b t d_key]", "keys"),
            port("value", "f[b t d_value]", "values"),
            port("beta", f"f[b t {params.heads}]", "how far each head corrects, from 0 to 1"),
            port("log_alpha", f"f[b t {params.heads}]?", "log of the decay of each head's state"),
            port("mask", "mask[b t]?", "true at positions that update the state"),
        ),
        outputs=(port("y", "f[b t d_value]", "value that the state has for each query"),),
        behavior={"t": "causal"},
    )


def _arguments(params: DeltaRuleParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    heads = params.heads
    for name, width in (("keys", sizes["d_key"]), ("values", sizes["d_value"])):
        if width % heads:
            msg = f"the width of the {name}, {width}, is not divisible by {heads} heads"
            fits = [h for h in range(1, heads + 1) if width % h == 0]
            raise ValueError(msg, f"use {fits[-1]} heads")
    widths = {"d_k": sizes["d_key"] // heads, "d_v": sizes["d_value"] // heads}
    return {**params.model_dump(), **widths}


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the products of all chunks, padding included, and of their transitions with states.

    Per chunk and head: the products of keys with keys and queries, the state update, its two
    read-outs and the scores with the values.  The triangular systems are not counted.
    """
    d_k, d_v, chunk = arguments["d_k"], arguments["d_v"], arguments["chunk"]
    chunks = -(-sizes["t"] // chunk)
    within = chunk**2 * (2 * d_k + d_v) + chunk * d_k * (d_k + 3 * d_v)
    work: int = chunks * within + (chunks - 1) * d_k * d_k * d_v
    return 2 * sizes["b"] * int(arguments["heads"]) * work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return the map from keys to values of each head."""
    a = arguments
    return {"state": StateTensor((sizes["b"], a["heads"], a["d_k"], a["d_v"]), "float32")}


DELTA_RULE = BlockType(
    name="delta_rule",
    family="recurrent",
    mixes="delta rule",
    doc="Delta rule without weights: each head keeps a map from keys to values, which each "
    "position corrects by the difference between its value and the one stored for its key; "
    "S_t = alpha_t S_{t-1} (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, y_t = S_t q_t.",
    source="Schlag et al. 2021, section 4.2; chunks: Yang et al. 2024b, section 3; alpha: Yang et "
    "al. 2025, section 3",
    params=DeltaRuleParams,
    signature=_signature,
    arguments=_arguments,
    flops=_flops,
    module=".recurrent.delta_rule_module:DeltaRule",
    onnx_form="_solved=.recurrent.delta_rule_onnx:solved",
    steps=True,
    state=_state,
    example={"heads": 2, "chunk": 4},
    example_inputs={
        "query": "f[B T 8]",
        "key": "f[B T 8]",
        "value": "f[B T 6]",
        "beta": "f[B T 2]",
        "mask": "mask[B T]",
    },
)
