"""Block-sparse attention against dense attention with the equivalent mask."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.attention.block_sparse import (
    BLOCK_SPARSE_ATTENTION,
    BlockSparseAttentionParams,
)
from weft.blocks.attention.block_sparse_module import BlockSparseAttention

MASK = torch.rand(2, 23, generator=torch.Generator().manual_seed(1)) > 0.3


def attention(**how: Any) -> BlockSparseAttention:
    """Return attention with two heads and random weights."""
    made = BlockSparseAttention(8, 2, 4, 3, **how).double().eval()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    return made


def dense_mask(block: BlockSparseAttention, length: int) -> Tensor:
    """Return [H, T, T], true where t attends to s, entry by entry from the params."""
    size, first = block.block, block.global_tokens
    drawn: list[list[set[int]]] = [[set() for _ in range(length)] for _ in range(2)]
    if block.random_blocks:
        index, there = block.drawn(-(-length // size))
        for h, n, j in there.nonzero().tolist():
            drawn[h][n].add(int(index[h, n, j]))

    def reads(h: int, t: int, s: int) -> bool:
        near = abs(t // size - s // size) <= block.window_blocks
        near = near and (block.window is None or abs(t - s) <= block.window)
        return t < first or s < first or near or s // size in drawn[h][t // size]

    rows = [[[reads(h, t, s) for s in range(length)] for t in range(length)] for h in range(2)]
    return torch.tensor(rows)


def dense(block: BlockSparseAttention, x: Tensor, padding: Tensor) -> Tensor:
    """Return the output of attention with the dense mask."""

    def heads(part: nn.Module) -> Tensor:
        split: Tensor = part(x).unflatten(-1, (2, -1)).transpose(1, 2)
        return split

    mask = dense_mask(block, x.size(1)) & padding[:, None, None]
    y = F.scaled_dot_product_attention(
        heads(block.query), heads(block.key), heads(block.value), attn_mask=mask
    )
    if block.global_maps is not None:
        own = block.global_maps
        of_all = F.scaled_dot_product_attention(
            heads(own.query), heads(own.key), heads(own.value), attn_mask=padding[:, None, None]
        )
        first = block.global_tokens
        y = torch.cat([of_all[:, :, :first], y[:, :, first:]], 2)
    given: Tensor = block.out(y.transpose(1, 2).flatten(2))
    return given


PATTERNS = [
    {"block": 4},
    {"block": 4, "window_blocks": 0},
    {"block": 1, "window_blocks": 3},
    {"block": 4, "window_blocks": 1, "window": 2},
    {"block": 3, "window_blocks": 2, "window": 6, "global_tokens": 1},
    {"block": 4, "global_tokens": 5},
    {"block": 4, "global_tokens": 2, "global_maps": True},
    {"block": 4, "global_tokens": 30, "global_maps": True, "random_blocks": 1},
    {"block": 2, "random_blocks": 2},
    {"block": 2, "random_blocks": 3, "global_tokens": 4, "seed": 7},
    {"block": 2, "random_blocks": 50, "window_blocks": 2},
    {"block": 64, "random_blocks": 2, "global_tokens": 1},
]


@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("length", [1, 23])
@pytest.mark.parametrize("how", PATTERNS, ids=str)
def test_it_is_dense_attention_with_a_mask(
    how: dict[str, Any], length: int, mask: Tensor | None
) -> None:
    """Windows of blocks and positions, global and random blocks, lengths with a partial block."""
    block = attention(**how)
    x = torch.randn(2, length, 8, dtype=torch.float64)
    mask = None if mask is None else mask[:, :length]
    whole = torch.ones(2, length, dtype=torch.bool) if mask is None else mask

    found = block(x, mask)

    torch.testing.assert_close(found, dense(block, x, whole), rtol=0, atol=1e-12)


@pytest.mark.parametrize("how", PATTERNS, ids=str)
def test_returned_weights_are_the_weights_used(how: dict[str, Any]) -> None:
    """The weighted values equal the output; all other weights are zero."""
    block = attention(**how)
    x, first = torch.randn(2, 23, 8, dtype=torch.float64), block.global_tokens

    weights = block.attention_weights(x, MASK)

    assert not weights.masked_select(~dense_mask(block, 23)).any()
    value = block.value(x).unflatten(-1, (2, -1)).transpose(1, 2)
    y = weights @ value
    if block.global_maps is not None:
        own = block.global_maps.value(x).unflatten(-1, (2, -1)).transpose(1, 2)
        y = torch.cat([(weights @ own)[:, :, :first], y[:, :, first:]], 2)
    given = block.out(y.transpose(1, 2).flatten(2))
    torch.testing.assert_close(given, block(x, MASK), rtol=0, atol=1e-12)


def test_gradients_equal_those_of_dense_attention() -> None:
    """Gradients are also finite for fully masked rows."""
    block = attention(block=4, window_blocks=0, random_blocks=1, global_tokens=1)
    x = torch.randn(2, 23, 8, dtype=torch.float64, requires_grad=True)
    mask = MASK.clone()
    mask[1] = False

    found = torch.autograd.grad(block(x, mask).square().sum(), x)[0]

    expected = torch.autograd.grad(dense(block, x, mask).square().sum(), x)[0]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


def test_random_blocks_are_others_distinct_and_the_same_every_time() -> None:
    """None is in the window or global; another seed or head draws others."""
    block = attention(block=4, global_tokens=8, random_blocks=3, seed=5)

    index, there = block.drawn(40)

    assert there.all()
    assert index.shape == (2, 40, 3)
    for h in range(2):
        for n in range(40):
            row = index[h, n].tolist()
            assert len(set(row)) == 3
            assert all(abs(j - n) > 1 and 2 <= j < 40 for j in row)
    assert torch.equal(block.drawn(40)[0], index)
    assert not torch.equal(index[0], index[1])
    other = attention(block=4, global_tokens=8, random_blocks=3, seed=6)
    assert not torch.equal(other.drawn(40)[0], index)


def test_random_blocks_are_spread_evenly() -> None:
    """Each of 100 blocks is drawn about equally often, over 2 heads, 100 rows and 20 seeds."""
    drawn = torch.zeros(100)
    for seed in range(20):
        block = attention(block=1, window_blocks=0, random_blocks=5, seed=seed)
        drawn += block.drawn(100)[0].flatten().bincount(minlength=100)

    # 4000 draws of 5 in 99: 200 each, with a standard deviation of sqrt(200 * 0.95) = 13.8.
    assert drawn.sum() == 20_000
    assert (drawn - 200).abs().max() < 5 * 13.8


def test_where_there_are_too_few_all_are_read() -> None:
    """With 4 blocks, the first has two blocks outside its window, the second has one."""
    block = attention(block=4, random_blocks=3)

    index, there = block.drawn(4)

    assert there.sum(-1)[0].tolist() == [2, 1, 1, 2]
    assert set(index[0, 0][there[0, 0]].tolist()) == {2, 3}


def test_less_is_compared_than_all_with_all() -> None:
    """With 64 blocks, each attends to six blocks and one position: a tenth of all pairs."""
    how = {"heads": 2, "block": 8, "global_tokens": 1, "random_blocks": 3}
    params = BlockSparseAttentionParams.model_validate(how)
    arguments = BLOCK_SPARSE_ATTENTION.arguments(params, {"d_model": 8})

    work = BLOCK_SPARSE_ATTENTION.flops(arguments, {"b": 1, "t": 512})

    projections = 2 * 512 * 4 * 8 * 8
    pairs = 512 * (6 * 8 + 1) + 512
    assert work == projections + 2 * 2 * pairs * 8
    assert pairs < 512**2 / 10


@pytest.mark.parametrize(
    ("how", "problem", "help_"),
    [
        ({"heads": 3}, "width 8 is not divisible by 3 heads", "use 2 heads"),
        (
            {"heads": 2, "block": 4, "window": 5},
            "window_blocks 1 covers only 4 positions",
            "use 2 window_blocks",
        ),
        ({"heads": 2, "global_maps": True}, "but global_tokens is 0", "set global_tokens"),
    ],
    ids=str,
)
def test_invalid_params_are_refused(how: dict[str, Any], problem: str, help_: str) -> None:
    """Each error has a help text."""
    params = BlockSparseAttentionParams.model_validate(how)

    with pytest.raises(ValueError, match=problem) as caught:
        BLOCK_SPARSE_ATTENTION.arguments(params, {"d_model": 8})

    assert help_ in caught.value.args[1]


def test_global_maps_start_as_copies() -> None:
    """Section 3.1 of Beltagy et al.: both sets of projections start with the same values."""
    block = attention(block=4, global_tokens=1, global_maps=True)
    block.initialize(torch.Generator().manual_seed(1))
    assert block.global_maps is not None

    for name in ("query", "key", "value"):
        own, whole = getattr(block.global_maps, name), getattr(block, name)
        assert torch.equal(own.weight, whole.weight)
        assert own.weight is not whole.weight


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.slow
def test_one_graph_serves_every_size(compiles_once: Callable[[nn.Module], None]) -> None:
    """Compiled without graph breaks, and not recompiled for other batch sizes or lengths."""
    compiles_once(attention(**PATTERNS[7]))
