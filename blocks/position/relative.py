"""Relative positions: terms of the attention scores that depend on distances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import BlockType, Needs, NoParams, Prunable, Signature, port
from ..params import Count, Epsilon, Flag, Params


class RelativeBiasParams(Params):
    """Params of `relative_bias`."""

    buckets: Count = 32
    """Number of distance buckets; unless `causal`, half are for later keys."""
    max_distance: Count = 128
    """Distance from which on all distances share the last bucket."""
    causal: Flag = False
    """Whether all buckets are for earlier keys, as in causal attention."""


class RelativeKeysParams(Params):
    """Params of `relative_keys`."""

    reach: Count = 16
    """Distance at which distances are clipped, on either side."""
    causal: Flag = False
    """Whether there are no vectors for later keys, as in causal attention."""


class TransformerXLPositionParams(Params):
    """Params of `transformer_xl_position`."""

    d_position: Count | None = None
    """Width of the sinusoidal encodings of distances, an even number; heads * d_k by default."""


class DisentangledPositionParams(Params):
    """Params of `disentangled_position`."""

    buckets: Count = 512
    """Number of vectors of distances on either side; larger distances share the last one."""
    max_distance: Count | None = None
    """If given, distances above buckets / 2 share vectors, whose bounds grow logarithmically up to
    this distance; otherwise each distance has its own."""
    d_position: Count | None = None
    """Width of the vectors; heads * d_k by default."""
    norm: Literal["none", "layer_norm"] = "none"
    """Norm of the vectors before their linear maps."""
    eps: Annotated[Epsilon, Needs("norm", ("layer_norm",))] = 1e-7
    """Added to the variance."""


def _signature(_: Params, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("query", "f[b heads t d_k]", "queries"),
            port("key", "f[b groups s d_k]", "keys"),
        ),
        outputs=(port("y", "f[b heads t s]", "term of the scores"),),
        sized=("heads",),
    )


def _heads(_: NoParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {"heads": sizes["heads"]}


ALIBI = BlockType(
    name="alibi",
    title="ALiBi",
    family="position",
    mixes="",
    fills="position",
    doc="Subtract a multiple of the distance from the scores of each head; head h of H, from 1, "
    "subtracts 2^(-8h/H) * |distance|.",
    source="Press et al. 2022, section 3",
    signature=_signature,
    arguments=_heads,
    carries=lambda _: "",
    module=".position.relative_module:Alibi",
    example_inputs={"query": "f[B 2 T 4]", "key": "f[B 2 S 4]"},
)


def _bias_arguments(params: RelativeBiasParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: the buckets cannot be divided, or `max_distance` is too small for them.
    """
    parts = 2 if params.causal else 4
    if params.buckets % (parts // 2) or params.buckets < parts:
        rule = "at least 2" if params.causal else "an even number of at least 4"
        msg = f"buckets is {params.buckets}, but it must be {rule}"
        raise ValueError(msg, f"use {max(parts, params.buckets + params.buckets % 2)} buckets")
    exact = params.buckets // parts
    if params.max_distance <= exact:
        msg = f"max_distance is {params.max_distance}, but it must be above {exact}"
        raise ValueError(msg, f"use a max_distance above {exact}, or fewer buckets")
    return {"heads": sizes["heads"], **params.model_dump()}


def _bias_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["buckets"], arguments["heads"])}


RELATIVE_BIAS = BlockType(
    name="relative_bias",
    title="relative bias",
    family="position",
    mixes="",
    fills="position",
    doc="Add a learned bias per head and bucket of distances to the scores; near distances have a "
    "bucket each, and the bounds of the others grow logarithmically.",
    source="Raffel et al. 2020, section 2.1",
    params=RelativeBiasParams,
    signature=_signature,
    arguments=_bias_arguments,
    weights=_bias_weights,
    fans={"weight": "in out"},
    prunable=Prunable(rows={}, last_axis=("weight",)),
    carries=lambda _: "",
    module=".position.relative_module:RelativeBias",
    example={"buckets": 4, "max_distance": 3},
    example_inputs={"query": "f[B 2 T 4]", "key": "f[B 2 S 4]"},
)


def _keys_arguments(params: RelativeKeysParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {"d_k": sizes["d_k"], **params.model_dump()}


def _distances(arguments: Mapping[str, Any]) -> int:
    """Return the number of distances that have a vector."""
    reach: int = arguments["reach"]
    return reach + 1 if arguments["causal"] else 2 * reach + 1


def _keys_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (_distances(arguments), arguments["d_k"])}


def _keys_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the products of every query with every distance's vector."""
    queries = sizes["b"] * sizes["heads"] * sizes["t"]
    work: int = 2 * queries * arguments["d_k"] * _distances(arguments)
    return work


