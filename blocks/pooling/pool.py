"""Sequence: blocks that make a sequence longer or shorter, or one vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ..params import Count, Params


class PrependParams(Params):
    """Params of `prepend`."""

    count: Count = 1
    """How many learned vectors go before the sequence."""


def _prepend_signature(params: PrependParams, wired: frozenset[str]) -> Signature:
    """The mask grows with the sequence; it is given only where one is wired."""
    longer = f"t+{params.count}"
    outputs = [port("y", f"f[b {longer} d_model]", "the learned vectors, then the sequence")]
    if "mask" in wired:
        outputs.append(port("mask", f"mask[b {longer}]", "true for the learned vectors"))
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("mask", "mask[b t]?", "which of them may be read"),
        ),
        outputs=tuple(outputs),
        behavior={"t": "causal"},
    )


def _prepend_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["count"], arguments["d_model"])}


PREPEND = BlockType(
    name="prepend",
    doc="Learned vectors before a sequence, such as a class token; y = [w; x].",
    source="Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1",
    params=PrependParams,
    signature=_prepend_signature,
    weights=_prepend_weights,
    hops=never,
    module=".pooling.pool_module:Prepend",
    example={"count": 2},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)


class PoolParams(Params):
    """Params of `pool`."""

    kind: Literal["first", "last", "mean", "max"] = "mean"
    """Which vector of those that may be read, or what of all of them, number by number."""


def _pool_signature(_: PoolParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("mask", "mask[b t]?", "which of them may be read"),
        ),
        outputs=(port("y", "f[b d_model]", "one vector; zeros where none may be read"),),
        behavior={"t": "full"},
    )


def _pool_arguments(params: PoolParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return params.model_dump()


POOL = BlockType(
    name="pool",
    doc="One vector for a sequence: its first, its last, the mean or the greatest numbers.",
    source="first: Devlin et al. 2019, section 3.2; last: Radford et al. 2018, section 3.2; "
    "mean and max: Reimers and Gurevych 2019, section 3",
    params=PoolParams,
    signature=_pool_signature,
    arguments=_pool_arguments,
    module=".pooling.pool_module:Pool",
    example={"kind": "mean"},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
