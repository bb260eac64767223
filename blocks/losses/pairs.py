"""Losses between two outputs of models: divergence of distributions, and contrast of vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Params, only_params

Temperature = Annotated[float, Field(gt=0.0, le=1e6)]
"""A positive number by which logits are divided."""


class KLDivergenceParams(Params):
    """Params of `kl_divergence`."""

    temperature: Temperature = 1.0
    """Divides both logits; the loss is multiplied by its square, so that the gradients keep their
    size (Hinton et al. 2015, section 2)."""
    direction: Literal["forward", "reverse", "symmetric"] = "forward"
    """`forward`: KL(target || logits), for a teacher's distribution; `reverse`: KL(logits ||
    target); `symmetric`: the mean of both (R-Drop)."""


def _divergence_signature(_: KLDivergenceParams, wired: frozenset[str]) -> Signature:
    """Return the signature; the mask, or the classes, tell the number of items."""
    counts = port("mask", "mask[...]", "true at the items that count; or wire 'classes'")
    if "classes" in wired and "mask" not in wired:
        counts = port("classes", "label:v[...]", "items count where it is not negative")
    return Signature(
        inputs=(
            port("logits", "f[... v]", "unnormalized scores of the classes"),
            port("target", "f[... v]", "unnormalized scores to compare with"),
            counts,
        ),
        outputs=(port("loss", "loss[]", "sum over the items that count"),),
    )


KL_DIVERGENCE = BlockType(
    name="kl_divergence",
    mixes="",
    doc="Kullback-Leibler divergence of the distributions of two logits, to distil a teacher or "
    "to compare two passes; temperature^2 sum_v p_v (log p_v - log q_v). Both logits get a "
    "gradient: detach those that must not.",
    source="distillation: Hinton et al. 2015, section 2; symmetric: Liang et al. 2021, section 2.1",
    params=KLDivergenceParams,
    signature=_divergence_signature,
    arguments=only_params,
    weighs=("mask", "classes"),
    logits_ports=("logits", "target"),
    module=".losses.pairs_module:KLDivergence",
    example={"temperature": 2.0},
    example_inputs={"logits": "f[B T 11]", "target": "f[B T 11]", "mask": "mask[B T]"},
)


class ContrastiveParams(Params):
    """Params of `contrastive`."""

    temperature: Temperature = 0.07
    """Divides the similarities of the pairs."""
    directions: Literal["both", "forward"] = "both"
    """`both`: choose z for each x and x for each z (mean of both losses); `forward`: only z for
    each x."""


def _contrastive_signature(_: ContrastiveParams, wired: frozenset[str]) -> Signature:
    """Return the signature; the ids, a mask or images of the batch tell the number of pairs."""
    rows = port("ids", "ids:n[b s]", "ids of the batch, for the number of its rows")
    if "ids" not in wired and "mask" in wired:
        rows = port("mask", "mask[b s]", "a mask of the batch, for the number of its rows")
    if "ids" not in wired and "mask" not in wired and "images" in wired:
        rows = port("images", "f[b c h w]", "images of the batch, for the number of its rows")
    return Signature(
        inputs=(
            port("x", "f[b d]", "a vector for each row"),
            port("z", "f[b d]", "the vector that belongs to the same row"),
            rows,
        ),
        outputs=(port("loss", "loss[]", "sum over the pairs"),),
        behavior={"b": "full"},
        by_row=True,
    )


def _contrastive_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the similarities of all pairs."""
    del arguments
    return 2 * sizes["b"] * sizes["b"] * sizes["d"]


CONTRASTIVE = BlockType(
    name="contrastive",
    mixes="",
    doc="Contrastive loss (InfoNCE): of all z of the batch, choose the one that belongs to x, by "
    "cosine similarity; -log softmax_j(cos(x_i, z_j) / temperature) at j = i. The other rows of "
    "the micro-batch on one device are the negatives.",
    source="van den Oord et al. 2018, section 2.3; both directions: Radford et al. 2021, "
    "section 2.3",
    params=ContrastiveParams,
    signature=_contrastive_signature,
    arguments=only_params,
    flops=_contrastive_flops,
    weighs=("ids", "mask", "images"),
    module=".losses.pairs_module:Contrastive",
    example={},
    example_inputs={"x": "f[B 8]", "z": "f[B 8]", "ids": "ids:11[B T]"},
)
