"""Relative positions: terms of the attention scores.

Every module maps queries and keys to a term of the scores; the queries are at the last T of the S
positions of the keys.  If `scaled`, attention multiplies the term by the scale of its scores.

Axes: B sequences, H heads, G key and value heads, T query positions, S key positions, K width of
one head, P width of a position encoding, D distances.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..kernels.linear import draw_linear
from .position_module import sinusoids


def distances(readers: int, read: int, device: torch.device) -> Tensor:
    """Return query position minus key position, [T, S]; negative for later keys.

    Args:
        readers: number of queries T, which are the last T of the S positions.
        read: number of keys S.
        device: device of the result.
    """
    read_S = torch.arange(read, device=device)
    return read_S[read - readers :, None] - read_S


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


class Alibi(nn.Module):
    """Subtract a multiple of the distance from the scores of each head, on either side.

    Head h, from 1 to H, subtracts 2^(-8h/H) per position of distance.

    Source: Press et al. 2022, section 3.
    """

    rotates = scaled = False

    def __init__(self, heads: int) -> None:
        """Set the number of heads; there are no parameters."""
        super().__init__()
        self.heads = heads

    def forward(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor:
        """Return the term of the scores, [1, H, T, S] in float32."""
        distance_TS = distances(query_BHTK.size(2), key_BGSK.size(2), query_BHTK.device)
        index_H = torch.arange(1, self.heads + 1, device=query_BHTK.device, dtype=torch.float32)
        slope_H = torch.exp2(index_H * (-8 / self.heads))
        return (-slope_H[:, None, None] * distance_TS.abs())[None]


class RelativeBias(nn.Module):
    """Learned bias per head and distance bucket.

    Source: Raffel et al. 2020, section 2.1.
    """

    rotates = scaled = False

    def __init__(
        self, heads: int, buckets: int = 32, max_distance: int = 128, *, causal: bool = False
    ) -> None:
        """Create the table [buckets, H]."""
        super().__init__()
        self.longest, self.causal = max_distance, causal
        self.weight = nn.Parameter(torch.empty(buckets, heads))

    def initialize(self, generator: torch.Generator) -> None:  # noqa: ARG002 - the contract
        """Start at zero, so that all distances are treated equally."""
        nn.init.zeros_(self.weight)

    def forward(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor:
        """Return the term of the scores, [1, H, T, S]."""
        distance_TS = distances(query_BHTK.size(2), key_BGSK.size(2), query_BHTK.device)
        bucket_TS = distance_buckets(
            distance_TS, self.weight.size(0), self.longest, causal=self.causal
        )
        return F.embedding(bucket_TS, self.weight).permute(2, 0, 1)[None]


class RelativeKeys(nn.Module):
    """Learned key per distance, clipped to `reach` and shared by all heads.

    Source: Shaw et al. 2018, sections 3.1 and 3.2, for keys only.
    """

    rotates, scaled = False, True

    def __init__(self, d_k: int, reach: int = 16, *, causal: bool = False) -> None:
        """Create the table, from `reach` positions before the query to `reach` after it.

        If causal, it ends at the query itself.
        """
        super().__init__()
        self.reach, self.after = reach, 0 if causal else reach
        self.weight = nn.Parameter(torch.empty(reach + self.after + 1, d_k))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights."""
        nn.init.xavier_uniform_(self.weight, generator=generator)

    def forward(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor:
        """Return the products of the queries and the keys of their distances, [B, H, T, S]."""
        distance_TS = distances(query_BHTK.size(2), key_BGSK.size(2), query_BHTK.device)
        product_BHTR = query_BHTK @ self.weight.T
        row_TS = (-distance_TS).clamp(-self.reach, self.after) + self.reach
        return product_BHTR.gather(-1, row_TS.expand(*query_BHTK.shape[:2], -1, -1))


class TransformerXLPosition(nn.Module):
    """Relative positions of Transformer-XL: u k + (q + v) W R[distance].

    R are sinusoidal encodings of distances, u and v learned vectors of each head.

    Source: Dai et al. 2019, section 3.3 and appendix B.
    """

    rotates, scaled = False, True

    def __init__(self, heads: int, d_k: int, d_position: int) -> None:
        """Create u, v [H, K] and the map W of the encodings, [H * K, P]."""
        super().__init__()
        self.heads, self.width = heads, d_position
        self.content_bias = nn.Parameter(torch.empty(heads, d_k))
        self.position_bias = nn.Parameter(torch.empty(heads, d_k))
        self.distance = nn.Linear(d_position, heads * d_k, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; u and v start at zero."""
        draw_linear(generator, self.distance)
        nn.init.zeros_(self.content_bias)
        nn.init.zeros_(self.position_bias)

    def forward(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor:
        """Return the term of the scores, [B, H, T, S], without their scale."""
        readers, read = query_BHTK.size(2), key_BGSK.size(2)
        first = torch.arange(read + readers - 1, device=query_BHTK.device) - (readers - 1)
        encoding_DP = sinusoids(first, self.width, "halves").to(query_BHTK.dtype)
        key_DHK = self.distance(encoding_DP).unflatten(-1, (self.heads, -1))
        query = query_BHTK + self.position_bias[:, None]
        product_BHTD = query @ key_DHK.permute(1, 2, 0)
        row_TS = distances(readers, read, query_BHTK.device) + (readers - 1)
        position_term = product_BHTD.gather(-1, row_TS.expand(*query_BHTK.shape[:2], -1, -1))
        shared = self.heads // key_BGSK.size(1)
        key_BHSK = key_BGSK.repeat_interleave(shared, 1) if shared > 1 else key_BGSK
        content_BHS = (key_BHSK * self.content_bias[:, None]).sum(-1)
        term_BHTS: Tensor = position_term + content_BHS[:, :, None, :]
        return term_BHTS


class DisentangledPosition(nn.Module):
    """Relative positions of DeBERTa: q_i k_d + k_j q_d, with d the distance i - j.

    Source: He et al. 2021, DeBERTa, section 3.1.
    """

    rotates, scaled = False, True

    def __init__(
        self,
        heads: int,
        d_k: int,
        d_position: int,
        buckets: int,
        max_distance: int | None = None,
        norm: str = "none",
        eps: float = 1e-7,
    ) -> None:
        """Create the vectors [2 * buckets, P], from later keys to earlier ones, and their maps."""
        super().__init__()
        self.heads, self.buckets, self.longest = heads, buckets, max_distance
        self.weight = nn.Parameter(torch.empty(2 * buckets, d_position))
        self.norm = nn.LayerNorm(d_position, eps=eps) if norm == "layer_norm" else nn.Identity()
        self.query = nn.Linear(d_position, heads * d_k)
        self.key = nn.Linear(d_position, heads * d_k)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw the vectors from N(0, 1/P), and Xavier-uniform maps."""
        nn.init.normal_(self.weight, std=self.weight.size(1) ** -0.5, generator=generator)
        draw_linear(generator, self.query, self.key)
        if isinstance(self.norm, nn.LayerNorm):
            self.norm.reset_parameters()

    def forward(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor:
        """Return the term of the scores, [B, H, T, S], without their scale."""
        vectors_DP = self.norm(self.weight).to(query_BHTK.dtype)
        query_HKD, key_HKD = (
            part(vectors_DP).unflatten(-1, (self.heads, -1)).permute(1, 2, 0)
            for part in (self.query, self.key)
        )
        shared = self.heads // key_BGSK.size(1)
        key_BHSK = key_BGSK.repeat_interleave(shared, 1) if shared > 1 else key_BGSK
        row_TS = self._rows(distances(query_BHTK.size(2), key_BGSK.size(2), query_BHTK.device))
        before = query_BHTK.shape[:2]
        to_place = (query_BHTK @ key_HKD).gather(-1, row_TS.expand(*before, -1, -1))
        from_place = (key_BHSK @ query_HKD).gather(-1, row_TS.T.expand(*before, -1, -1))
        term_BHTS: Tensor = to_place + from_place.transpose(-1, -2)
        return term_BHTS

    def _rows(self, distance_TS: Tensor) -> Tensor:
        """Return the row of the vectors for each distance.

        With logarithmic buckets, those of DeBERTa's released code: distances up to half of the
        buckets have their own.
        """
        if self.longest is not None:
            half = self.buckets // 2
            size_TS = distance_TS.abs().clamp(min=half).float()
            steps_TS = torch.log(size_TS / half) / math.log((self.longest - 1) / half) * (half - 1)
            far_TS = (torch.ceil(steps_TS).long() + half) * distance_TS.sign()
            distance_TS = torch.where(distance_TS.abs() <= half, distance_TS, far_TS)
        return (distance_TS + self.buckets).clamp(0, 2 * self.buckets - 1)
