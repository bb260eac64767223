"""Affine scan: h_t = f_t h_{t-1} + u_t, as one operator of a compiled graph.

A compiler would unroll its loops, which takes minutes, so the scan is an operator with a backward
pass of its own.  With g_t the gradient of the loss by h_t, also through all later states,
g_t = dL/dh_t + f_{t+1}^T g_{t+1}: the same scan, from the end.

Axes: B rows, T positions; an element of a state is a number, or a matrix [K, V] whose factors
are matrices [K, K].

Source: groups, Blelloch 1990, section 1.4.1; gradients, Martin & Cundy 2018, section 2.2.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import register_flop_formula

from .precision import without_autocast

GROUP = 16
"""Positions that are computed one after another; groups of them, side by side."""
MANY = 4096
"""Numbers in the states of one position from which a CPU is busy with one position."""
DEPTH = 4
"""Levels of groups in an exported scan: for GROUP ** DEPTH positions."""

_LIBRARY = torch.library.Library("weft", "FRAGMENT")
_LIBRARY.define(
    "affine_scan(Tensor factor, Tensor term, Tensor? start, bool matrices, bool reverse) -> Tensor",
    tags=torch.Tag.pt2_compliant_tag,
)
"""With `reverse`, the scan begins at the last position: h_t = f_t h_{t+1} + u_t."""


def affine_scan(
    factor: Tensor,
    term: Tensor,
    start: Tensor | None = None,
    *,
    matrices: bool = False,
) -> Tensor:
    """Return h_t = factor_t h_{t-1} + term_t at every position, [B, T, ...].

    Nothing is divided and no logarithm taken, so factors may be zero or negative; those between
    -1 and 1 do not overflow.

    Args:
        factor: factors, [B, T, ...], of the dtype of `term`.
        term: what is added, [B, T, ...].
        start: the state before the first position, [B, ...]; zero if None.
        matrices: whether factors multiply as matrices instead of element by element.
    """
    if torch.compiler.is_exporting():  # to operators of torch alone
        return states_in_groups(factor, term, start, matrices=matrices)
    states: Tensor = torch.ops.weft.affine_scan(factor, term, start, matrices, False)  # noqa: FBT003
    return states


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """Keep what the backward pass reads."""
    factor, _, start, ctx.matrices, ctx.reverse = inputs
    ctx.save_for_backward(factor, start, output)


def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradients of a scan's inputs; they can be differentiated again."""
    factor, start, states = ctx.saved_tensors
    back = factor.mT if ctx.matrices else factor
    of_factor = of_start = None
    with without_autocast(states):
        next_factor = _before(back, None, reverse=not ctx.reverse)
        received: Tensor = torch.ops.weft.affine_scan(
            next_factor, gradient, None, ctx.matrices, not ctx.reverse
        )
        if ctx.needs_input_grad[0]:
            before = _before(states, start, reverse=ctx.reverse)
            of_factor = received @ before.mT if ctx.matrices else received * before
        if start is not None and ctx.needs_input_grad[2]:
            first = slice(-1, None) if ctx.reverse else slice(1)
            product = torch.matmul if ctx.matrices else torch.mul
            of_start = product(back[:, first], received[:, first]).sum(1)
    return of_factor, received, of_start, None, None


def _before(values: Tensor, start: Tensor | None, *, reverse: bool) -> Tensor:
    """Return the value before each position in the direction of a scan; zero if there is none."""
    shape = (values.size(0), 1, *values.shape[2:])
    outer = values.new_zeros(shape) if start is None else start[:, None]
    return torch.cat([values, outer] if reverse else [outer, values], 1).narrow(
        1, int(reverse), values.size(1)
    )


