"""Position: where a vector stands.

Axes: B sequences, H heads (or halves of a width), T positions, D width, K of one head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.decode_state import Capacity, State
from ..kernels.dropout import Dropout

LONGEST_WAVE = 10_000.0


def sinusoids(positions_T: Tensor, d_model: int, form: str = "interleaved") -> Tensor:
    """Return the waves at some positions, [T, D] in float32.

    `interleaved` is the paper's: PE(pos, 2i) = sin(pos / 10000^(2i/D)) and PE(pos, 2i+1)
    its cosine.  `concatenated` is the released code's: all sines, then all cosines, with
    D/2 - 1 steps between the shortest and the longest wave.  `halves` is the paper's, with
    all sines before all cosines.

    Source: Vaswani et al. 2017, section 3.5; tensor2tensor 1.0.3; Junczys-Dowmunt et al. 2018.
    """
    half = d_model // 2
    steps = max(half - 1, 1) if form == "concatenated" else half
    index = torch.arange(half, device=positions_T.device, dtype=torch.float32)
    angle_TH = positions_T.float()[:, None] * torch.exp(index * (-math.log(LONGEST_WAVE) / steps))
    if form == "interleaved":
        return torch.stack((angle_TH.sin(), angle_TH.cos()), -1).flatten(1)
    return torch.cat((angle_TH.sin(), angle_TH.cos()), -1)


def rotated(x_BHTK: Tensor, positions_T: Tensor, base: float) -> Tensor:
    """Turn each pair of neighbours in a head by an angle that grows with the position.

    Numbers 2i and 2i + 1 are one pair (interleaved, as in the paper), a point of the
    plane that is turned by pos * base^(-2i/K).  The product of a query and a key that
    were turned depends on how far apart they stand, and not on where.

    Source: Su et al. 2021, section 3.4.2.
    """
    width = x_BHTK.size(-1)
    index = torch.arange(0, width, 2, device=positions_T.device, dtype=torch.float32)
    angle_TH = positions_T.float()[:, None] * torch.exp(index * (-math.log(base) / width))
    cos, sin = angle_TH.cos(), angle_TH.sin()
    first, second = x_BHTK.unflatten(-1, (-1, 2)).unbind(-1)
    pairs = torch.stack((first * cos - second * sin, first * sin + second * cos), -1)
    return pairs.flatten(-2).to(x_BHTK.dtype)


def distances(readers: int, read: int, device: torch.device) -> Tensor:
    """Return how far before its reader each position stands, [T, S]; negative after it.

    Args:
        readers: positions T, the last of those that are read.
        read: positions S.
        device: where the numbers lie.
    """
    read_S = torch.arange(read, device=device)
    return read_S[read - readers :, None] - read_S


def alibi(distance_TS: Tensor, heads: int) -> Tensor:
    """Return what is added to the scores: less, the further apart, [H, T, S] in float32.

    Head h of 1 to H takes off 2^(-8h/H) for each step, to either side.

    Source: Press et al. 2022, section 3.
    """
    index_H = torch.arange(1, heads + 1, device=distance_TS.device, dtype=torch.float32)
    slope_H = torch.exp2(index_H * (-8 / heads))
    return -slope_H[:, None, None] * distance_TS.abs()


def distance_buckets(distance_TS: Tensor, buckets: int, longest: int, *, causal: bool) -> Tensor:
    """Return the bucket of each distance, [T, S], from 0 to buckets - 1.

    Half of the buckets hold one distance each, from 0 on; the rest have bounds that grow
    by one factor, up to `longest`, and the last holds all that are further.  When not
    causal, half of them are for what stands after the reader, counted likewise.

    Source: Raffel et al. 2020, section 2.1.
    """
    after = torch.zeros_like(distance_TS)
    if causal:
        distance_TS = distance_TS.clamp(min=0)
    else:
        buckets //= 2
        after = (distance_TS < 0) * buckets
        distance_TS = distance_TS.abs()
    exact = buckets // 2
    factor = math.log(longest / exact)
    steps_TS = torch.log(distance_TS.clamp(min=exact).float() / exact) / factor
    grown_TS = exact + (steps_TS * (buckets - exact)).long()
    bucket_TS = torch.where(distance_TS < exact, distance_TS, grown_TS.clamp(max=buckets - 1))
    return after + bucket_TS


class RelativeBias(nn.Module):
    """A learned number for each head and bucket of distances, added to the scores.

    Source: Raffel et al. 2020, section 2.1.
    """

    def __init__(self, heads: int, buckets: int, longest: int, *, causal: bool) -> None:
        """Make the table, buckets x heads."""
        super().__init__()
        self.longest, self.causal = longest, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - as every module
        """Start at zero: every distance alike."""
        nn.init.zeros_(self.weight)

    def forward(self, distance_TS: Tensor) -> Tensor:
        """Return what is added to the scores, [H, T, S]."""
        bucket_TS = distance_buckets(
            distance_TS, self.weight.size(0), self.longest, causal=self.causal
        )
        return F.embedding(bucket_TS, self.weight).permute(2, 0, 1)


class RelativeKey(nn.Module):
    """A learned key for each distance up to `reach`, which every head's queries match too.

    Source: Shaw et al. 2018, sections 3.1 and 3.2, keys alone.
    """

    def __init__(self, d_k: int, reach: int, *, causal: bool) -> None:
        """Make the table: rows from `reach` before the reader to `reach` after it, or to itself."""
        super().__init__()
        self.reach, self.after = reach, 0 if causal else reach
        self.weight = nn.Parameter(torch.empty(reach + self.after + 1, d_k))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights."""
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, query_BHTK: Tensor, distance_TS: Tensor) -> Tensor:
        """Return the products of queries and keys of distances, [B, H, T, S]."""
        product_BHTR = query_BHTK @ self.weight.T
        row_TS = (-distance_TS).clamp(-self.reach, self.after) + self.reach
        return product_BHTR.gather(-1, row_TS.expand(*query_BHTK.shape[:2], -1, -1))


