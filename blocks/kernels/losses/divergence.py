"""Kullback-Leibler divergence of two distributions, with gradients computed in the forward pass.

Automatic differentiation would keep a dozen tensors of the size of the logits in float32.  Here
only the gradients have that size: everything else exists for a few rows at a time.

Axes: R rows, r rows of one part, V classes.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Direction = Literal["forward", "reverse", "symmetric"]
"""`forward` is the divergence of the second distribution from the first, KL(second || first)."""

LOWEST = -1e30
"""In place of the log of a probability of 0: then 0 log 0 is 0."""
CACHED = 2**17
"""Logits per part on a CPU, so that its 6 tensors in float32 stay in the cache."""
CHUNK = 2**25
"""Logits per part on other devices: 128 MB in float32."""


def divergence(
    first: Tensor, second: Tensor, counts: Tensor, *, temperature: float, direction: Direction
) -> Tensor:
    """Return the sum over rows of the divergence of softmax(x / temperature) of two logits.

    On a CPU only the rows that count are read.  The host does not wait for an accelerator.

    Args:
        first: logits [..., V].
        second: logits [..., V].
        counts: [...], true at the rows that count.
        temperature: divides the logits.
        direction: which divergence; `symmetric` is the mean of both.

    Returns:
        The sum in float32, a scalar, not multiplied by the square of the temperature.

    Source: Hinton et al. 2015, section 2; Liang et al. 2021, section 2.1.
    """
    shapes = [tuple(x.shape) for x in (first, second)]
    if shapes[0] != shapes[1] or shapes[0][:-1] != tuple(counts.shape):
        msg = f"logits {shapes[0]} and {shapes[1]} and rows {tuple(counts.shape)} do not fit"
        raise ValueError(msg)
    pair = (first.flatten(0, -2), second.flatten(0, -2))
    forward = {"forward": 1.0, "reverse": 0.0, "symmetric": 0.5}[direction]
    if torch.compiler.is_compiling():  # a compiler cannot trace the gradients computed in advance
        sums_R, *_ = _part(pair[0], pair[1], temperature, forward, (False, False))
        return sums_R.masked_fill(~counts.flatten(), 0.0).sum()
    total: Tensor = _Divergence.apply(*pair, counts.flatten(), temperature, forward)  # type: ignore[no-untyped-call]
    return total


class _Divergence(torch.autograd.Function):
    """Sum of the divergences of the rows that count; `forward` computes the gradients."""

    @staticmethod
    def forward(
        ctx: Any,
        first_RV: Tensor,
        second_RV: Tensor,
        counts_R: Tensor,
        temperature: float,
        forward: float,
    ) -> Tensor:
        """Return the sum; save the gradients of the logits that need them."""
        pair, needed = (first_RV, second_RV), ctx.needs_input_grad[:2]
        accumulators = [
            torch.zeros_like(x) if need else None for x, need in zip(pair, needed, strict=True)
        ]
        total = first_RV.new_zeros((), dtype=torch.float32)
        on_cpu, vocabulary = _selects_rows(first_RV), max(1, first_RV.size(1))
        rows_R = torch.arange(len(first_RV), device=first_RV.device)
        if on_cpu:
            rows_R = rows_R[counts_R]
        for rows_r in rows_R.split(max(1, (CACHED if on_cpu else CHUNK) // vocabulary)):
            sums_r, *gradients = _part(
                first_RV.index_select(0, rows_r),
                second_RV.index_select(0, rows_r),
                temperature,
                forward,
                needed,
            )
            computed = [part for part in (sums_r[:, None], *gradients) if part is not None]
            if not on_cpu:
                left_out_r1 = ~counts_R[rows_r, None]
                for value in computed:
                    value.masked_fill_(left_out_r1, 0.0)
            total += sums_r.sum()
            for accumulator, part in zip(accumulators, gradients, strict=True):
                if accumulator is not None and part is not None:
                    accumulator.index_copy_(0, rows_r, part.to(accumulator.dtype))
        ctx.gradients = accumulators
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients, times the gradient of the sum."""
        scaled = [
            None if stored is None else stored * gradient.to(stored.dtype)
            for stored in ctx.gradients
        ]
        return (*scaled, None, None, None)


def _selects_rows(x: Tensor) -> bool:
    """Return whether only the rows that count are read; on an accelerator that would wait."""
    return x.device.type == "cpu"


def _log_probabilities(x: Tensor, temperature: float) -> Tensor:
    """Return log softmax(x / temperature) in float32; at least `LOWEST`, without gradients."""
    scaled = x.float() if temperature == 1.0 else x.float() / temperature
    log_probs = scaled.log_softmax(-1)
    # A compiler may trace gradients through this.
    return log_probs.clamp(min=LOWEST) if log_probs.requires_grad else log_probs.clamp_(min=LOWEST)


def _part(
    first_rV: Tensor,
    second_rV: Tensor,
    temperature: float,
    forward: float,
    needed: tuple[bool, bool],
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the divergence of each row, and its gradients for both logits.

    With q the first and p the second distribution and d = log p - log q,

        KL(p || q) = p . d       has the gradients  q - p             for the logits of q,
                                                    p (d - KL(p||q))  for those of p;

    the other direction is the same with p and q exchanged.

    Args:
        first_rV: logits of q.
        second_rV: logits of p.
        temperature: divides both.
        forward: weight of KL(p || q); the other direction has the rest of 1.
        needed: which gradients are computed; the others are None.
    """
    log_q, log_p = (_log_probabilities(x, temperature) for x in (first_rV, second_rV))
    q, p, d = log_q.exp(), log_p.exp(), log_p - log_q
    of_p_r, of_q_r = (p * d).sum(-1), -(q * d).sum(-1)
    sums_r = forward * of_p_r + (1.0 - forward) * of_q_r
    if not any(needed):
        return sums_r, None, None
    differ, back = (q - p).mul_(1 / temperature), 1.0 - forward
    of_first = of_second = None
    if needed[0]:
        of_first = q.mul_((d + of_q_r[:, None]).mul_(-1 / temperature)).mul_(back)
        of_first.add_(differ, alpha=forward)
    if needed[1]:
        of_second = p.mul_((d - of_p_r[:, None]).mul_(1 / temperature)).mul_(forward)
        of_second.sub_(differ, alpha=back)
    return sums_r, of_first, of_second