def _computed(
    factor: Tensor,
    term: Tensor,
    start: Tensor | None,
    matrices: bool,  # noqa: FBT001 - an operator takes its inputs by position
    reverse: bool,  # noqa: FBT001
) -> Tensor:
    """Return the states, one after another, or by groups where that takes less time."""
    states = torch.empty(term.shape, dtype=term.dtype, device=term.device)
    length = term.size(1)

    def between(first: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        return (
            states.narrow(1, first, count),
            factor.narrow(1, first, count),
            term.narrow(1, first, count),
        )

    parts = states, factor, term
    grouped = length - length % GROUP
    busy = matrices or (term.device.type == "cpu" and term[:, :1].numel() >= MANY)
    if not busy and grouped > GROUP:
        # What does not fill a group comes last, in the direction of the scan.
        after, outside = length - grouped, 0 if reverse else grouped
        first = after if reverse else 0
        _by_groups(*between(first, grouped), start, reverse=reverse)
        start = states[:, first if reverse else grouped - 1]
        parts = between(outside, after)
    with without_autocast(term):
        step = torch.baddbmm if matrices else torch.addcmul
        _one_by_one(*parts, start, axis=1, step=step, reverse=reverse)
    return states


def _by_groups(
    states: Tensor, factor: Tensor, term: Tensor, start: Tensor | None, *, reverse: bool
) -> None:
    """Write the states of groups side by side, each from zero; then add the effect of its start."""
    states, factor, term = (part.unflatten(1, (-1, GROUP)) for part in (states, factor, term))
    passed = torch.empty(factor.shape, dtype=factor.dtype, device=factor.device)
    _one_by_one(states, factor, term, None, axis=2, step=torch.addcmul, reverse=reverse)
    _one_by_one(passed, factor, factor, None, axis=2, step=_times, reverse=reverse)
    last = 0 if reverse else GROUP - 1
    # The states at the ends of groups are the same recurrence.
    ends = _computed(passed[:, :, last], states[:, :, last], start, False, reverse)  # noqa: FBT003
    states.addcmul_(passed, _before(ends, start, reverse=reverse)[:, :, None])


def _one_by_one(
    states: Tensor,
    factor: Tensor,
    term: Tensor,
    start: Tensor | None,
    *,
    axis: int,
    step: Callable[..., object],
    reverse: bool,
) -> None:
    """Write step(term, factor, state before) at every position."""
    steps = [*zip(*(part.unbind(axis) for part in (states, factor, term)), strict=True)]
    for state, factor_i, term_i in reversed(steps) if reverse else steps:
        if start is None:
            state.copy_(term_i)
        else:
            step(term_i, factor_i, start, out=state)
        start = state


def _times(_: Tensor, factor: Tensor, before: Tensor, *, out: Tensor) -> None:
    torch.mul(factor, before, out=out)


def _sized(_: Tensor, term: Tensor, *__: Any) -> Tensor:
    return term.new_empty(term.shape)


@register_flop_formula(torch.ops.weft.affine_scan)
def _flops(
    factor: Any,
    term: Any,
    start: Any,
    matrices: bool,  # noqa: FBT001
    *_: Any,
    **__: Any,
) -> int:
    """Count the products of matrices, for torch's counter, which gives the shapes of tensors."""
    products = term[0] * (term[1] if start else term[1] - 1)
    return 2 * products * math.prod(factor[2:]) * term[3] if matrices else 0


_LIBRARY.impl("affine_scan", _computed, "CompositeExplicitAutograd")
torch.library.register_fake("weft::affine_scan", _sized, lib=_LIBRARY)
torch.library.register_autograd("weft::affine_scan", _gradients, setup_context=_setup, lib=_LIBRARY)


def states_in_groups(
    factor: Tensor,
    term: Tensor,
    start: Tensor | None,
    *,
    matrices: bool = False,
    level: int = 1,
) -> Tensor:
    """Compute `affine_scan` from the first position with operators that torch differentiates.

    Groups of positions are computed side by side, each from a state of zeros; the states at the
    starts of groups are the same recurrence over groups.

    Args:
        factor: as there.
        term: as there.
        start: as there.
        matrices: as there.
        level: how many levels of groups there are so far, this one included.
    """
    product = torch.matmul if matrices else torch.mul
    length = term.size(1)
    groups = (length + GROUP - 1) // GROUP
    # One exported graph is valid for every length; otherwise there are only the levels needed.
    exporting = torch.compiler.is_exporting()
    deeper = level < DEPTH if exporting else groups > 1
    size = GROUP if exporting or deeper else max(length, 1)
    if not deeper:
        torch._check(groups <= 1)  # noqa: SLF001 - checks symbolic sizes
    parts = (_groups(part, groups, size, exporting=exporting) for part in (factor, term))
    state = None if deeper or start is None else start[:, None]
    states, passed = list[Tensor](), list[Tensor]()
    for factor_i, term_i in zip(*(part.unbind(2) for part in parts), strict=True):
        state = term_i if state is None else product(factor_i, state) + term_i
        states.append(state)
        if deeper:
            passed.append(product(factor_i, passed[-1]) if passed else factor_i)
    if deeper:
        ends = states_in_groups(passed[-1], states[-1], start, matrices=matrices, level=level + 1)
        first = torch.zeros_like(ends[:, 0]) if start is None else start
        before = torch.cat([first[:, None], ends], 1).narrow(1, 0, groups)
        states = [
            product(factor_i, before) + state_i
            for factor_i, state_i in zip(passed, states, strict=True)
        ]
    result = torch.stack(states, 2).flatten(1, 2)
    if not exporting and groups * size == length:
        return result
    return result.index_select(1, torch.arange(length, device=term.device))


def _groups(part: Tensor, groups: int, size: int, *, exporting: bool) -> Tensor:
    """Divide the positions into groups of a size, with zeros at the end of the last one."""
    if exporting or part.size(1) != groups * size:
        after = (0, 0) * (part.dim() - 2)
        part = F.pad(part, (*after, 0, size)).narrow(1, 0, groups * size)
    grouped: Tensor = part.unflatten(1, (groups, size))
    return grouped
