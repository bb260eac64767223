"""Embeddings of tokens, and absolute position encodings.

Axes: B sequences, H half of a width, T positions, D width.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.dropout import Dropout


class Embedding(nn.Module):
    """Look up a learned vector for each id, optionally multiplied by sqrt(D).

    Source: Vaswani et al. 2017, section 3.4.
    """

    def __init__(
        self, vocab: int, d_model: int, scale: str = "none", *, frozen: bool = False
    ) -> None:
        """Create the table [vocab, D]."""
        super().__init__()
        self.frozen = frozen
        self.weight = nn.Parameter(torch.empty(vocab, d_model))
        self.factor = d_model**0.5 if scale == "sqrt" else 1.0

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register a parameter, which may be a tied tensor, and freeze it if `frozen` is set."""
        if self.frozen and param is not None:
            param.requires_grad = False
        super().register_parameter(name, param)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), so that scaled vectors have unit variance."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        """Look up the vectors [..., D] of ids [...]."""
        return F.embedding(ids, self.weight) * self.factor


LONGEST_WAVE = 10_000.0


def sinusoids(positions_T: Tensor, d_model: int, form: str = "interleaved") -> Tensor:
    """Return sinusoidal encodings of the given positions, [T, D] in float32.

    `interleaved` is the form of the paper: PE(pos, 2i) = sin(pos / 10000^(2i/D)) and
    PE(pos, 2i+1) = cos(pos / 10000^(2i/D)).  `concatenated` is the form of the released code:
    all sines, then all cosines, with D/2 - 1 steps between the shortest and the longest
    wavelength.  `halves` has the wavelengths of the paper, all sines before all cosines.

    Source: Vaswani et al. 2017, section 3.5; tensor2tensor 1.0.3; Junczys-Dowmunt et al. 2018.
    """
    half = d_model // 2
    steps = max(half - 1, 1) if form == "concatenated" else half
    index = torch.arange(half, device=positions_T.device, dtype=torch.float32)
    angle_TH = positions_T.float()[:, None] * torch.exp(index * (-math.log(LONGEST_WAVE) / steps))
    if form == "interleaved":
        return torch.stack((angle_TH.sin(), angle_TH.cos()), -1).flatten(1)
    return torch.cat((angle_TH.sin(), angle_TH.cos()), -1)


class SinusoidalPosition(nn.Module):
    """Add sinusoidal position encodings, then apply dropout.

    Source: Vaswani et al. 2017, sections 3.5 and 5.4.
    """

    def __init__(self, dropout: float = 0.0, form: str = "interleaved", first: int = 0) -> None:
        """Set the form, the number of the first position and the dropout probability."""
        super().__init__()
        self.form, self.first = form, first
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add the encodings of T positions, from the first one on, to x [B, T, D]."""
        return self._add(x, torch.arange(x.size(1), device=x.device))

    def begin(self, capacity: Capacity) -> State:  # noqa: ARG002 - the contract of every block
        """Return an empty decoding state."""
        return State()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Add the encodings of the next positions to x [R, T, D]."""
        return self._add(x, torch.arange(position, position + x.size(1), device=x.device))

    def _add(self, x: Tensor, positions_T: Tensor) -> Tensor:
        if self.first:
            positions_T = positions_T + self.first
        added: Tensor = self.dropout(x + sinusoids(positions_T, x.size(-1), self.form).to(x.dtype))
        return added


class LearnedPosition(nn.Module):
    """Add a learned vector for each position, then apply dropout.

    Source: Gehring et al. 2017, section 3.1; Vaswani et al. 2017, table 3 row E.
    """

    def __init__(self, d_model: int, max_length: int, dropout: float = 0.0) -> None:
        """Create the table [max_length, D]."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))
        self.dropout = Dropout(dropout)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), as for token embeddings."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Add the vectors of positions 0 to T - 1 to x [B, T, D].

        Raises:
            ValueError: T is greater than `max_length`.
        """
        return self._add(x, 0)

    def begin(self, capacity: Capacity) -> State:  # noqa: ARG002 - the contract of every block
        """Return an empty decoding state."""
        return State()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Add the vectors of the next positions to x [R, T, D]."""
        return self._add(x, position)

    def _add(self, x: Tensor, start: int) -> Tensor:
        end = start + x.size(1)
        if end > self.weight.size(0):
            size = self.weight.size(0)
            msg = f"learned_position got {end} positions, but its max_length is {size}"
            raise ValueError(msg)
        positions = torch.arange(start, end, device=x.device)
        added: Tensor = self.dropout(x + F.embedding(positions, self.weight))
        return added


class StepPosition(nn.Module):
    """Add a sinusoidal encoding of the step, for a layer that is applied repeatedly.

    Source: Dehghani et al. 2019, section 2.1, equations 6 and 7, where it is added together
    with the encoding of positions.
    """

    def forward(self, x: Tensor, clock: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + PE(clock + 1), with the interleaved form, and clock + 1; all [..., D].

        Args:
            x: input vectors.
            clock: number of previous steps, in every element; zeros before the first step.
        """
        step = clock + 1
        index_D = torch.arange(x.size(-1), device=x.device)
        power_D = (index_D - index_D % 2).float() / x.size(-1)
        angle = step.float() * torch.exp(power_D * -math.log(LONGEST_WAVE))
        encoding = torch.where(index_D % 2 == 0, angle.sin(), angle.cos())
        return x + encoding.to(x.dtype), step
