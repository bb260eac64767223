"""Retention and gated linear attention against their recurrences, and parallel forms."""

from __future__ import annotations

import cmath
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.recurrent.gated_linear_attention_module import GatedLinearAttention
from weft.blocks.recurrent.retention_module import Retention

D, HEADS, K, V = 6, 3, 4, 5


Block = TypeVar("Block", bound=nn.Module)


def scattered(block: Block) -> Block:
    """Return a block with random weights, in float64."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in block.double().parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return block


def retention(chunk: int = 4, position: str = "rotary") -> Retention:
    """Return a block with random weights."""
    return scattered(Retention(D, HEADS, K, V, position, 100.0, chunk, 1e-6))


def gated(chunk: int = 4, temperature: float = 4.0) -> GatedLinearAttention:
    """Return a block with random weights."""
    return scattered(GatedLinearAttention(D, HEADS, K, V, 2, temperature, chunk, 1e-5))


def retained(block: Retention, x_TD: Tensor) -> Tensor:
    """Compute the parallel form of the paper for one sequence, with complex phases."""
    length = len(x_TD)
    rows = []
    query, key, value = (
        linear(x_TD).view(length, HEADS, -1) for linear in (block.query, block.key, block.value)
    )
    for h in range(HEADS):
        gamma = 1 - 2.0 ** (-5 - h)
        scores = torch.zeros(length, length, dtype=torch.float64)
        for n in range(length):
            for m in range(n + 1):
                total = 0j
                for pair in range(K // 2):
                    q = complex(*query[n, h, 2 * pair : 2 * pair + 2].tolist())
                    k = complex(*key[m, h, 2 * pair : 2 * pair + 2].tolist())
                    angle = (n - m) * 100.0 ** (-2 * pair / K) if block.base else 0.0
                    total += q * k.conjugate() * cmath.exp(1j * angle)
                scores[n, m] = total.real / K**0.5 * gamma ** (n - m)
        rows.append(F.layer_norm(scores @ value[:, h], (V,), eps=1e-6))
    return block.outer(torch.cat(rows, -1) * F.silu(block.gate(x_TD)))


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 4, 7])
@pytest.mark.parametrize("position", ["rotary", "none"])
def test_retention_is_the_parallel_form_of_the_paper(length: int, position: str) -> None:
    """For lengths that are and are not a multiple of the chunk size."""
    block, x = retention(position=position), torch.randn(2, length, D, dtype=torch.float64)

    wanted = torch.stack([retained(block, row) for row in x])

    torch.testing.assert_close(block(x), wanted)


def recurred(block: GatedLinearAttention, x_TD: Tensor) -> Tensor:
    """Run the recurrence of the paper over one sequence, head by head."""
    query, key, value = (
        linear(x_TD).view(len(x_TD), HEADS, -1) for linear in (block.query, block.key, block.value)
    )
    kept = block.decay_outer(block.decay_inner(x_TD)).sigmoid().view(len(x_TD), HEADS, -1)
    kept = kept ** (1 / block.temperature)
    rows = []
    for h in range(HEADS):
        state, given = torch.zeros(K, V, dtype=torch.float64), []
        for t in range(len(x_TD)):
            state = torch.diag(kept[t, h]) @ state + torch.outer(key[t, h], value[t, h])
            given.append(query[t, h] / K**0.5 @ state)
        rows.append(block.norm(torch.stack(given)))
    return block.outer(torch.cat(rows, -1) * F.silu(block.gate(x_TD)))


@torch.no_grad()
@pytest.mark.parametrize("length", [1, 4, 11])
def test_gated_linear_attention_is_the_recurrence(length: int) -> None:
    """For lengths that are and are not a multiple of the chunk size."""
    block, x = gated(), torch.randn(2, length, D, dtype=torch.float64)

    wanted = torch.stack([recurred(block, row) for row in x])

    torch.testing.assert_close(block(x), wanted, rtol=0, atol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("make", [retention, gated])
def test_the_chunk_size_does_not_change_the_result(make: type) -> None:
    """For chunks of one position up to the complete sequence."""
    x = torch.randn(2, 10, D, dtype=torch.float64)

    whole = make(chunk=10)(x)

    for chunk in (1, 3, 64):
        torch.testing.assert_close(make(chunk=chunk)(x), whole)


@torch.no_grad()
def test_masked_positions_write_nothing() -> None:
    """Retention counts them as distance; gated linear attention as if they were not there."""
    x = torch.randn(2, 12, D, dtype=torch.float64)
    mask = torch.zeros(2, 12, dtype=torch.bool)
    mask[:, 3:10] = True
    for block in (retention(), gated()):
        found = block(x, mask)[:, 3:10]  # with angles in float32
        torch.testing.assert_close(found, block(x[:, 3:10]), rtol=1e-5, atol=1e-5)

    holes = mask.clone()
    holes[:, 5:7] = False
    block = gated()
    joined = block(torch.cat([x[:, 3:5], x[:, 7:10]], 1))
    torch.testing.assert_close(block(x, holes)[:, 7:10], joined[:, 2:])


@pytest.mark.integration
@torch.no_grad()
def test_a_fast_decay_goes_to_zero_without_overflow() -> None:
    """Also in float32: only differences of logarithms that are not positive are exponentiated."""
    block = gated(chunk=16, temperature=1.0)
    block.decay_outer.bias.fill_(-200.0)
    x = torch.randn(1, 100, D)

    y = block.float()(x)

    assert y.isfinite().all()
    alone = torch.cat([block(x[:, t : t + 1]) for t in range(100)], 1)
    torch.testing.assert_close(y, alone)  # nothing of earlier positions is left
    x.requires_grad_()
    with torch.enable_grad():
        block(x).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
