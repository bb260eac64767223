"""Attention: every position of one sequence reads from another, or from its own.

Axes: B sequences, T positions that read, S positions that are read, D width of the
model, H heads, G heads of keys and values, K and V widths of one head; R rows = N
sentences x beams.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..kernels.attention_backends import varlen_applies, varlen_unpadded
from ..kernels.attention_dispatch import attend, weigh
from ..kernels.decode_state import Capacity, State
from ..kernels.init import draw_linear
from ..kernels.linear import LinearMap
from ..kernels.unpad import Batched, Place, Rows, with_padding, without_padding
from ..position.position_module import RelativeBias, RelativeKey, alibi, distances, rotated


class Attention(nn.Module):
    """Multi-head scaled dot-product attention.

    Each head weighs what is read by softmax(q k^T / sqrt(K)) and returns the weighted
    sum of values; a linear map mixes the heads.  With fewer heads of keys and values,
    H / G heads in a row read the same ones.

    Source: Vaswani et al. 2017, section 3.2; shared keys: Ainslie et al. 2023, section
    2.2; rotary: Su et al. 2021, section 3.4; window: Beltagy et al. 2020, section 3.1;
    scores without a scale: Luong et al. 2015, section 3.1; alibi: Press et al. 2022,
    section 3; relative bias: Raffel et al. 2020, section 2.1; relative keys: Shaw et al.
    2018, section 3.2; head gates: Michel et al. 2019, section 2.3.
    """

    batched: Batched | None = None
    """Where packed rows belong, while a model is trained on them."""
    places: Mapping[str, Place] = {}
    """Which ports take packed rows: `x`, `memory`."""

    def __init__(  # noqa: PLR0913 - the params of a block
        self,
        d_model: int,
        d_memory: int,
        heads: int,
        d_k: int,
        d_v: int,
        *,
        kv_heads: int | None = None,
        causal: bool = False,
        bias: bool = True,
        key_bias: bool = True,
        dropout: float = 0.0,
        position: str = "none",
        rotary_base: float = 10_000.0,
        window: int | None = None,
        scale: str = "sqrt",
        buckets: int = 32,
        max_distance: int = 128,
        reach: int = 16,
        head_gates: bool = False,
    ) -> None:
        """Make the four projections, the table of learned distances, a gate for each head."""
        super().__init__()
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.causal, self.dropout, self.window = causal, dropout, window
        self.scale = 1.0 if scale == "none" else None
        self.base = rotary_base if position == "rotary" else None
        self.alibi = position == "alibi"
        self.relative_bias: RelativeBias | None = None
        if position == "relative_bias":
            self.relative_bias = RelativeBias(heads, buckets, max_distance, causal=causal)
        self.relative_key: RelativeKey | None = None
        if position == "relative_key":
            self.relative_key = RelativeKey(d_k, reach, causal=causal)
        self.query = LinearMap(d_model, heads * d_k, bias)
        self.key = LinearMap(d_memory, self.kv_heads * d_k, bias and key_bias)
        self.value = LinearMap(d_memory, self.kv_heads * d_v, bias)
        self.out = LinearMap(heads * d_v, d_model, bias)
        self.head_gate = nn.Parameter(torch.ones(heads)) if head_gates else None

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases start at zero, gates at one."""
        draw_linear(generator, self.query, self.key, self.value, self.out)
        if self.head_gate is not None:
            nn.init.ones_(self.head_gate)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Let every position of x [B, T, D] read memory [B, S, D'], or x itself.

        While a model is trained on packed rows, both may come packed, and what is given is as x.

        Args:
            x: what reads.
            memory: what is read.
            mask: [B, S], true where it may be read.
            bias: [B, T, S], added to the scores of every head; -inf where none may read.

        Returns:
            What each position read, [B, T, D]; zeros mixed where nothing may be read.
        """
        own = memory is None
        of_x = self._rows("x", x)
        of_read = of_x if memory is None else self._rows("memory", memory)
        query = self.query(x)
        causal, dropout = self.causal and own, self.dropout if self.training else 0.0
        read = x if memory is None else memory
        if of_x is not None and of_read is not None:
            plain = bias is None and self._blind(own=own) and (mask is None or mask is of_read.mask)
            if plain and varlen_applies(query, dropout=dropout):
                return self._without_padding(query, read, of_x, of_read, causal=causal)
        query_BHTK = self._split(with_padding(query, of_x), self.heads)
        key_BGSK, value_BGSV = self._offered(read, of_read)
        if own:
            query_BHTK, key_BGSK = self._placed(query_BHTK, key_BGSK, 0)
        y_BHTV = attend(
            query_BHTK,
            key_BGSK,
            value_BGSV,
            mask,
            causal=causal,
            window=self.window if own else None,
            dropout=dropout,
            scale=self.scale,
            bias=self._bias(query_BHTK, key_BGSK, bias, own=own),
        )
        return self._merge(y_BHTV, of_x)

    def attention_weights(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return how much each head reads of each position, [B, H, T, S].

        Rows add up to 1, or are zeros where nothing may be read.  No dropout.

        Args:
            x: as of `forward`.
            memory: as of `forward`.
            mask: as of `forward`.
            bias: as of `forward`.
        """
        own = memory is None
        query_BHTK = self._split(self.query(x), self.heads)
        key_BGSK = self._split(self.key(x if memory is None else memory), self.kv_heads)
        if own:
            query_BHTK, key_BGSK = self._placed(query_BHTK, key_BGSK, 0)
        return weigh(
            query_BHTK,
            key_BGSK,
            mask,
            causal=self.causal and own,
            window=self.window if own else None,
            scale=self.scale,
            bias=self._bias(query_BHTK, key_BGSK, bias, own=own),
        )

    def begin(
        self, capacity: Capacity, memory: Tensor | None = None, mask: Tensor | None = None
    ) -> State:
        """Return buffers for own keys and values, or those of the memory, computed once."""
        if memory is not None:
            key, value = self._offered(memory)
            # They are read at every step, and so laid out head by head.
            fixed = {"key": key.contiguous(), "value": value.contiguous()}
            return State(fixed=fixed if mask is None else {**fixed, "mask": mask})

        def buffer(linear: nn.Linear) -> Tensor:
            width = linear.out_features // self.kv_heads
            shape = (capacity.rows, self.kv_heads, capacity.length, width)
            return torch.zeros(shape, dtype=capacity.dtype, device=capacity.device)

        return State(appended={"key": buffer(self.key), "value": buffer(self.value)})

    def step(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        *,
        state: State,
        position: int,
    ) -> Tensor:
        """Let the next positions of every row, x [R, T, D], read.

        With a memory, the beams of a sentence are its query positions, so the memory's
        keys and values are kept once for each sentence.

        Args:
            x: what reads.
            mask: [R, T], true where later positions may read these; without a memory.
            bias: [R, T, S], added to the scores; without a memory S reaches at least to here.
            state: what `begin` returned.
            position: where the first of them stands, counted from 0.
        """
        query_RHTK = self._split(self.query(x), self.heads)
        if state.fixed:
            key = state.fixed["key"]
            query = query_RHTK.unflatten(0, (key.size(0), -1)).transpose(1, 2).flatten(2, 3)
            value, mask = state.fixed["value"], state.fixed.get("mask")
            if bias is not None:
                bias = bias.unflatten(0, (key.size(0), -1)).flatten(1, 2)[:, None]
            y = attend(query, key, value, mask, scale=self.scale, bias=bias)
            return self._merge(y.unflatten(2, (-1, x.size(1))).transpose(1, 2).flatten(0, 1))
        end = position + x.size(1)
        key, value = self._offered(x)
        query_RHTK, key = self._placed(query_RHTK, key, position)
        for name, new in (("key", key), ("value", value)):
            state.appended[name][:, :, position:end] = new
        first = 0 if self.window is None else max(0, position - self.window)
        key, value = (state.appended[name][:, :, first:end] for name in ("key", "value"))
        if mask is not None:
            length = state.appended["key"].size(2)
            kept = state.appended.setdefault("mask", mask.new_zeros(mask.size(0), length, 1))
            kept[:, position:end, 0] = mask
            mask = kept[:, first:end, 0]
        if bias is not None:
            bias = bias[:, :, first:end]
        bias = self._bias(query_RHTK, key, bias, own=True)
        if x.size(1) > 1:
            far = distances(x.size(1), end - first, x.device)
            hidden_TS = far < 0 if self.window is None else (far < 0) | (far > self.window)
            seen = query_RHTK.new_zeros(1, 1, *hidden_TS.shape) if bias is None else bias
            bias = seen.masked_fill(hidden_TS, float("-inf"))
        return self._merge(attend(query_RHTK, key, value, mask, scale=self.scale, bias=bias))

    def _rows(self, port: str, value: Tensor) -> Rows | None:
        """Return where the positions of a packed value belong; None for a padded one."""
        place = self.places.get(port)
        return None if self.batched is None else self.batched.rows_of(value, place)

    def _without_padding(
        self, query: Tensor, read: Tensor, of_x: Rows, of_read: Rows, *, causal: bool
    ) -> Tensor:
        """Attend by the kernel that takes packed rows, from queries [R, H * K]."""
        query_RHK = query.unflatten(-1, (self.heads, -1))
        key_SGK, value_SGV = (
            of_heads.unflatten(-1, (self.kv_heads, -1))
            for of_heads in (self.key(read), self.value(read))
        )
        y_RHV = varlen_unpadded(
            query_RHK, key_SGK, value_SGV, of_x, of_read, causal=causal, scale=self.scale
        )
        return self._mixed(y_RHV)

    def _blind(self, *, own: bool) -> bool:
        """Say whether distance counts for nothing here."""
        plain = self.relative_bias is None and self.relative_key is None and not self.alibi
        return plain and not (own and (self.base is not None or self.window is not None))

    def _offered(self, read: Tensor, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return keys [B, G, S, K] and values [B, G, S, V] of what is read, [B, S, D']."""
        return (
            self._split(with_padding(self.key(read), rows), self.kv_heads),
            self._split(with_padding(self.value(read), rows), self.kv_heads),
        )

    def _placed(self, query_BHTK: Tensor, key_BGTK: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Turn queries and keys by their positions, which count from `start`, when asked."""
        if self.base is None:
            return query_BHTK, key_BGTK
        positions_T = torch.arange(query_BHTK.size(2), device=query_BHTK.device) + start
        return (
            rotated(query_BHTK, positions_T, self.base),
            rotated(key_BGTK, positions_T, self.base),
        )

    def _bias(
        self, query_BHTK: Tensor, key_BGSK: Tensor, bias_BTS: Tensor | None, *, own: bool
    ) -> Tensor | None:
        """Return what is added to the scores, [B or 1, H or 1, T, S]: by distance, by wire."""
        far = self._distant(query_BHTK, key_BGSK) if own else None
        if bias_BTS is None:
            return far
        return bias_BTS[:, None] if far is None else far + bias_BTS[:, None]

    def _distant(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor | None:
        """Return what distance adds to the scores, [B or 1, H, T, S].

        Those that read are the last of those that are read.
        """
        if self.relative_bias is None and self.relative_key is None and not self.alibi:
            return None
        distance_TS = distances(query_BHTK.size(2), key_BGSK.size(2), query_BHTK.device)
        bias: Tensor
        if self.relative_bias is not None:
            bias = self.relative_bias(distance_TS)[None]
        elif self.relative_key is not None:
            times = query_BHTK.size(-1) ** -0.5 if self.scale is None else self.scale
            bias = self.relative_key(query_BHTK, distance_TS) * times
        else:
            bias = alibi(distance_TS, self.heads)[None]
        return bias

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """[B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (heads, -1))
        return x_BTHK.transpose(1, 2)

    def _merge(self, y_BHTV: Tensor, rows: Rows | None = None) -> Tensor:
        """[B, H, T, V] to [B, T, D], packed where rows are given."""
        return self._mixed(without_padding(y_BHTV.transpose(1, 2), rows))

    def _mixed(self, y_HV: Tensor) -> Tensor:
        """[..., H, V] to [..., D], the heads gated and mixed."""
        if self.head_gate is not None:
            y_HV = y_HV * self.head_gate[:, None].to(y_HV.dtype)
        out: Tensor = self.out(y_HV.flatten(-2))
        return out
