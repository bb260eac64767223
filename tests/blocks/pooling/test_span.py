"""Span scores against a loop over spans, and word vectors against loops over words."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from weft.blocks.convolution.char_cnn_module import WordConvolution
from weft.blocks.pooling.span_module import SpanScore

WIDTH, HIDDEN, LABELS = 6, 5, 3


def drawn_score() -> SpanScore:
    """Return a block with random weights."""
    block = SpanScore(WIDTH, HIDDEN, LABELS).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in block.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator))
    return block


def by_hand(block: SpanScore, x: np.ndarray, i: int, j: int) -> np.ndarray:
    """Score one span of x [T, D] according to the definition, in numpy."""
    weights = {name: value.detach().numpy() for name, value in block.named_parameters()}
    half, nothing = WIDTH // 2, np.zeros(WIDTH // 2)
    forward = [nothing, *x[:, :half]]
    backward = [*x[:, half:], nothing]
    v = np.concatenate([forward[j + 1] - forward[i], backward[i] - backward[j + 1]])
    hidden = weights["hidden.weight"] @ v + weights["hidden.bias"]
    hidden = (hidden - hidden.mean()) / np.sqrt(hidden.var() + block.norm.eps)
    hidden = np.maximum(0, hidden * weights["norm.weight"] + weights["norm.bias"])
    return weights["out.weight"] @ hidden + weights["out.bias"]


def test_every_span_is_scored_as_the_definition_says() -> None:
    """Scores come from boundary differences; entries below the diagonal are zeros."""
    block, length = drawn_score(), 4
    x = torch.randn(1, length, WIDTH, dtype=torch.float64)

    score = block(x)[0].detach().numpy()

    for i in range(length):
        for j in range(length):
            wanted = by_hand(block, x[0].numpy(), i, j) if i <= j else np.zeros(LABELS)
            np.testing.assert_allclose(score[i, j], wanted, atol=1e-12)


def test_padding_is_as_beyond_the_end() -> None:
    """The spans of a padded row equal those of the row without padding."""
    block = drawn_score()
    x = torch.randn(1, 5, WIDTH, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False, False]])

    score = block(x, mask)

    torch.testing.assert_close(score[:, :3, :3], block(x[:, :3]))


@pytest.mark.parametrize("pool", ["max", "mean"])
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
def test_a_word_is_pooled_from_its_windows(pool: str, kernel: int) -> None:
    """Each word separately, in loops; a word without parts gives zeros."""
    block = WordConvolution(4, 3, kernel, pool).double()
    block.initialize(torch.Generator().manual_seed(1))
    with torch.no_grad():
        block.bias.copy_(torch.tensor([1.0, -2.0, 0.5]))
    x = torch.randn(2, 3, 5, 4, dtype=torch.float64)
    parts = [[5, 2, 0], [1, 3, 4]]
    mask = torch.tensor([[[c < count for c in range(5)] for count in row] for row in parts])

    y = block(x, mask).detach().numpy()

    weight, bias = block.weight.detach().numpy(), block.bias.detach().numpy()
    for row, counts in enumerate(parts):
        for word, count in enumerate(counts):
            zeros = (kernel - 1) // 2, kernel // 2
            padded = np.pad(x[row, word, :count].numpy(), (zeros, (0, 0)))
            windows = [
                bias + sum(weight[:, :, k] @ padded[c + k] for k in range(kernel))
                for c in range(count)
            ]
            pooled = np.max if pool == "max" else np.mean
            wanted = pooled(windows, axis=0) if count else np.zeros(3)
            np.testing.assert_allclose(y[row, word], wanted, atol=1e-12)


def test_gradients_of_span_scores_equal_differences() -> None:
    """The rows of spans are copied by a function with its own backward pass."""
    block = drawn_score()
    x = torch.randn(2, 3, WIDTH, dtype=torch.float64, requires_grad=True)

    assert torch.autograd.gradcheck(block, x)


def test_gradients_of_words_equal_differences() -> None:
    """Gaps and words without parts are skipped; nothing reaches what the mask hides."""
    block = WordConvolution(2, 3).double()
    block.initialize(torch.Generator().manual_seed(1))
    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 1], [0, 0, 0, 0], [1, 0, 0, 0]]).bool()

    assert torch.autograd.gradcheck(lambda x: block(x, mask), x)
