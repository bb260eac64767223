"""Cross-entropy against torch's, and the fused linear map against the logits that it computes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.kernels.losses.cross_entropy import Spread
from weft.blocks.kernels.losses.fused_linear_cross_entropy import LinearOutput
from weft.blocks.losses.cross_entropy import CROSS_ENTROPY, CrossEntropyParams
from weft.blocks.losses.cross_entropy_module import CrossEntropy
from weft.graphs.ir.block_type import BlockType

PADDING = -1


def drawn(*shape: int, classes: int = 11) -> tuple[Tensor, Tensor]:
    """Return logits with a gradient, and labels that include padding."""
    generator = torch.Generator().manual_seed(3)
    logits = 3.0 * torch.randn(*shape, classes, generator=generator)
    labels = torch.randint(PADDING, classes, shape, generator=generator)
    labels.view(-1)[:2] = torch.tensor([PADDING, 1])
    return logits.requires_grad_(), labels


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("shape", [(4,), (3, 7), (2, 3, 4)], ids=str)
def test_it_is_the_cross_entropy_of_torch(shape: tuple[int, ...], smoothing: float) -> None:
    """The sum over labels that are not negative, its gradient, and the number of labels."""
    logits, labels = drawn(*shape)
    loss = CrossEntropy(smoothing)

    found, nll = loss(logits, labels)
    (gradient,) = torch.autograd.grad(found, logits)

    flat = logits.flatten(0, -2), labels.flatten()
    how: Any = {"ignore_index": PADDING, "reduction": "sum"}
    wanted = F.cross_entropy(*flat, label_smoothing=smoothing, **how)
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted, logits)[0])
    torch.testing.assert_close(nll, F.cross_entropy(*flat, **how).detach())
    assert not nll.requires_grad
    assert loss.weight(labels).item() == (labels != PADDING).sum().item()


@pytest.mark.parametrize("spread", ["vocabulary", "others"])
def test_a_mask_excludes_what_negative_labels_exclude(spread: Spread) -> None:
    """Ids with a mask of those that count have the same loss and gradient, bit for bit."""
    logits, labels = drawn(3, 7)
    ids = labels.clamp(min=0)
    loss = CrossEntropy(0.1, spread)

    found = loss(logits, ids, labels != PADDING)
    wanted = loss(logits, labels)

    assert torch.equal(found[0], wanted[0])
    assert torch.equal(found[1], wanted[1])
    gradients = [torch.autograd.grad(one[0], logits)[0] for one in (found, wanted)]
    assert torch.equal(*gradients)


def test_smoothing_also_applies_in_evaluation() -> None:
    """Perplexity reads `nll`, which never has it."""
    logits, labels = drawn(3, 7)
    loss = CrossEntropy(0.2)

    assert torch.equal(loss.train()(logits, labels)[0], loss.eval()(logits, labels)[0])
    assert loss(logits, labels)[0] != loss(logits, labels)[1]


def test_both_the_mask_and_negative_labels_exclude_items() -> None:
    """An item counts if neither excludes it."""
    logits, labels = drawn(1, 4)
    labels = torch.tensor([[5, -1, 2, -1]])
    mask = torch.tensor([[True, True, False, False]])
    loss = CrossEntropy()

    found, _ = loss(logits, labels, mask)

    torch.testing.assert_close(found, -logits.log_softmax(-1)[0, 0, 5])
    assert loss.weight(labels=labels, mask=mask).item() == 1
    assert loss.weight(classes=labels).item() == 2


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_output_is_compared_as_its_logits(*, bias: bool) -> None:
    """Loss and gradients, without the logits."""
    _, labels = drawn(3, 7)
    x = torch.randn(3, 7, 6, requires_grad=True)
    head = nn.Linear(6, 11, bias=bias)
    loss = CrossEntropy(0.1)

    found = loss(LinearOutput(x, head.weight, head.bias), labels)
    wanted = loss(head(x), labels)

    torch.testing.assert_close(found, wanted)
    given = [x, *head.parameters()]
    torch.testing.assert_close(
        torch.autograd.grad(found[0], given), torch.autograd.grad(wanted[0], given)
    )


def test_the_parts_of_a_batch_add_up() -> None:
    """The sum over micro-batches, divided by the sum of their weights, is the mean of the batch."""
    logits, labels = drawn(4, 5)
    loss = CrossEntropy(0.1)

    parts = [
        (loss(logits[n], labels[n])[0], loss.weight(labels[n])) for n in (slice(3), slice(3, 4))
    ]

    whole = loss(logits, labels)[0] / loss.weight(labels)
    total = sum(part for part, _ in parts) / sum(weight for _, weight in parts)
    torch.testing.assert_close(total, whole)


def test_a_spread_without_smoothing_is_refused() -> None:
    """It would have no effect."""
    params = CrossEntropyParams(spread="others")

    with pytest.raises(ValueError, match="spread is 'others', which has no effect"):
        CROSS_ENTROPY.arguments(params, {"v": 11})


def test_labels_and_classes_are_two_forms_of_one_port() -> None:
    """Exactly one of them is a port, so the checker reports none and both."""
    block: BlockType = CROSS_ENTROPY

    def ports(*wired: str) -> list[str]:
        signature = block.signature(block.params(), frozenset(wired))
        return [port.name for port in signature.inputs if not port.optional]

    assert ports("logits", "classes") == ["logits", "classes"]
    assert ports() == ports("labels") == ports("labels", "classes") == ["logits", "labels"]
