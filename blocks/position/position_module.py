"""Absolute and relative position encodings.

Axes: B sequences, H heads (or half of a width), T query positions, S key positions, D width,
K width of one head.
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


def rotated(x_BHTK: Tensor, positions_T: Tensor, base: float) -> Tensor:
    """Apply rotary position encoding: rotate each pair of features by a multiple of its position.

    Features 2i and 2i + 1 form a pair (interleaved, as in the paper), which is rotated by the
    angle pos * base^(-2i/K).  The dot product of a rotated query and a rotated key depends
    only on their relative position.

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
    """Return query position minus key position, [T, S]; negative for later keys.

    Args:
        readers: number of queries T, which are the last T of the S positions.
        read: number of keys S.
        device: device of the result.
    """
    read_S = torch.arange(read, device=device)
    return read_S[read - readers :, None] - read_S


def alibi(distance_TS: Tensor, heads: int) -> Tensor:
    """Return the ALiBi bias of the scores, [H, T, S] in float32.

    Head h, from 1 to H, subtracts 2^(-8h/H) per position of distance, on either side.

    Source: Press et al. 2022, section 3.
    """
    index_H = torch.arange(1, heads + 1, device=distance_TS.device, dtype=torch.float32)
    slope_H = torch.exp2(index_H * (-8 / heads))
    return -slope_H[:, None, None] * distance_TS.abs()


def distance_buckets(distance_TS: Tensor, buckets: int, longest: int, *, causal: bool) -> Tensor:
    """Return the bucket of each distance, [T, S], from 0 to buckets - 1.

    Half of the buckets hold one distance each, starting at 0; the bounds of the others grow
    logarithmically up to `longest`, and the last bucket holds all larger distances.  If not
    causal, half of the buckets are for later keys and are partitioned in the same way.

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
    """Learned bias per head and distance bucket, added to the scores.

    Source: Raffel et al. 2020, section 2.1.
    """

    def __init__(self, heads: int, buckets: int, longest: int, *, causal: bool) -> None:
        """Create the table [buckets, H]."""
        super().__init__()
        self.longest, self.causal = longest, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start at zero, so that all distances are treated equally."""
        nn.init.zeros_(self.weight)

    def forward(self, distance_TS: Tensor) -> Tensor:
        """Return the bias of the scores, [H, T, S]."""
        bucket_TS = distance_buckets(
            distance_TS, self.weight.size(0), self.longest, causal=self.causal
        )
        return F.embedding(bucket_TS, self.weight).permute(2, 0, 1)


class RelativeKey(nn.Module):
    """Learned key per distance, clipped to `reach` and shared by all heads.

    Source: Shaw et al. 2018, sections 3.1 and 3.2, for keys only.
    """

    def __init__(self, d_k: int, reach: int, *, causal: bool) -> None:
        """Create the table, from `reach` positions before the query to `reach` after it.

        If causal, it ends at the query itself.
        """
        super().__init__()
        self.reach, self.after = reach, 0 if causal else reach
        self.weight = nn.Parameter(torch.empty(reach + self.after + 1, d_k))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights."""
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, query_BHTK: Tensor, distance_TS: Tensor) -> Tensor:
        """Return the products of the queries and the keys of their distances, [B, H, T, S]."""
        product_BHTR = query_BHTK @ self.weight.T
        row_TS = (-distance_TS).clamp(-self.reach, self.after) + self.reach
        return product_BHTR.gather(-1, row_TS.expand(*query_BHTK.shape[:2], -1, -1))


class SinusoidalPosition(nn.Module):
    """Add sinusoidal position encodings, then apply dropout.

    Source: Vaswani et al. 2017, sections 3.5 and 5.4.
    """

    def __init__(self, dropout: float = 0.0, form: str = "interleaved") -> None:
        """Set the form and the dropout probability; there are no parameters."""
        super().__init__()
        self.form = form
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Add the encodings of positions 0 to T - 1 to x [B, T, D]."""
        return self._add(x, torch.arange(x.size(1), device=x.device))

    def begin(self, capacity: Capacity) -> State:  # noqa: ARG002 - the contract of every block
        """Return an empty decoding state."""
        return State()

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:  # noqa: ARG002
        """Add the encodings of the next positions to x [R, T, D]."""
        return self._add(x, torch.arange(position, position + x.size(1), device=x.device))

    def _add(self, x: Tensor, positions_T: Tensor) -> Tensor:
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
