"""Batch normalization over all positions of a batch that are not padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Epsilon, Params


class BatchNormParams(Params):
    """Params of `batch_norm`."""

    eps: Epsilon = 1e-5
    """Added to the variance."""
    momentum: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Weight of the statistics of one batch in the running statistics."""


def _signature(_: BatchNormParams, __: frozenset[str]) -> Signature:
    """Return the signature; in evaluation, a position depends on itself alone."""
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; the others do not count"),
        ),
        outputs=(port("y", "f[b t d_model]", "normalized, scaled and shifted vectors"),),
        scale="normalized",
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the scale, the shift and the running statistics, which are saved but not trained."""
    width = (arguments["d_model"],)
    return dict.fromkeys(("weight", "bias", "running_mean", "running_variance"), width)


BATCH_NORM = BlockType(
    name="batch_norm",
    family="norm",
    doc="Batch normalization of each feature over all non-padding positions of the batch; "
    "weight * (x - mean) / sqrt(variance + eps) + bias, in evaluation with running statistics.",
    source="Ioffe and Szegedy 2015, section 3; in Conformer: Gulati et al. 2020, section 2.2",
    params=BatchNormParams,
    signature=_signature,
    weights=_weights,
    module=".residual.batch_norm_module:BatchNorm",
    example={},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
