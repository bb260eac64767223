"""Losses that read the same linear maps: the values and gradients of torch, without all logits."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from weft.blocks.kernels.losses import chunked_losses as kernel
from weft.blocks.kernels.losses import fused_linear_cross_entropy
from weft.blocks.kernels.losses.chunked_losses import losses_in_chunks, reading
from weft.blocks.kernels.losses.fused_linear_cross_entropy import LinearOutput
from weft.blocks.losses.cross_entropy_module import CrossEntropy
from weft.blocks.losses.pairs_module import KLDivergence

WIDTH, WORDS, ROWS, LENGTH = 6, 29, 3, 7
ALPHA = 5.0
Losses = tuple[Tensor, Tensor, Tensor]


def drawn(*, biased: bool = True) -> tuple[list[Tensor], Tensor, Tensor | None, Tensor, Tensor]:
    """Return the inputs of two maps, one weight and bias for both, labels, and a mask."""
    generator = torch.Generator().manual_seed(3)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).requires_grad_()

    labels = torch.randint(0, WORDS, (ROWS, LENGTH), generator=generator)
    labels[1, 2] = -100
    mask = torch.arange(LENGTH) < torch.tensor([[7], [5], [4]])
    inputs = [normal(ROWS, LENGTH, WIDTH) for _ in range(2)]
    return inputs, normal(WORDS, WIDTH), normal(WORDS) if biased else None, labels, mask


def together(
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    bias: Tensor | None,
    labels: Tensor,
    mask: Tensor,
) -> Losses:
    """Return the three losses of R-Drop, from `losses_in_chunks`."""
    maps = [LinearOutput(x, weight, bias) for x, weight in zip(inputs, weights, strict=True)]
    (first, nll), (second, _), (divergence,) = losses_in_chunks(
        maps,
        [
            reading(CrossEntropy(0.1), 1.0, logits=0, labels=labels, mask=mask),
            reading(CrossEntropy(0.1), 1.0, logits=1, labels=labels, mask=mask),
            reading(KLDivergence(1.0, "symmetric"), ALPHA, logits=0, target=1, mask=mask),
        ],
    )
    assert not nll.requires_grad
    return first, second, divergence


def apart(
    inputs: Sequence[Tensor],
    weights: Sequence[Tensor],
    bias: Tensor | None,
    labels: Tensor,
    mask: Tensor,
) -> Losses:
    """Return the same losses by torch's functions, from all logits."""
    logits = [F.linear(x, w, bias) for x, w in zip(inputs, weights, strict=True)]
    counted = labels.masked_fill(~mask, -100)
    first, second = (
        F.cross_entropy(one.flatten(0, 1), counted.flatten(), label_smoothing=0.1, reduction="sum")
        for one in logits
    )
    log_p, log_q = (one.log_softmax(-1) for one in logits)
    both = sum(
        F.kl_div(a, b, log_target=True, reduction="none").sum(-1)
        for a, b in ((log_p, log_q), (log_q, log_p))
    )
    assert isinstance(both, Tensor)
    return first, second, both[mask].sum() / 2


@pytest.mark.parametrize("cpu", [True, False], ids=["CPU", "accelerator"])
@pytest.mark.parametrize("rows", [1024, 4], ids=["one chunk", "many"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("alpha", [ALPHA, 0.5], ids=["expected weights", "other weights"])
def test_values_and_gradients_are_those_of_torch(
    monkeypatch: pytest.MonkeyPatch, alpha: float, rows: int, *, biased: bool, cpu: bool
) -> None:
    """Both maps have one weight, as two passes of one model have."""
    monkeypatch.setattr(fused_linear_cross_entropy, "CPU_ROWS", rows)
    monkeypatch.setattr(kernel, "_on_cpu", lambda _: cpu)
    inputs, weight, bias, labels, mask = drawn(biased=biased)
    learning = [one for one in (*inputs, weight, bias) if one is not None]
    found, wanted = (
        function(inputs, (weight, weight), bias, labels, mask) for function in (together, apart)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)

    gradients = [
        torch.autograd.grad((one[0] + one[1] + alpha * one[2]) / 3, learning)
        for one in (found, wanted)
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_bias_may_be_all_that_learns() -> None:
    """Of a head whose weight and inputs are frozen."""
    inputs, weight, bias, labels, mask = drawn()
    assert bias is not None
    frozen = [one.detach() for one in inputs]
    given = (frozen, (weight.detach(), weight.detach()), bias, labels, mask)

    found, wanted = (
        torch.autograd.grad(sum(function(*given)), [bias])  # type: ignore[arg-type]
        for function in (together, apart)
    )

    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert wanted[0].any()


def test_a_frozen_teacher_gets_no_gradient() -> None:
    """Its map has a weight of its own; the student's gradients are those of torch."""
    (x, of_teacher), weight, bias, labels, mask = drawn()
    teacher = torch.randn(WORDS, WIDTH)
    weights = (weight, teacher)
    inputs = (x, of_teacher.detach())
    losses = [f(inputs, weights, bias, labels, mask) for f in (together, apart)]

    found, wanted = (torch.autograd.grad(one[0] + ALPHA * one[2], (x, weight)) for one in losses)

    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_the_backward_pass_can_run_twice() -> None:
    """The gradients of the forward pass are not used up."""
    inputs, weight, bias, labels, mask = drawn()
    first, second, divergence = together(inputs, (weight, weight), bias, labels, mask)
    total = first + second + ALPHA * divergence

    once = torch.autograd.grad(total, weight, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(total, weight), once)


def test_all_logits_are_never_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """No tensor has more rows of the vocabulary than a chunk."""
    monkeypatch.setattr(fused_linear_cross_entropy, "CPU_ROWS", 4)
    sizes = []

    class Sizes(TorchDispatchMode):
        """Records the sizes of new tensors."""

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
            made = func(*args, **(kwargs or {}))
            sizes.extend(x.numel() for x in tree_leaves(made) if isinstance(x, Tensor))
            return made

    inputs, weight, _, labels, mask = drawn(biased=False)
    with Sizes():
        first, second, divergence = together(inputs, (weight, weight), None, labels, mask)
        (first + second + ALPHA * divergence).backward()

    assert max(sizes) == WORDS * WIDTH  # the gradient of the weight


def test_products_run_in_the_autocast_dtype_in_both_passes() -> None:
    """The backward pass, which may compute again, has no autocast of its own."""
    inputs, weight, bias, labels, mask = drawn()
    with torch.autocast("cpu", torch.bfloat16):
        losses = together(inputs, (weight, weight), bias, labels, mask)
    expected = torch.autograd.grad(
        losses[0] + losses[1] + ALPHA * losses[2], weight, retain_graph=True
    )
    again = torch.autograd.grad(2 * losses[0] + losses[1] + ALPHA * losses[2], weight)
    extra = torch.autograd.grad(apart(inputs, (weight, weight), bias, labels, mask)[0], weight)

    torch.testing.assert_close(again[0] - expected[0], extra[0], rtol=0.05, atol=0.2)
    assert not torch.equal(losses[0], apart(inputs, (weight, weight), bias, labels, mask)[0])


def test_values_of_other_positions_are_refused() -> None:
    """The inputs of all maps and the labels have the same leading axes."""
    inputs, weight, bias, labels, mask = drawn()

    with pytest.raises(ValueError, match=r"the leading axes \(3, 7\), and not \(3, 6\)"):
        together((inputs[0][:, 1:], inputs[1]), (weight, weight), bias, labels, mask)
