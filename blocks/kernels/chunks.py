"""Chunks of a sequence: recurrences with decay that are computed by matrix products.

Axes: B sequences, H heads, T positions, N chunks of C positions each, W any width.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from .precision import uncompiled

GROUP = 16
"""Positions that `affine_scan` computes one after another; groups of them, side by side."""
DEPTH = 4
"""Levels of groups in an exported `affine_scan`: for GROUP ** DEPTH positions."""


def chunked(part_BHTW: Tensor, chunk: int) -> Tensor:
    """Reshape [B, H, T, W] to [B, H, N, C, W], with zeros at the end of the last chunk.

    One full chunk is appended and the excess cut, so that one compiled graph is valid for every
    length.
    """
    chunks = (part_BHTW.size(2) + chunk - 1) // chunk
    padded = F.pad(part_BHTW, (0, 0, 0, chunk))
    part_BHNCW: Tensor = padded[:, :, : chunks * chunk].unflatten(2, (chunks, chunk))
    return part_BHNCW


def unchunked(part_BHNCW: Tensor, length: int) -> Tensor:
    """Reshape [B, H, N, C, W] to [B, H, T, W], without the end of the last chunk."""
    # Not a slice: its strides depend on whether the last chunk is full, which would require
    # separate compiled graphs.
    index_T = torch.arange(length, device=part_BHNCW.device)
    return part_BHNCW.flatten(2, 3).index_select(2, index_T)


def decay_between(passed: Tensor) -> Tensor:
    """Return the decay from each position to each later one: exp(p_i - p_j) for j <= i, else 0.

    No exponent is positive, so nothing overflows.

    Args:
        passed: logarithm of the decay since the start, [..., C]; it does not increase.

    Returns:
        [..., C, C], read position last.
    """
    later_CC = torch.ones(passed.size(-1), passed.size(-1), dtype=torch.bool, device=passed.device)
    between = passed[..., :, None] - passed[..., None, :]
    return between.masked_fill(later_CC.triu(1), float("-inf")).exp()


@uncompiled
def affine_scan(
    factor: Tensor,
    term: Tensor,
    start: Tensor | None,
    *,
    axis: int,
    product: Callable[[Tensor, Tensor], Tensor],
    level: int = 1,
) -> Tensor:
    """Return h_t = factor_t h_{t-1} + term_t at every position.

    Groups of positions are computed side by side, each from a state of zeros; the states at the
    starts of groups are the same recurrence over groups.  Nothing is divided and no logarithm
    taken, so factors may be zero or negative; those between -1 and 1 do not overflow.  It is not
    compiled, because its loops, with all levels, would take minutes.

    Args:
        factor: factors, with positions along `axis`.
        term: what is added, with positions along `axis`.
        start: the state before the first position, without `axis`; zero if None.
        axis: index of the axis of positions.
        product: applies a factor to a state, and to an earlier factor: `torch.mul`, or
            `torch.matmul` for matrices.
        level: how many levels of groups there are so far, this one included.
    """
    length = term.size(axis)
    groups = (length + GROUP - 1) // GROUP
    # One exported graph is valid for every length; otherwise there are only the levels needed.
    compiling = torch.compiler.is_compiling()
    deeper = level < DEPTH if compiling else groups > 1
    size = GROUP if compiling or deeper else max(length, 1)
    if not deeper:
        torch._check(groups <= 1)  # noqa: SLF001 - checks symbolic sizes
    parts = (_groups(part, axis, groups, size) for part in (factor, term))
    state = None if deeper or start is None else start.unsqueeze(axis)
    states, passed = list[Tensor](), list[Tensor]()
    for factor_i, term_i in zip(*(part.unbind(axis + 1) for part in parts), strict=True):
        state = term_i if state is None else product(factor_i, state) + term_i
        states.append(state)
        if deeper:
            passed.append(product(factor_i, passed[-1]) if passed else factor_i)
    if deeper:
        ends = affine_scan(
            passed[-1], states[-1], start, axis=axis, product=product, level=level + 1
        )
        first = torch.zeros_like(ends.select(axis, 0)) if start is None else start
        before = torch.cat([first.unsqueeze(axis), ends], axis).narrow(axis, 0, groups)
        states = [
            product(factor_i, before) + state_i
            for factor_i, state_i in zip(passed, states, strict=True)
        ]
    result = torch.stack(states, axis + 1).flatten(axis, axis + 1)
    if not compiling and groups * size == length:
        return result
    return result.index_select(axis, torch.arange(length, device=term.device))


def _groups(part: Tensor, axis: int, groups: int, size: int) -> Tensor:
    """Divide an axis into groups of a size, with zeros at the end of the last one."""
    if torch.compiler.is_compiling() or part.size(axis) != groups * size:
        after = (0, 0) * (part.dim() - 1 - axis)
        part = F.pad(part, (*after, 0, size)).narrow(axis, 0, groups * size)
    grouped: Tensor = part.unflatten(axis, (groups, size))
    return grouped