class SinusoidalPosition(nn.Module):
    """Add waves of many lengths, then drop out.

    Source: Vaswani et al. 2017, sections 3.5 and 5.4.
    """

    def __init__(self, dropout: float = 0.0, form: str = "interleaved") -> None:
        """Keep the dropout; there is nothing to learn."""
        super().__init__()
        self.form = form
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add to x [B, T, D] the waves of positions 0 to T - 1."""
        return self._add(x, torch.arange(x.size(1), device=x.device))

    def begin(self, capacity: Capacity) -> State:  # noqa: ARG002 - the contract of every block
        """Remember nothing."""
        return State()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Add to x [R, T, D] the waves of the next positions."""
        return self._add(x, torch.arange(position, position + x.size(1), device=x.device))

    def _add(self, x: Tensor, positions_T: Tensor) -> Tensor:
        added: Tensor = self.dropout(x + sinusoids(positions_T, x.size(-1), self.form).to(x.dtype))
        return added


class LearnedPosition(nn.Module):
    """Add a learned vector for each position, then drop out.

    Source: Gehring et al. 2017, section 3.1; Vaswani et al. 2017, table 3 row E.
    """

    def __init__(self, d_model: int, max_length: int, dropout: float = 0.0) -> None:
        """Make the table, max_length x d_model."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(max_length, d_model))
        self.dropout = Dropout(dropout)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw from N(0, 1/D), as token embeddings."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Add to x [B, T, D] the vectors of positions 0 to T - 1.

        Raises:
            ValueError: T is more than `max_length`.
        """
        return self._add(x, 0)

    def begin(self, capacity: Capacity) -> State:  # noqa: ARG002 - the contract of every block
        """Remember nothing."""
        return State()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Add to x [R, T, D] the vectors of the next positions."""
        return self._add(x, position)

    def _add(self, x: Tensor, start: int) -> Tensor:
        end = start + x.size(1)
        if end > self.weight.size(0):
            msg = f"position {end} is past the {self.weight.size(0)} of learned_position"
            raise ValueError(msg)
        positions = torch.arange(start, end, device=x.device)
        added: Tensor = self.dropout(x + F.embedding(positions, self.weight))
        return added


class StepPosition(nn.Module):
    """Add the waves of the number of a step, for a layer that is applied again and again.

    Source: Dehghani et al. 2019, section 2.1, equations 6 and 7; there they are added together
    with those of positions.
    """

    def forward(self, x: Tensor, clock: Tensor) -> tuple[Tensor, Tensor]:
        """Return x + PE(clock + 1), with the paper's waves, and clock + 1; all [..., D].

        Args:
            x: vectors.
            clock: how many steps were made, in every place; zeros before the first.
        """
        step = clock + 1
        place_D = torch.arange(x.size(-1), device=x.device)
        power_D = (place_D - place_D % 2).float() / x.size(-1)
        angle = step.float() * torch.exp(power_D * -math.log(LONGEST_WAVE))
        wave = torch.where(place_D % 2 == 0, angle.sin(), angle.cos())
        return x + wave.to(x.dtype), step
