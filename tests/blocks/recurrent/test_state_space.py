"""Mamba-2: chunked computation against the recurrence, position by position."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.recurrent.state_space_module import Mamba2

D, HEADS, STATE, INSIDE = 6, 4, 3, 12


def drawn(groups: int = 1, chunk: int = 4, kernel: int = 4) -> Mamba2:
    """Return a block with random weights, in float64."""
    generator = torch.Generator().manual_seed(1)
    block = Mamba2(D, HEADS, STATE, 2, groups, kernel, chunk, 1e-5).double()
    with torch.no_grad():
        for weight in block.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return block


def by_loop(block: Mamba2, x_TD: Tensor, groups: int) -> Tensor:
    """Run the paper's recurrence over one sequence, without chunks or batches, head by head."""
    z, near, dt = (x_TD @ block.inner.weight.T).split(
        (INSIDE, INSIDE + 2 * groups * STATE, HEADS), -1
    )
    width = block.kernel.size(2)
    state = torch.zeros(HEADS, STATE, INSIDE // HEADS, dtype=torch.float64)
    given = []
    for t in range(len(x_TD)):
        mixed = block.kernel_bias.clone()
        for k in range(width):
            if t - (width - 1) + k >= 0:
                mixed = mixed + block.kernel[:, 0, k] * near[t - (width - 1) + k]
        mixed = F.silu(mixed)
        x = mixed[:INSIDE].view(HEADS, -1)
        write, read = mixed[INSIDE:].view(2, groups, STATE)
        y = torch.zeros_like(x)
        for h in range(HEADS):
            g = h // (HEADS // groups)
            time = F.softplus(dt[t, h] + block.time_bias[h])
            keeps = torch.exp(-torch.exp(block.decay[h]) * time)
            state[h] = keeps * state[h] + time * torch.outer(write[g], x[h])
            y[h] = read[g] @ state[h] + block.skip[h] * x[h]
        gated = (y.flatten() * F.silu(z[t])).view(groups, -1)
        normed = gated / torch.sqrt((gated**2).mean(1, keepdim=True) + 1e-5)
        normed = normed.flatten() * block.norm.weight
        given.append(block.outer.weight @ normed)
    return torch.stack(given)


@torch.no_grad()
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("length", [1, 3, 4, 11, 12])
def test_chunks_are_the_recurrence(groups: int, length: int) -> None:
    """For lengths that are and are not a multiple of the chunk size."""
    block, x = drawn(groups), torch.randn(2, length, D, dtype=torch.float64)

    wanted = torch.stack([by_loop(block, row, groups) for row in x])

    torch.testing.assert_close(block(x), wanted, rtol=0, atol=1e-12)


@torch.no_grad()
def test_the_chunk_size_does_not_change_the_result() -> None:
    """For chunks of one position up to the complete sequence."""
    x = torch.randn(2, 10, D, dtype=torch.float64)

    whole = drawn(chunk=10)(x)

    for chunk in (1, 3, 64):
        torch.testing.assert_close(drawn(chunk=chunk)(x), whole, rtol=0, atol=1e-12)


@torch.no_grad()
def test_padding_before_and_after_is_as_if_it_were_not_there() -> None:
    """Masked positions do not update or decay the state, and the convolution reads zeros."""
    block, x = drawn(), torch.randn(2, 12, D, dtype=torch.float64)
    mask = torch.zeros(2, 12, dtype=torch.bool)
    mask[:, 3:10] = True

    torch.testing.assert_close(block(x, mask)[:, 3:10], block(x[:, 3:10]))


def test_fresh_weights_lie_where_the_papers_say() -> None:
    """Decays from 1 to 16, and time steps from 0.001 to 0.1 for zero input."""
    block = Mamba2(64, 32, 16, 2, 1, 4, 16, 1e-5)
    with torch.no_grad():
        block.initialize(torch.Generator().manual_seed(3))
        decay, time = block.decay.exp(), F.softplus(block.time_bias)

    assert 1 <= decay.min() < 4
    assert 10 < decay.max() <= 16
    assert 1e-3 * 0.999 <= time.min() < math.sqrt(1e-4) < time.max() <= 1e-1 * 1.001


@torch.no_grad()
def test_a_long_decay_goes_to_zero_without_overflow() -> None:
    """Differences of logarithms are masked before the exponential, so none overflows."""
    block = drawn(chunk=64)
    block.decay.fill_(6.0)
    block.time_bias.fill_(8.0)

    assert block.float()(torch.randn(1, 200, D)).isfinite().all()
