"""Multi-head attention and grouped-query attention.

Axes: B sequences, T query positions, S key positions, D model width, H heads, G key and
value heads, K and V key and value widths of one head; R rows = N sentences x beams.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ..kernels.attention_backends import varlen_applies, varlen_unpadded
from ..kernels.attention_dispatch import attend, weigh
from ..kernels.decode_state import Capacity, State
from ..kernels.init import draw_linear
from ..kernels.linear import linear_map
from ..kernels.unpad import Batched, Place, Rows, with_padding, without_padding
from ..position.position_module import RelativeBias, RelativeKey, alibi, distances, rotated


class Attention(nn.Module):
    """Multi-head scaled dot-product attention.

    Each head computes softmax(q k^T / sqrt(K)) v; a linear map combines the heads.  If G < H,
    H / G consecutive heads share one key and value head.

    Source: Vaswani et al. 2017, section 3.2; shared keys: Ainslie et al. 2023, section
    2.2; rotary: Su et al. 2021, section 3.4; window: Beltagy et al. 2020, section 3.1;
    scores without a scale: Luong et al. 2015, section 3.1; alibi: Press et al. 2022,
    section 3; relative bias: Raffel et al. 2020, section 2.1; relative keys: Shaw et al.
    2018, section 3.2; head gates: Michel et al. 2019, section 2.3.
    """

    batched: Batched | None = None
    """Rows of the current batch, if the model is trained on unpadded batches."""
    places: Mapping[str, Place] = {}
    """Ports that may receive unpadded values: `x`, `memory`."""

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
        lora_rank: int = 0,
        lora_alpha: float = 1.0,
        lora_maps: str = "query_value",
    ) -> None:
        """Create the four projections and, if configured, relative positions and head gates."""
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
        lora = (lora_rank, lora_alpha)
        rest = lora if lora_maps == "all" else (0, lora_alpha)
        width = self.kv_heads * d_k
        self.query = linear_map(d_model, heads * d_k, bias=bias, lora=lora)
        self.key = linear_map(d_memory, width, bias=bias and key_bias, lora=rest)
        self.value = linear_map(d_memory, self.kv_heads * d_v, bias=bias, lora=lora)
        self.out = linear_map(heads * d_v, d_model, bias=bias, lora=rest)
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
        """Attend from every position of x [B, T, D] to memory [B, S, D'], or to x itself.

        In training with unpadding, x and memory may be unpadded, [R, D]; the output is
        unpadded if x is.

        Args:
            x: queries.
            memory: the sequence that is attended to; x if None.
            mask: [B, S], true at positions that may be attended to.
            bias: [B, T, S], added to the scores of every head; -inf masks a pair.

        Returns:
            The attention output, [B, T, D]; where nothing may be attended to, the output
            projection of zeros.
        """
        own = memory is None
        x_rows = self._rows("x", x)
        source_rows = x_rows if memory is None else self._rows("memory", memory)
        query = self.query(x)
        causal, dropout = self.causal and own, self.dropout if self.training else 0.0
        source = x if memory is None else memory
        if x_rows is not None and source_rows is not None:
            plain = bias is None and not self._positional(own=own)
            plain = plain and (mask is None or mask is source_rows.mask)
            if plain and varlen_applies(query, dropout=dropout):
                return self._without_padding(query, source, x_rows, source_rows, causal=causal)
        query_BHTK = self._split(with_padding(query, x_rows), self.heads)
        key_BGSK, value_BGSV = self._keys_values(source, source_rows)
        if own:
            query_BHTK, key_BGSK = self._rotate(query_BHTK, key_BGSK, 0)
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
        return self._merge(y_BHTV, x_rows)

    def attention_weights(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the attention weights of each head, [B, H, T, S], without dropout.

        Rows sum to 1, or are zeros if all keys are masked.

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
            query_BHTK, key_BGSK = self._rotate(query_BHTK, key_BGSK, 0)
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
        """Return the decoding state: buffers for keys and values, or those of the memory."""
        if memory is not None:
            key, value = self._keys_values(memory)
            # Contiguous per head, since every step reads them.
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
        """Attend from the next positions of every row, x [R, T, D].

        With a memory, the beams of a sentence are treated as further query positions, so the
        keys and values of the memory are stored once per sentence.

        Args:
            x: queries.
            mask: [R, T], true where later queries may attend to these; only without a memory.
            bias: [R, T, S], added to the scores; without a memory, S must cover at least the
                positions up to the last of these.
            state: the state returned by `begin`; updated in place.
            position: index of the first of these positions, from 0.
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
        key, value = self._keys_values(x)
        query_RHTK, key = self._rotate(query_RHTK, key, position)
        for name, new in (("key", key), ("value", value)):
            state.appended[name][:, :, position:end] = new
        first = 0 if self.window is None else max(0, position - self.window)
        key, value = (state.appended[name][:, :, first:end] for name in ("key", "value"))
        if mask is not None:
            length = state.appended["key"].size(2)
            stored = state.appended.setdefault("mask", mask.new_zeros(mask.size(0), length, 1))
            stored[:, position:end, 0] = mask
            mask = stored[:, first:end, 0]
        if bias is not None:
            bias = bias[:, :, first:end]
        bias = self._bias(query_RHTK, key, bias, own=True)
        if x.size(1) > 1:
            distance_TS = distances(x.size(1), end - first, x.device)
            masked_TS = distance_TS < 0
            if self.window is not None:
                masked_TS = masked_TS | (distance_TS > self.window)
            base = query_RHTK.new_zeros(1, 1, *masked_TS.shape) if bias is None else bias
            bias = base.masked_fill(masked_TS, float("-inf"))
        return self._merge(attend(query_RHTK, key, value, mask, scale=self.scale, bias=bias))

    def _rows(self, port: str, value: Tensor) -> Rows | None:
        """Return the rows of an unpadded value; None for a padded value."""
        place = self.places.get(port)
        return None if self.batched is None else self.batched.rows_of(value, place)

    def _without_padding(
        self, query: Tensor, source: Tensor, x_rows: Rows, source_rows: Rows, *, causal: bool
    ) -> Tensor:
        """Attend from queries [R, H * K] with the kernel for unpadded rows."""
        query_RHK = query.unflatten(-1, (self.heads, -1))
        key_SGK, value_SGV = (
            part.unflatten(-1, (self.kv_heads, -1))
            for part in (self.key(source), self.value(source))
        )
        y_RHV = varlen_unpadded(
            query_RHK, key_SGK, value_SGV, x_rows, source_rows, causal=causal, scale=self.scale
        )
        return self._project(y_RHV)

    def _positional(self, *, own: bool) -> bool:
        """Return whether the scores depend on relative positions or a window."""
        relative = self.relative_bias is not None or self.relative_key is not None or self.alibi
        return relative or (own and (self.base is not None or self.window is not None))

    def _keys_values(self, source: Tensor, rows: Rows | None = None) -> tuple[Tensor, Tensor]:
        """Return the keys [B, G, S, K] and values [B, G, S, V] of a sequence [B, S, D']."""
        return (
            self._split(with_padding(self.key(source), rows), self.kv_heads),
            self._split(with_padding(self.value(source), rows), self.kv_heads),
        )

    def _rotate(self, query_BHTK: Tensor, key_BGTK: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Apply rotary positions, counted from `start`, to queries and keys if configured."""
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
        """Return the sum of the relative position bias and the given bias.

        The shape is [B or 1, H or 1, T, S]; None if there is neither.
        """
        relative = self._relative_bias(query_BHTK, key_BGSK) if own else None
        if bias_BTS is None:
            return relative
        return bias_BTS[:, None] if relative is None else relative + bias_BTS[:, None]

    def _relative_bias(self, query_BHTK: Tensor, key_BGSK: Tensor) -> Tensor | None:
        """Return the bias for relative positions, [B or 1, H, T, S]; None if there is none.

        The query positions are the last T of the S key positions.
        """
        if self.relative_bias is None and self.relative_key is None and not self.alibi:
            return None
        distance_TS = distances(query_BHTK.size(2), key_BGSK.size(2), query_BHTK.device)
        bias: Tensor
        if self.relative_bias is not None:
            bias = self.relative_bias(distance_TS)[None]
        elif self.relative_key is not None:
            scale = query_BHTK.size(-1) ** -0.5 if self.scale is None else self.scale
            bias = self.relative_key(query_BHTK, distance_TS) * scale
        else:
            bias = alibi(distance_TS, self.heads)[None]
        return bias

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """Reshape [B, T, H * K] to [B, H, T, K]."""
        x_BTHK: Tensor = x.unflatten(-1, (heads, -1))
        return x_BTHK.transpose(1, 2)

    def _merge(self, y_BHTV: Tensor, rows: Rows | None = None) -> Tensor:
        """Project [B, H, T, V] to [B, T, D], or to unpadded [R, D] if rows are given."""
        return self._project(without_padding(y_BHTV.transpose(1, 2), rows))

    def _project(self, y_HV: Tensor) -> Tensor:
        """Apply the head gates and the output projection, [..., H, V] to [..., D]."""
        if self.head_gate is not None:
            y_HV = y_HV * self.head_gate[:, None].to(y_HV.dtype)
        out: Tensor = self.out(y_HV.flatten(-2))
        return out