RELATIVE_KEYS = BlockType(
    name="relative_keys",
    title="relative keys",
    family="position",
    mixes="",
    fills="position",
    doc="Add a learned vector per clipped distance, shared by all heads, to the keys; "
    "q (k + w[distance]).",
    source="Shaw et al. 2018, section 3.2, for keys only",
    params=RelativeKeysParams,
    signature=_signature,
    arguments=_keys_arguments,
    weights=_keys_weights,
    fans={"weight": "in out"},
    flops=_keys_flops,
    prunable=Prunable(rows={}),
    carries=lambda _: "",
    module=".position.relative_module:RelativeKeys",
    example={"reach": 2},
    example_inputs={"query": "f[B 2 T 4]", "key": "f[B 2 S 4]"},
)


def _xl_arguments(params: TransformerXLPositionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: the width of the encodings is odd.
    """
    width = params.d_position or sizes["heads"] * sizes["d_k"]
    if width % 2:
        msg = f"d_position is {width}, which is odd, but sines and cosines come in pairs"
        raise ValueError(msg, "set d_position to an even number")
    return {"heads": sizes["heads"], "d_k": sizes["d_k"], "d_position": width}


def _xl_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    heads, d_k = arguments["heads"], arguments["d_k"]
    return {
        "content_bias": (heads, d_k),
        "position_bias": (heads, d_k),
        "distance.weight": (heads * d_k, arguments["d_position"]),
    }


def _xl_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the map of the encodings of all distances, and its products with every query."""
    a, t = arguments, sizes["t"]
    distances, width = t + sizes["s"] - 1, arguments["heads"] * arguments["d_k"]
    work: int = 2 * distances * width * (a["d_position"] + sizes["b"] * t)
    return work


TRANSFORMER_XL_POSITION = BlockType(
    name="transformer_xl_position",
    title="relative positions",
    family="position",
    mixes="",
    fills="position",
    doc="Relative positions of Transformer-XL, from sinusoidal encodings R of distances; "
    "q k + u k + (q + v) W R[distance].",
    source="Dai et al. 2019, section 3.3",
    params=TransformerXLPositionParams,
    signature=_signature,
    arguments=_xl_arguments,
    weights=_xl_weights,
    fans={"content_bias": "out out", "position_bias": "out out"},
    flops=_xl_flops,
    carries=lambda _: "",
    module=".position.relative_module:TransformerXLPosition",
    example={},
    example_inputs={"query": "f[B 2 T 4]", "key": "f[B 2 S 4]"},
)


def _disentangled_arguments(
    params: DisentangledPositionParams, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: `buckets` is too small for logarithmic ones, or `max_distance` for them.
    """
    half = params.buckets // 2
    if params.max_distance is not None and (half < 1 or params.max_distance <= half + 1):
        msg = f"max_distance is {params.max_distance}, but it must be above {half + 1}"
        if half < 1:
            msg = "buckets is 1, but logarithmic ones need at least 2"
        raise ValueError(msg, "use a larger max_distance, or none, or other buckets")
    width = params.d_position or sizes["heads"] * sizes["d_k"]
    arguments = {**params.model_dump(), "d_position": width}
    return {"heads": sizes["heads"], "d_k": sizes["d_k"], **arguments}


def _disentangled_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, of_heads = arguments["d_position"], arguments["heads"] * arguments["d_k"]
    weights: dict[str, tuple[int, ...]] = {"weight": (2 * arguments["buckets"], width)}
    if arguments["norm"] == "layer_norm":
        weights |= {"norm.weight": (width,), "norm.bias": (width,)}
    for name in ("query", "key"):
        weights |= {f"{name}.weight": (of_heads, width), f"{name}.bias": (of_heads,)}
    return weights


def _disentangled_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count both maps of the vectors, and their products with every key and every query."""
    a = arguments
    positions = sizes["b"] * (sizes["t"] + sizes["s"])
    per_bucket = a["heads"] * a["d_k"] * (2 * a["d_position"] + positions)
    work: int = 2 * 2 * a["buckets"] * per_bucket
    return work


DISENTANGLED_POSITION = BlockType(
    name="disentangled_position",
    title="disentangled positions",
    family="position",
    mixes="",
    fills="position",
    doc="Relative positions of DeBERTa, with queries and keys of learned vectors of distances; "
    "q_i k_d + k_j q_d, d the distance i - j.  The scale of the scores is 1 / sqrt(3 d_k) there.",
    source="He et al. 2021, DeBERTa, section 3.1; logarithmic buckets and shared maps (by a tie): "
    "He et al. 2021, DeBERTaV3, and the released code",
    params=DisentangledPositionParams,
    signature=_signature,
    arguments=_disentangled_arguments,
    weights=_disentangled_weights,
    fans={"weight": "in out"},
    flops=_disentangled_flops,
    carries=lambda _: "",
    module=".position.relative_module:DisentangledPosition",
    example={"buckets": 4},
    example_inputs={"query": "f[B 2 T 4]", "key": "f[B 2 S 4]"},
)
