"""The kernel of the fused linear cross-entropy: torch's results with a fraction of the memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from weft.blocks.kernels.linear import Product
from weft.blocks.kernels.losses import fused_linear_cross_entropy as kernel
from weft.blocks.kernels.losses.cross_entropy import Spread, smoothed_cross_entropy
from weft.blocks.kernels.losses.fused_linear_cross_entropy import (
    LinearOutput,
    fused_linear_cross_entropy,
)

PAD = 0
WIDTH, WORDS = 6, 29


def drawn(rows: int = 3, length: int = 7) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return inputs, a weight and a bias that require gradients, and targets with padding."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    target = torch.randint(0, WORDS, (rows, length), generator=generator)
    target[0, :2] = torch.tensor([PAD, 1])
    return normal(rows, length, WIDTH), normal(WORDS, WIDTH), normal(WORDS), target


def naive(
    x: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float
) -> Tensor:
    """Return the result of torch."""
    return F.cross_entropy(
        F.linear(x, weight, bias).flatten(0, -2),
        target.flatten(),
        ignore_index=PAD,
        label_smoothing=smoothing,
        reduction="sum",
    )


def fused(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    smoothing: float = 0.1,
    spread: Spread = "vocabulary",
    product: Product = "torch",
) -> tuple[Tensor, Tensor]:
    """Return the loss and the likelihood of the targets that are not padding."""
    output, mask = LinearOutput(x, weight, bias), target != PAD
    return fused_linear_cross_entropy(
        output, target, mask, smoothing=smoothing, spread=spread, kernel=product
    )


@pytest.mark.parametrize("chunk", [2**25, 60], ids=["one chunk", "many"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_and_gradients_equal_torch(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, chunk: int, *, biased: bool
) -> None:
    """Results agree to 1e-6 of the largest value, for any chunk size and with padding."""
    monkeypatch.setattr(kernel, "CHUNK", chunk)
    monkeypatch.setattr(kernel, "CACHED", 2 * WORDS)
    monkeypatch.setattr(kernel, "WORDS", 8)
    x, weight, bias_, target = drawn()
    bias = bias_ if biased else None
    learning = [tensor for tensor in (x, weight, bias) if tensor is not None]

    loss, nll = fused(x, weight, bias, target, smoothing=smoothing)
    gradients = torch.autograd.grad(loss / 5, learning)

    wanted = naive(x, weight, bias, target, smoothing)
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)
    plain = naive(x, weight, bias, target, 0.0).detach()
    torch.testing.assert_close(nll, plain, rtol=1e-6, atol=0)
    for found, expected in zip(gradients, torch.autograd.grad(wanted / 5, learning), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 * expected.abs().max())


def test_a_bias_may_be_all_that_learns() -> None:
    """Of a head whose weight and inputs are frozen."""
    x, weight, bias, target = drawn()
    given = x.detach(), weight.detach(), bias, target

    [found] = torch.autograd.grad(fused(*given)[0], [bias])
    [wanted] = torch.autograd.grad(naive(*given, 0.1), [bias])

    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("spread", ["vocabulary", "others"])
def test_smoothing_spreads_agree_with_the_unfused_loss(spread: Spread) -> None:
    """Both spreads agree with the unfused loss."""
    x, weight, bias, target = drawn()

    found, _ = fused(x, weight, bias, target, smoothing=0.2, spread=spread)

    logits = F.linear(x, weight, bias)
    expected, _ = smoothed_cross_entropy(
        logits, target, target != PAD, smoothing=0.2, spread=spread
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


def test_masked_rows_get_no_gradient() -> None:
    """With a mask, as on an accelerator, padding gets no gradient."""
    x, weight, bias, target = drawn()
    rows, right = x.flatten(0, 1), target.flatten()
    kept = right != PAD

    loss, _ = kernel._FusedLinearCrossEntropy.apply(rows, weight, bias, right, kept, 0.1, True)
    found = torch.autograd.grad(loss, (x, weight, bias))

    wanted = naive(x, weight, bias, target, 0.1)
    torch.testing.assert_close(loss, wanted, rtol=1e-6, atol=0)
    for gradient, expected in zip(
        found, torch.autograd.grad(wanted, (x, weight, bias)), strict=True
    ):
        torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-6 * expected.abs().max())


def test_only_padding_gives_zero_loss() -> None:
    """Without tokens the sums and the gradients are zero."""
    x, weight, _, target = drawn()

    loss, nll = fused(x, weight, None, torch.full_like(target, PAD))
    gradients = torch.autograd.grad(loss, (x, weight))

    assert loss.item() == nll.item() == 0
    assert not any(gradient.any() for gradient in gradients)


class _Largest(TorchDispatchMode):
    """Tracks the bytes of tensors that operators return while they are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, Any] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(given):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                self.alive[storage.data_ptr()] = _weak(storage)
        alive = {key: storage for key, storage in self.alive.items() if not storage.expired()}
        self.alive = alive
        self.peak = max(self.peak, sum(storage.bytes for storage in alive.values()))
        return given


class _weak:  # noqa: N801 - a reference, like weakref.ref
    """The bytes of a storage while it is alive."""

    def __init__(self, storage: torch.UntypedStorage) -> None:
        self.bytes, self.reference = storage.nbytes(), storage._weak_ref()

    def expired(self) -> bool:
        """Return whether the storage is freed."""
        return bool(torch.UntypedStorage._expired(self.reference))


@pytest.mark.integration
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_memory_is_a_quarter_of_the_naive_form_at_most(
    monkeypatch: pytest.MonkeyPatch, *, half: bool
) -> None:
    """With the proportions of the paper, scaled by a tenth: 410 x 52 x 3700."""
    monkeypatch.setattr(kernel, "CHUNK", 2**25 // 100)
    monkeypatch.setattr(kernel, "CACHED", 2**18 // 100)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(410, 52, generator=generator).requires_grad_()
    weight = torch.randn(3700, 52, generator=generator).requires_grad_()
    target = torch.randint(1, 3700, (410,), generator=generator)

    peaks = []
    for is_fused in (True, False):
        x.grad = weight.grad = None
        with _Largest() as watch, torch.autocast("cpu", torch.bfloat16, enabled=half):
            if is_fused:
                fused(x, weight, None, target)[0].backward()
            else:
                naive(x, weight, None, target, 0.1).backward()
        peaks.append(watch.peak)

    assert peaks[0] <= peaks[1] / 4


@pytest.mark.needs("oneDNN")
def test_the_other_product_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradients do not depend on the kernel of the products."""
    monkeypatch.setattr(kernel, "CHUNK", 60)
    x, weight, bias, target = drawn()
    made = []
    names: tuple[Product, ...] = ("torch", "onednn")
    for name in names:
        loss, _ = fused(x, weight, bias, target, product=name)
        made.append((loss, *torch.autograd.grad(loss, (x, weight, bias))))
    torch.testing.assert_close(made[0], made[1])
