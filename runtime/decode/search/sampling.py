"""Sampling: draw outputs at random, with one random number generator per row.

Axes: N sentences, K samples of each, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from ..settings import SampleSettings


def filtered(log_p_RV: Tensor, settings: SampleSettings) -> Tensor:
    """Return the log probabilities, up to a constant, from which a token is drawn.

    Args:
        log_p_RV: the model's log probabilities, after logits processors.
        settings: temperature and truncation.
    """
    # Subtract the maximum first, which keeps the scores of a low temperature small.
    best_R1 = log_p_RV.amax(-1, keepdim=True)
    scores_RV = (log_p_RV - best_R1.where(best_R1 > -torch.inf, 0.0)) / settings.temperature
    if 0 < settings.top_k < scores_RV.size(1):
        scores_RV = scores_RV.masked_fill(~_best(scores_RV, settings.top_k), -torch.inf)
    if settings.min_p > 0:
        p_RV = scores_RV.softmax(-1)
        too_small = p_RV < settings.min_p * p_RV.amax(-1, keepdim=True)
        scores_RV = scores_RV.masked_fill(too_small, -torch.inf)
    if settings.top_p < 1:
        p_RV, order_RV = scores_RV.softmax(-1).sort(dim=-1, descending=True, stable=True)
        before_RV = p_RV.cumsum(-1) - p_RV
        beyond_RV = torch.zeros_like(before_RV, dtype=torch.bool)
        beyond_RV.scatter_(1, order_RV, before_RV >= settings.top_p)
        scores_RV = scores_RV.masked_fill(beyond_RV, -torch.inf)
    return scores_RV


def _best(scores_RV: Tensor, count: int) -> Tensor:
    """Return whether each token is among the `count` best; ties go to the lowest index."""
    least_R1 = scores_RV.topk(count).values[:, -1:]
    above_RV, equal_RV = scores_RV > least_R1, scores_RV == least_R1
    room_R1 = count - above_RV.sum(-1, keepdim=True)
    return above_RV | (equal_RV & (equal_RV.cumsum(-1) <= room_R1))


class Sampler:
    """Random number generators of all rows, seeded with seed, source and sample number."""

    def __init__(
        self,
        settings: SampleSettings,
        sources: Sequence[Sequence[int]],
        samples: int,
        *,
        among: tuple[Tensor, int] | None = None,
    ) -> None:
        """Seed the generators of `samples` rows of each source.

        Args:
            settings: temperature, truncation and seed.
            sources: ids of each source.
            samples: rows of each source.
            among: the tokens V that are drawn from, ascending, and how many the vocabulary has; a
                token gets the same random numbers whichever others there are.  None for all.
        """
        self.settings, self._among = settings, among
        self._generators = [
            torch.Generator().manual_seed(_seed(settings.seed, source, sample))
            for source in sources
            for sample in range(samples)
        ]

    def choose(self, log_p_RV: Tensor, rows: Sequence[bool] | None = None) -> Tensor:
        """Draw one token for every row, [R]; Gumbel noise never draws a zero probability.

        Args:
            log_p_RV: log probabilities of the next tokens.
            rows: whether each row draws; the other rows do not advance their generators, and the
                tokens returned for them are meaningless.
        """
        scores_RV = filtered(log_p_RV, self.settings)
        size, none = scores_RV.size(1), torch.full(scores_RV.shape[1:], 0.5)
        uniform_RV = torch.stack(
            [
                self._uniform(size, generator) if rows is None or rows[row] else none
                for row, generator in enumerate(self._generators)
            ]
        )
        noise_RV = -torch.log(-torch.log(uniform_RV.clamp(1e-20, 1 - 1e-7)))
        return (scores_RV + noise_RV.to(scores_RV.device)).argmax(-1)

    def _uniform(self, size: int, generator: torch.Generator) -> Tensor:
        """Return a number from 0 to 1 for each token that is drawn from."""
        if self._among is None:
            return torch.rand(size, generator=generator)
        tokens_V, vocabulary = self._among
        return torch.rand(vocabulary, generator=generator)[tokens_V]


def _seed(seed: int, source: Sequence[int], sample: int) -> int:
    text = f"{seed} {sample} {' '.join(map(str, source))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
