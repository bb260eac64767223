"""Blocks that prepend learned vectors to a sequence or pool it into one vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, never, port
from ..params import Count, Params


class PrependParams(Params):
    """Params of `prepend`."""

    count: Count = 1
    """Number of learned vectors."""


def _prepend_signature(params: PrependParams, wired: frozenset[str]) -> Signature:
    """Return the signature; it has an extended mask as output only if a mask is wired."""
    longer = f"t+{params.count}"
    outputs = [port("y", f"f[b {longer} d_model]", "the learned vectors, then the sequence")]
    if "mask" in wired:
        doc = "the extended mask, true at the learned vectors"
        outputs.append(port("mask", f"mask[b {longer}]", doc))
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "the sequence"),
            port("mask", "mask[b t]?", "true at non-padding positions"),
        ),
        outputs=tuple(outputs),
        behavior={"t": "causal"},
        passes_on={"y": "x", "mask": "mask"} if "mask" in wired else {"y": "x"},
    )


def _prepend_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["count"], arguments["d_model"])}


PREPEND = BlockType(
    name="prepend",
    mixes="",
    doc="Prepend learned vectors to a sequence, such as a class token; y = [w; x].",
    source="Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1",
    params=PrependParams,
    signature=_prepend_signature,
    weights=_prepend_weights,
    fans={"weight": "in out"},
    hops=never,
    module=".pooling.pool_module:Prepend",
    example={"count": 2},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)


class PoolParams(Params):
    """Params of `pool`."""

    kind: Literal["first", "last", "mean", "max"] = "mean"
    """The first or last non-padding vector, or the mean or maximum over them per feature."""
    every: Annotated[int, Field(strict=True, ge=2, le=1_000_000)] | None = None
    """Number of neighbors that become one vector; null for all positions."""


def _pool_signature(params: PoolParams, wired: frozenset[str]) -> Signature:
    """Return the signature; of neighbors, it has the shorter mask as output if a mask is wired."""
    every = params.every
    long, short = ("t", "") if every is None else (f"{every}*t", "t ")
    outputs = [port("y", f"f[b {short}d_model]", "one vector each; zeros if all is padding")]
    if every is not None and "mask" in wired:
        outputs.append(port("mask", "mask[b t]", "true where any of the neighbors counts"))
    return Signature(
        inputs=(
            port("x", f"f[b {long} d_model]", "the sequence"),
            port("mask", f"mask[b {long}]?", "true at non-padding positions"),
        ),
        outputs=tuple(outputs),
        behavior={"t": "full"},
        ordered=every is not None or params.kind in ("first", "last"),
    )


def _pool_arguments(params: PoolParams, _: Mapping[str, Any]) -> dict[str, Any]:
    return params.model_dump(exclude_none=True)


POOL = BlockType(
    name="pool",
    mixes="",
    doc="Pool a sequence, or every few neighbors, into one vector: first, last, mean or maximum.",
    source="first: Devlin et al. 2019, section 3.2; last: Radford et al. 2018, section 3.2; "
    "mean and max: Reimers and Gurevych 2019, section 3; neighbors: Dai et al. 2020, section 2",
    params=PoolParams,
    signature=_pool_signature,
    arguments=_pool_arguments,
    hops=lambda arguments, _: 0 if "every" in arguments else 1,
    module=".pooling.pool_module:Pool",
    example={"kind": "mean"},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
