"""Attention in blocks of queries has the values and the gradients of its definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels import attention as blocks
from weft.blocks.kernels.attention import attend, blocked_attend
from weft.blocks.kernels.attention_backends import AttentionCall

KEYS = torch.tensor([[True, False, True, True, True, False, True], [False] * 7])
"""Which of 7 keys may be attended to in two rows, of the second row none."""
PAIRS = torch.rand(2, 1, 7, 7, generator=torch.Generator().manual_seed(3)) > 0.4


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use three blocks for 7 positions, the last of which is smaller."""
    monkeypatch.setattr(blocks, "QUERIES", {torch.float32: 3, torch.bfloat16: 3})


def drawn(queries: int = 7, *, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Return queries, keys and values of 3 heads as projections give them, with gradients."""
    generator = torch.Generator().manual_seed(2)
    shapes = ((2, queries, 3, 4), (2, 7, 3, 4), (2, 7, 3, 5))
    parts = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return [part.requires_grad_() for part in parts]


def defined(parts: list[Tensor], mask: Tensor | None, *, causal: bool, scale: float) -> Tensor:
    """Return softmax(scale q k^T) v in float64, and zeros where all keys are masked."""
    query, key, value = (part.double().transpose(1, 2) for part in parts)
    score = query @ key.transpose(-2, -1) * scale
    allowed = torch.ones_like(score, dtype=torch.bool)
    if causal:
        allowed = allowed.tril()
    if mask is not None:
        allowed = allowed & mask
    exp = torch.where(allowed, score, -1e4).exp() * allowed
    return exp / exp.sum(-1, keepdim=True).clamp(min=1e-30) @ value


@pytest.mark.parametrize("causal", [True, False], ids=["causal", "full"])
@pytest.mark.parametrize("mask", [None, KEYS[:, None, None], PAIRS], ids=["all", "keys", "pairs"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_values_and_gradients_are_those_of_the_definition(
    mask: Tensor | None, dtype: torch.dtype, *, causal: bool
) -> None:
    """With masks of keys and of pairs, and queries without keys."""
    parts = drawn(dtype=dtype)
    found = blocked_attend(
        AttentionCall(
            *(part.transpose(1, 2) for part in parts), mask, causal=causal, dropout=0.0, scale=0.7
        )
    )
    assert "_Blocked" in type(found.grad_fn).__name__
    weights = torch.linspace(-1, 1, found.numel()).view(found.shape)
    (found * weights.to(dtype)).sum().backward()
    gradients = [part.grad for part in parts]

    exact = [part.detach().double().requires_grad_() for part in parts]
    expected = defined(exact, mask, causal=causal, scale=0.7)
    (expected * weights).sum().backward()
    limits: dict[str, Any] = {"rtol": 1e-5, "atol": 1e-6}
    if dtype == torch.bfloat16:
        limits = {"rtol": 0.05, "atol": 0.03}
    torch.testing.assert_close(found.double(), expected, **limits)
    for gradient, one in zip(gradients, exact, strict=True):
        assert gradient is not None
        torch.testing.assert_close(gradient.double(), one.grad, **limits)


@pytest.mark.parametrize("shape", [(0, 3, 7, 4), (2, 3, 0, 4)], ids=["rows", "queries"])
def test_empty_batches_have_empty_outputs(shape: tuple[int, ...]) -> None:
    """As the other backends have."""
    query = torch.empty(shape, requires_grad=True)
    key = torch.empty(shape[0], 3, 7, 4)
    found = blocked_attend(AttentionCall(query, key, key, None))
    found.sum().backward()
    assert found.shape == shape


def test_causal_attention_with_padding_leaves_out_later_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The mask of the padding does not make all pairs of positions necessary."""
    read = list[int]()
    original = blocks._blocks

    def spy(*args: Any, **options: Any) -> Any:
        for queries, keys in original(*args, **options):
            read.append(keys.stop)
            yield queries, keys

    monkeypatch.setattr(blocks, "_blocks", spy)
    parts = [x.transpose(1, 2) for x in drawn()]
    found = attend(*parts, KEYS, causal=True, cores={"*": "blocked"})
    assert read == [3, 6, 7]
    expected = attend(*parts, KEYS, causal=True, cores={"*": "plain"})
    torch.testing.assert_close(found, expected)


def test_queries_may_have_another_length_than_keys() -> None:
    """As in attention to an encoder."""
    parts = drawn(4)
    mask = KEYS[:1, None, None]
    found = attend(*(x.transpose(1, 2) for x in parts), KEYS[:1], cores={"*": "blocked"})
    torch.testing.assert_close(
        found.double(), defined(parts, mask, causal=False, scale=0.5), rtol=1e-5, atol=1e-6
    )


def test_products_are_in_the_dtype_of_autocast() -> None:
    """Rotated queries are in float32 in a training in bfloat16."""
    query, key, value = (x.transpose(1, 2) for x in drawn())
    with torch.autocast("cpu", torch.bfloat16):
        found = blocked_attend(AttentionCall(query, key.bfloat16(), value, causal=True))
    assert found.dtype == torch.bfloat16
    found.float().sum().backward()


@pytest.mark.parametrize(
    "options", [{"dropout": 0.5}, {"bias": torch.zeros(1, 1, 7, 7).bfloat16()}]
)
def test_dropout_and_biases_are_two_products_in_bfloat16(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fused kernel computes its backward pass slowly there."""
    monkeypatch.setattr(blocks, "fused_attend", lambda *_, **__: pytest.fail("fused"))
    parts = (x.transpose(1, 2) for x in drawn(dtype=torch.bfloat16))
    blocked_attend(AttentionCall(*parts, causal=True, **options)).sum().backward()


@pytest.mark.parametrize(
    "options",
    [
        {"dropout": 0.5},
        {"bias": torch.zeros(1, 1, 7, 7)},
        {"shared": True},
        {"long": True},
        {"gradients": False},
        {"dtype": torch.float64},
        {},
    ],
    ids=lambda options: " ".join(options) or "none",
)
def test_what_blocks_lack_is_computed_by_the_fused_kernel(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout, a bias, shared key heads, long sequences, and passes without gradients."""
    fused = list[object]()
    original = blocks.fused_attend
    monkeypatch.setattr(
        blocks, "fused_attend", lambda *a, **k: fused.append(1) or original(*a, **k)
    )
    given = {**options}
    dtype, heads = given.pop("dtype", torch.float32), 1 if given.pop("shared", False) else 3
    if given.pop("long", False):
        monkeypatch.setattr(blocks, "LONGEST", 6)
    query, key, value = (x.transpose(1, 2) for x in drawn(dtype=dtype))

    with torch.set_grad_enabled(given.pop("gradients", True)):
        blocked_attend(AttentionCall(query, key[:, :heads], value[:, :heads], None, **given))

    assert bool(fused) is bool(options)
