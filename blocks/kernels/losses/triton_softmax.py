"""Triton kernel that turns a chunk of logits into their gradients, with two passes over memory.

torch's operators need about nine: each of maximum, difference, exponential, sum and so on reads
and writes all logits.  `fused_linear_cross_entropy.py` uses it on CUDA; import it only there,
because Triton comes with the CUDA builds of torch alone.

Source: the online normalizer is that of Milakov and Gimelshein 2018, algorithm 3,
https://arxiv.org/abs/1805.02867
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 4096
"""Most logits of a row that one step of a program reads."""
WARPS = 8
LOWEST = -3.0e38
"""Below every logit, and finite, so that differences are numbers."""


@triton.jit  # type: ignore[untyped-decorator]
def rows_kernel(  # type: ignore[no-untyped-def]  # noqa: ANN201, PLR0913, PLR0917
    score_ptr,  # noqa: ANN001
    target_ptr,  # noqa: ANN001
    logsumexp_ptr,  # noqa: ANN001
    right_ptr,  # noqa: ANN001
    vocabulary,  # noqa: ANN001
    stride,  # noqa: ANN001
    shift,  # noqa: ANN001
    LOW: tl.constexpr,
    GRADIENTS: tl.constexpr,
    SIZE: tl.constexpr,
):
    """Normalize one row of logits: its logsumexp, the target's logit, and the gradients.

    Args:
        score_ptr: logits, which gradients replace.
        target_ptr: target ids.
        logsumexp_ptr: logsumexp of each row, float32.
        right_ptr: logit of each target, float32.
        vocabulary: logits of a row.
        stride: elements between two rows.
        shift: what the gradient of the target's logit has beside its probability.
        LOW: as `LOWEST`.
        GRADIENTS: whether to compute gradients; otherwise the logits stay.
        SIZE: power of two, logits that are read at a time.
    """
    row = tl.program_id(0)
    score_ptr += row.to(tl.int64) * stride
    target = tl.load(target_ptr + row)
    tl.store(right_ptr + row, tl.load(score_ptr + target).to(tl.float32))
    lanes = tl.arange(0, SIZE)
    top = tl.full((SIZE,), LOW, tl.float32)
    total = tl.zeros((SIZE,), tl.float32)
    for start in range(0, vocabulary, SIZE):
        inside = start + lanes < vocabulary
        score = tl.load(score_ptr + start + lanes, mask=inside, other=LOW).to(tl.float32)
        higher = tl.maximum(top, score)
        total = total * tl.exp(top - higher) + tl.exp(score - higher)
        top = higher
    best = tl.max(top, 0)
    logsumexp = best + tl.log(tl.sum(total * tl.exp(top - best), 0))
    tl.store(logsumexp_ptr + row, logsumexp)
    if GRADIENTS:
        for start in range(0, vocabulary, SIZE):
            inside = start + lanes < vocabulary
            score = tl.load(score_ptr + start + lanes, mask=inside, other=LOW).to(tl.float32)
            p = tl.exp(score - logsumexp)
            p = tl.where(start + lanes == target, p + shift, p)
            tl.store(score_ptr + start + lanes, p.to(score_ptr.dtype.element_ty), mask=inside)


@torch.library.custom_op("weft::softmax_gradient_", mutates_args=("score_rV",))
def softmax_gradient_(
    score_rV: Tensor,
    target_r: Tensor,
    shift: float,
    gradients: bool,  # noqa: FBT001 - an operator takes its inputs by position
) -> tuple[Tensor, Tensor]:
    """Return the logsumexp and the target's logit of each row; replace logits by gradients.

    The gradient of a logit is its probability; that of the target's logit has `shift` added.

    Args:
        score_rV: logits [r, V]; those of a row are contiguous.
        target_r: target ids [r].
        shift: such as -1 for the negative log-likelihood.
        gradients: whether to replace the logits.
    """
    logsumexp_r, right_r = (
        torch.empty(len(target_r), dtype=torch.float32, device=score_rV.device) for _ in range(2)
    )
    vocabulary = score_rV.size(1)
    rows_kernel[(len(target_r),)](
        score_rV,
        target_r,
        logsumexp_r,
        right_r,
        vocabulary,
        score_rV.stride(0),
        shift,
        LOW=LOWEST,
        GRADIENTS=gradients,
        SIZE=min(BLOCK, triton.next_power_of_2(vocabulary)),
        num_warps=WARPS,
    )
    return logsumexp_r, right_r


@softmax_gradient_.register_fake
def _(
    score_rV: Tensor,
    target_r: Tensor,
    shift: float,
    gradients: bool,  # noqa: FBT001
) -> tuple[Tensor, Tensor]:
    del shift, gradients
    shape = (len(target_r),)
    return (
        score_rV.new_empty(shape, dtype=torch.float32),
        score_rV.new_empty(shape, dtype=torch.float32),
    )
