"""Products in bfloat16 on a CPU have few shapes, and attention in them has the exact values."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from weft.blocks.kernels.attention import by_name
from weft.blocks.kernels.attention_backends import AttentionCall, Core
from weft.blocks.kernels.few_shapes import POSITIONS, SCORES, parts, positions, sentences
from weft.blocks.kernels.linear import LinearMap
from weft.blocks.kernels.losses.fused_linear_cross_entropy import (
    LinearOutput,
    fused_linear_cross_entropy,
)

HALF = torch.bfloat16
PRODUCTS = {torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm}


class Shapes(TorchDispatchMode):
    """Records the shapes of the operands of all products in bfloat16."""

    def __init__(self) -> None:
        """Begin without shapes."""
        super().__init__()
        self.of_products: set[tuple[tuple[int, ...], ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record a product, and compute it."""
        if func.overloadpacket in PRODUCTS and args[-1].dtype == HALF:
            self.of_products.add(tuple(tuple(x.shape) for x in args[-2:]))
        return func(*args, **(kwargs or {}))


def test_numbers_of_positions_are_few_and_waste_little() -> None:
    """Powers of two, multiples of 8, and above 64 eight sizes for each power of two."""
    sizes = {count: positions(count) for count in range(1, 2049)}
    assert all(count <= size for count, size in sizes.items())
    assert all(size - count < max(POSITIONS, size / 8) for count, size in sizes.items())
    assert len(set(sizes.values())) == 4 + 7 + 5 * 8  # up to 8, up to 64, up to 2,048


@pytest.mark.parametrize("scores", [1, 4 * 32 * 32, 8 * 96 * 112, 2 * SCORES])
def test_numbers_of_sentences_are_powers_of_two(scores: int) -> None:
    """Whatever the batch: all parts but the last are equal, and their scores fit the cache."""
    for count in range(1, 500):
        sizes = sentences(count, scores)
        assert sum(sizes[:-1]) < count <= sum(sizes) < 2 * count
        assert len(set(sizes[:-1])) <= 1
        assert all(size & (size - 1) == 0 for size in sizes)
        assert all(size == 1 or size * scores <= SCORES for size in sizes)


def defined(call: AttentionCall) -> Tensor:
    """Return softmax(q k^T / sqrt(K) + bias) v in float64, and zeros where all keys are masked."""
    query, key, value = (x.double() for x in call[:3])
    score = query @ key.transpose(-2, -1) * query.size(-1) ** -0.5
    allowed = torch.ones_like(score, dtype=torch.bool)
    if call.causal:
        allowed = allowed.tril()
    if call.mask is not None:
        allowed = allowed & call.mask
    if call.bias is not None:
        score = score + call.bias.double()
    exp = torch.where(allowed, score, -1e4).exp() * allowed
    return exp / exp.sum(-1, keepdim=True).clamp(min=1e-30) @ value


GENERATOR = torch.Generator().manual_seed(3)
KEYS = torch.rand(5, 1, 1, 19, generator=GENERATOR) > 0.3
KEYS[1] = False
MASKS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "keys": {"mask": KEYS},
    "pairs": {"mask": torch.rand(1, 1, 21, 19, generator=GENERATOR) > 0.3},
    "pairs of each row": {"mask": torch.rand(5, 1, 21, 19, generator=GENERATOR) > 0.3},
    "bias": {"bias": torch.randn(1, 2, 21, 19, generator=GENERATOR).to(HALF)},
    "bias of each row": {"bias": torch.randn(5, 1, 21, 19, generator=GENERATOR).to(HALF)},
    "causal": {"causal": True},
}


@pytest.mark.parametrize("backend", ["plain", "blocked"])
@pytest.mark.parametrize("more", MASKS.values(), ids=MASKS)
def test_attention_has_the_values_and_gradients_of_its_definition(
    backend: Core, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With further positions and sentences, in two parts of four sentences."""
    monkeypatch.setattr("weft.blocks.kernels.few_shapes.SCORES", 4 * 2 * 24 * 24)
    generator = torch.Generator().manual_seed(2)
    keys = 21 if "causal" in more else 19
    shapes = ((5, 21, 2, 8), (5, keys, 2, 8), (5, keys, 2, 6))
    leaves = [torch.randn(s, generator=generator).to(HALF).requires_grad_() for s in shapes]
    y = by_name(backend)(AttentionCall(*(x.transpose(1, 2) for x in leaves), **more))
    weights = torch.linspace(-1, 1, y.numel()).view(y.shape)
    (y.float() * weights).sum().backward()

    exact = [x.detach().double().requires_grad_() for x in leaves]
    expected = defined(AttentionCall(*(x.transpose(1, 2) for x in exact), **more))
    (expected * weights).sum().backward()

    limits = {"rtol": 0.05, "atol": 0.03}
    torch.testing.assert_close(y.double(), expected, **limits)
    for leaf, other in zip(leaves, exact, strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad.double(), other.grad, **limits)


@pytest.mark.integration
@pytest.mark.parametrize("backend", ["plain", "blocked"])
def test_attention_of_any_batch_multiplies_few_shapes(backend: Core) -> None:
    """Of 8 batches, no two of which have the same sizes."""
    draw = random.Random(1)
    with Shapes() as shapes:
        for rows in range(20, 60, 5):
            length, keys = draw.randint(20, 48), draw.randint(20, 48)
            sizes = ((rows, 2, length, 4), (rows, 2, keys, 4), (rows, 2, keys, 4))
            leaves = [torch.randn(size, dtype=HALF, requires_grad=True) for size in sizes]
            mask = torch.ones(rows, 1, 1, keys, dtype=torch.bool)
            by_name(backend)(AttentionCall(*leaves, mask)).sum().backward()
    lengths, numbers = {24, 32, 40, 48}, {2 << n for n in range(7)}
    assert {left[0] for left, _ in shapes.of_products} <= numbers
    assert {size for pair in shapes.of_products for x in pair for size in x[1:]} <= {4, *lengths}


@pytest.mark.integration
def test_maps_and_losses_of_any_batch_multiply_few_shapes() -> None:
    """Their rows come from one list; 5 batches, no two of which have the same number of rows."""
    layer, weight = LinearMap(24, 40), torch.randn(72, 40, requires_grad=True)
    allowed = {size for rows in range(1, 2000) for size in parts(rows)}
    with Shapes() as shapes, torch.autocast("cpu", HALF):
        for rows in range(1000, 1900, 180):
            labels, mask = torch.zeros(rows, dtype=torch.long), torch.ones(rows, dtype=torch.bool)
            output = LinearOutput(layer(torch.randn(rows, 24, requires_grad=True)), weight)
            loss, _ = fused_linear_cross_entropy(
                output, labels, mask, smoothing=0.1, spread="vocabulary"
            )
            loss.backward()
    sizes = {size for pair in shapes.of_products for shape in pair for size in shape}
    assert sizes - {24, 40, 72} <= allowed
