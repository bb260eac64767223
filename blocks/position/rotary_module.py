"""Rotary positions.

Axes: B sequences, H heads, T positions, K width of one head, R rotated features, P = R / 2 pairs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State


def rotated(x_BHTK: Tensor, positions_T: Tensor, base: float) -> Tensor:
    """Apply rotary position encoding: rotate each pair of features by a multiple of its position.

    Features 2i and 2i + 1 form a pair (interleaved, as in the paper), which is rotated by the
    angle pos * base^(-2i/K).

    Source: Su et al. 2021, section 3.4.2.
    """
    width = x_BHTK.size(-1)
    index = torch.arange(0, width, 2, device=positions_T.device, dtype=torch.float32)
    angle_TP = positions_T.float()[:, None] * torch.exp(index * (-math.log(base) / width))
    return turned(x_BHTK, angle_TP.cos(), angle_TP.sin(), halves=False)


def turned(x_BHTR: Tensor, cos_TP: Tensor, sin_TP: Tensor, *, halves: bool) -> Tensor:
    """Rotate pairs of features by angles, given their cosines and sines.

    Args:
        x_BHTR: vectors.
        cos_TP: cosine of the angle of each position and pair.
        sin_TP: sine of it.
        halves: whether feature i forms a pair with i + R/2, and not 2i with 2i + 1.
    """
    split = (2, -1) if halves else (-1, 2)
    first, second = x_BHTR.unflatten(-1, split).unbind(-2 if halves else -1)
    components = (first * cos_TP - second * sin_TP, first * sin_TP + second * cos_TP)
    y = torch.cat(components, -1) if halves else torch.stack(components, -1).flatten(-2)
    return y.to(x_BHTR.dtype)


class Rotary(nn.Module):
    """Rotate pairs of features of queries and keys by multiples of their positions.

    The dot product of a rotated query and a rotated key depends only on their distance.

    Source: Su et al. 2021, section 3.4.2; scaling: Chen et al. 2023; Peng et al. 2023; Grattafiori
    et al. 2024.
    """

    rotates = True

    def __init__(  # noqa: PLR0913, PLR0917 - the params of a block
        self,
        width: int,
        base: float = 10_000.0,
        pairs: str = "interleaved",
        scaling: str = "none",
        factor: float = 1.0,
        original_length: int | None = None,
        slow_turns: float = 1.0,
        fast_turns: float = 32.0,
        magnitude: float | None = None,
        *,
        rounded: bool = True,
    ) -> None:
        """Set the number of rotated features, a multiple of 2, and the angles."""
        super().__init__()
        self.width, self.base, self.halves = width, base, pairs == "halves"
        self.scaling, self.factor, self.original = scaling, factor, original_length or 1
        self.slow, self.fast, self.rounded = slow_turns, fast_turns, rounded
        self.magnitude = 1.0
        if scaling == "yarn":
            self.magnitude = 0.1 * math.log(factor) + 1.0 if magnitude is None else magnitude

    def forward(self, query: Tensor, start: int = 0) -> Tensor:
        """Rotate queries or keys [B, H, T, K] at the positions from `start` on."""
        end = start + query.size(2)
        positions_T = torch.arange(query.size(2), device=query.device) + start
        angle_TP = positions_T.float()[:, None] * self._frequencies(end, query.device)
        cos, sin = angle_TP.cos(), angle_TP.sin()
        if self.magnitude != 1.0:
            cos, sin = cos * self.magnitude, sin * self.magnitude
        y = turned(query[..., : self.width], cos, sin, halves=self.halves)
        return y if self.width == query.size(-1) else torch.cat((y, query[..., self.width :]), -1)

    def begin(self, capacity: Capacity) -> State:  # noqa: ARG002 - the contract of every block
        """Return an empty decoding state, of a node."""
        return State()

    def step(self, query: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Rotate the next queries or keys [R, H, T, K], of a node."""
        return self.forward(query, position)

    def _frequencies(self, length: int, device: torch.device) -> Tensor:
        """Return the angle of each pair per position, [P], for sequences of a length."""
        index = torch.arange(0, self.width, 2, device=device, dtype=torch.float32)
        base, width = self.base, self.width
        if self.scaling == "dynamic" and width > 2:  # noqa: PLR2004 - one pair has frequency 1
            stretch = self.factor * max(length, self.original) / self.original - (self.factor - 1)
            base *= stretch ** (width / (width - 2))
        own_P = torch.exp(index * (-math.log(base) / width))
        if self.scaling in ("none", "dynamic"):
            return own_P
        if self.scaling == "linear":
            return own_P / self.factor
        kept_P = (
            self._kept_by_turns(own_P) if self.scaling == "llama3" else self._kept_by_pair(index)
        )
        return kept_P * own_P + (1 - kept_P) * own_P / self.factor

    def _kept_by_turns(self, frequency_P: Tensor) -> Tensor:
        """Return how much of each frequency is kept, linear in its turns; Llama 3."""
        turns_P = self.original * frequency_P / (2 * math.pi)
        return ((turns_P - self.slow) / (self.fast - self.slow)).clamp(0.0, 1.0)

    def _kept_by_pair(self, index_P: Tensor) -> Tensor:
        """Return how much of each frequency is kept, linear in the number of its pair; YaRN."""

        def pair(turns: float) -> float:
            log_ratio = math.log(self.original / (turns * 2 * math.pi))
            return self.width * log_ratio / (2 * math.log(self.base))

        low, high = pair(self.fast), pair(self.slow)
        if self.rounded:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.width - 1)
        span = high - low if high != low else 0.001
        return 1 - ((index_P / 2 - low) / span).clamp(0.0, 1.0)
