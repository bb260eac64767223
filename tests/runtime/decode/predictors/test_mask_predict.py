"""Mask-predict: the masked words of each iteration, compared with a calculation by hand."""

from __future__ import annotations

import torch
from torch import Tensor
from weft.runtime.decode.predictors.mask_predict import lengths_to_try, mask_predict

MASK, PAD, EOS, A, B, C = range(6)


def scores(*rows: list[tuple[int, float]]) -> Tensor:
    """Return logits [R, T, V] that give each word the given probability; the rest is shared."""
    table = torch.zeros(len(rows), max(map(len, rows)), 6)
    for r, row in enumerate(rows):
        for t, (word, p) in enumerate(row):
            table[r, t] = torch.tensor((1 - p) / 5).log()
            table[r, t, word] = torch.tensor(p).log()
    return table


def test_the_least_probable_words_are_written_again() -> None:
    """Four words, four iterations: 3, 2 and 1 of them are masked again."""
    seen: list[list[int]] = []
    answers = iter(
        [
            scores([(A, 0.5), (B, 0.9), (C, 0.6), (A, 0.7)]),
            scores([(B, 0.8), (A, 0.95), (A, 0.55), (C, 0.4)]),
            scores([(C, 0.99), (C, 0.99), (B, 0.9), (B, 0.6)]),
            scores([(C, 0.99), (C, 0.99), (C, 0.99), (A, 0.75)]),
        ]
    )

    def predict(words: Tensor, mask: Tensor) -> Tensor:
        assert mask.all()
        seen.append(words[0].tolist())
        return next(answers)

    [[found]] = mask_predict(
        predict, torch.tensor([[4]]), iterations=4, mask=MASK, never={PAD, EOS}
    )

    # B at 0.9 stays; positions 2 and 3 at 0.55 and 0.4 are masked, then only 3 at 0.6.
    assert seen == [
        [MASK, MASK, MASK, MASK],
        [MASK, B, MASK, MASK],
        [B, B, MASK, MASK],
        [B, B, B, MASK],
    ]
    assert found.tokens == (B, B, B, A)
    torch.testing.assert_close(
        torch.tensor(found.log_probability).exp(), torch.tensor(0.8 * 0.9 * 0.9 * 0.75)
    )


def test_the_length_with_the_best_words_on_average_comes_first() -> None:
    """Two lengths of one sentence; positions beyond the shorter length are ignored."""
    table = scores([(A, 0.5), (A, 0.99)], [(B, 0.4), (B, 0.8)])

    def predict(words: Tensor, mask: Tensor) -> Tensor:  # noqa: ARG001
        assert mask.tolist() == [[True, False], [True, True]]
        return table

    [[first, second]] = mask_predict(
        predict, torch.tensor([[1, 2]]), iterations=1, mask=MASK, never={PAD, EOS}
    )

    assert (first.tokens, second.tokens) == ((B, B), (A,))  # sqrt(0.4 * 0.8) > 0.5
    assert first.score > second.score


def test_special_tokens_are_never_generated() -> None:
    """Neither special tokens nor the mask, however probable they are."""
    table = torch.zeros(1, 3, 6)
    table[..., [MASK, PAD, EOS]] = 9.0
    table[..., C] = 1.0

    [[found]] = mask_predict(
        lambda _words, _mask: table,
        torch.tensor([[3]]),
        iterations=2,
        mask=MASK,
        never={PAD, EOS},
    )

    assert found.tokens == (C, C, C)


def test_lengths_are_tried_by_probability_and_hopeless_ones_not() -> None:
    """A length below a hundredth of the best length's probability is replaced by the best."""
    score = torch.tensor([[0.3, 0.0009, 0.1, 0.5991], [0.001, 0.997, 0.001, 0.001]]).log()

    assert lengths_to_try(score, 3).tolist() == [[4, 1, 3], [2, 2, 2]]
    assert lengths_to_try(score, 9).tolist() == [[4, 1, 3, 4], [2, 2, 2, 2]]
