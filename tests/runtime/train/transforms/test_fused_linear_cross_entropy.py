"""Tests of fused linear cross-entropy: torch's results with a fraction of the memory."""

from __future__ import annotations

from typing import Any, Literal

import pytest
import torch
import weft.blocks.kernels.losses.fused_linear_cross_entropy as projected_module
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from weft.blocks.kernels import linear as product
from weft.runtime.train.loss import label_smoothed
from weft.runtime.train.transforms.fused_linear_cross_entropy import (
    bypassed,
    fused_linear_cross_entropy,
    run_and_compare,
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


@pytest.mark.parametrize("chunk", [2**25, 60], ids=["one chunk", "many"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_and_gradients_equal_torch(
    monkeypatch: pytest.MonkeyPatch, smoothing: float, chunk: int, *, biased: bool
) -> None:
    """Results agree to 1e-6 of the largest value, for any chunk size and with padding."""
    monkeypatch.setattr(projected_module, "CHUNK", chunk)
    monkeypatch.setattr(projected_module, "CACHED", 2 * WORDS)
    monkeypatch.setattr(projected_module, "WORDS", 8)
    x, weight, bias_, target = drawn()
    bias = bias_ if biased else None
    learning = [tensor for tensor in (x, weight, bias) if tensor is not None]

    sums = fused_linear_cross_entropy(x, weight, bias, target, smoothing=smoothing, pad=PAD)
    gradients = torch.autograd.grad(sums.loss / 5, learning)

    wanted = naive(x, weight, bias, target, smoothing)
    torch.testing.assert_close(sums.loss, wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(
        sums.nll, naive(x, weight, bias, target, 0.0).detach(), rtol=1e-6, atol=0
    )
    for found, expected in zip(gradients, torch.autograd.grad(wanted / 5, learning), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6 * expected.abs().max())
    assert sums.tokens.item() == (target != PAD).sum().item()


@pytest.mark.parametrize("spread", ["vocabulary", "others"])
def test_smoothing_spreads_agree_with_the_unfused_loss(
    spread: Literal["vocabulary", "others"],
) -> None:
    """Both spreads agree with the unfused loss."""
    x, weight, bias, target = drawn()
    options: dict[str, Any] = {"smoothing": 0.2, "pad": PAD, "spread": spread}

    found = fused_linear_cross_entropy(x, weight, bias, target, **options)

    expected = label_smoothed(F.linear(x, weight, bias), target, **options)
    torch.testing.assert_close(found.loss, expected.loss, rtol=1e-6, atol=0)


def test_masked_rows_get_no_gradient() -> None:
    """With a mask, as on an accelerator, padding gets no gradient."""
    x, weight, bias, target = drawn()
    rows, right = x.flatten(0, 1), target.flatten()
    kept = right != PAD

    loss, _ = projected_module._FusedLinearCrossEntropy.apply(
        rows, weight, bias, right, kept, 0.1, True
    )
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

    sums = fused_linear_cross_entropy(
        x, weight, None, torch.full_like(target, PAD), smoothing=0.1, pad=PAD
    )
    gradients = torch.autograd.grad(sums.loss, (x, weight))

    assert sums.loss.item() == sums.nll.item() == sums.tokens.item() == 0
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


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_memory_is_a_quarter_of_the_naive_form_at_most(
    monkeypatch: pytest.MonkeyPatch, *, half: bool
) -> None:
    """With the proportions of the paper, scaled by a tenth: 410 x 52 x 3700."""
    monkeypatch.setattr(projected_module, "CHUNK", 2**25 // 100)
    monkeypatch.setattr(projected_module, "CACHED", 2**18 // 100)
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(410, 52, generator=generator).requires_grad_()
    weight = torch.randn(3700, 52, generator=generator).requires_grad_()
    target = torch.randint(1, 3700, (410,), generator=generator)

    peaks = []
    for fused in (True, False):
        x.grad = weight.grad = None
        with _Largest() as watch, torch.autocast("cpu", torch.bfloat16, enabled=half):
            if fused:
                sums = fused_linear_cross_entropy(x, weight, None, target, smoothing=0.1, pad=PAD)
                sums.loss.backward()
            else:
                naive(x, weight, None, target, 0.1).backward()
        peaks.append(watch.peak)

    assert peaks[0] <= peaks[1] / 4


@pytest.mark.skipif(not product.has_onednn(), reason="this torch has no oneDNN")
def test_the_other_product_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loss and gradients do not depend on the kernel of the products."""
    monkeypatch.setattr(projected_module, "CHUNK", 60)
    x, weight, bias, target = drawn()
    made = []
    for name in ("torch", "onednn"):
        monkeypatch.setattr(product, "_chosen", name)
        sums = fused_linear_cross_entropy(x, weight, bias, target, smoothing=0.1, pad=PAD)
        made.append((sums.loss, *torch.autograd.grad(sums.loss, (x, weight, bias))))
    torch.testing.assert_close(made[0], made[1])


class _Tiny(nn.Module):
    """A model with an output projection and an auxiliary output."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = self.inner(x)
        return {"logits": self.head(hidden), "balance": hidden.sum()}


def test_a_model_runs_with_its_head_in_the_loss() -> None:
    """All parameters get the gradients of the unfused loss, and the head is restored."""
    model, (x, _, _, target) = _Tiny(), drawn()
    gradients = []
    for head in ("head", None):
        model.zero_grad()
        outputs, sums = run_and_compare(
            model, head, {"x": x}, target, smoothing=0.1, pad=PAD, spread="vocabulary"
        )
        (sums.loss + outputs["balance"]).backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(gradients[0], gradients[1])
    assert model(x)["logits"].size(-1) == WORDS


def test_a_head_is_put_back_after_an_error() -> None:
    """The head is restored if the model raises an error."""
    model = _Tiny()
    with pytest.raises(KeyError), bypassed(model.head):
        raise KeyError
    assert model.head(torch.zeros(1, WIDTH)).size(-1) == WORDS
