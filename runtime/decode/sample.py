"""Sample: outputs drawn by chance, each sentence by a chance of its own.

Axes: N sentences, K samples of each, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from .settings import SampleSettings


def filtered(log_p_RV: Tensor, settings: SampleSettings) -> Tensor:
    """Return log probabilities, up to a constant, from which a token is drawn.

    Args:
        log_p_RV: of the model, after controls.
        settings: what remains of them, and how sharp they are.
    """
    scores_RV = log_p_RV / settings.temperature
    if 0 < settings.top_k < scores_RV.size(1):
        least_R1 = scores_RV.topk(settings.top_k).values[:, -1:]
        scores_RV = scores_RV.masked_fill(scores_RV < least_R1, -torch.inf)
    if settings.min_p > 0:
        p_RV = scores_RV.softmax(-1)
        too_small = p_RV < settings.min_p * p_RV.amax(-1, keepdim=True)
        scores_RV = scores_RV.masked_fill(too_small, -torch.inf)
    if settings.top_p < 1:
        p_RV, order_RV = scores_RV.softmax(-1).sort(-1, descending=True)
        before_RV = p_RV.cumsum(-1) - p_RV
        beyond_RV = torch.zeros_like(before_RV, dtype=torch.bool)
        beyond_RV.scatter_(1, order_RV, before_RV >= settings.top_p)
        scores_RV = scores_RV.masked_fill(beyond_RV, -torch.inf)
    return scores_RV


class Chances:
    """Where the draws of each row come from: seed, source and number of the sample."""

    def __init__(
        self, settings: SampleSettings, sources: Sequence[Sequence[int]], samples: int
    ) -> None:
        """Begin the draws of `samples` rows of each source."""
        self.settings = settings
        self._generators = [
            torch.Generator().manual_seed(_seed(settings.seed, source, sample))
            for source in sources
            for sample in range(samples)
        ]

    def choose(self, log_p_RV: Tensor) -> Tensor:
        """Draw one token for every row, [R]; by Gumbel noise, so zero is never drawn."""
        scores_RV = filtered(log_p_RV, self.settings)
        size = scores_RV.size(1)
        uniform_RV = torch.stack([torch.rand(size, generator=one) for one in self._generators])
        noise_RV = -torch.log(-torch.log(uniform_RV.clamp(1e-20, 1 - 1e-7)))
        return (scores_RV + noise_RV.to(scores_RV.device)).argmax(-1)


def _seed(seed: int, source: Sequence[int], sample: int) -> int:
    text = f"{seed} {sample} {' '.join(map(str, source))}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
