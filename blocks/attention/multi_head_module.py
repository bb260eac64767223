"""Multi-head attention.

Axes: B sequences, T query positions, S key positions, D model width, H heads, G key and
value heads, K and V key and value widths of one head; R rows = N sentences x beams.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.attention import attend, weigh
from ..kernels.attention_backends import BY_RULE, Cores, varlen_applies, varlen_unpadded
from ..kernels.decode_state import Capacity, State
from ..kernels.linear import LinearMap, draw_linear, linear_maps
from ..kernels.unpad import Batched, Rows, with_padding, without_padding
from .slots_module import (
    OF_KEYS,
    Parts,
    States,
    mask_so_far,
    refuse_wires_of_keys,
    repeated,
    stored_so_far,
)


class Attention(Parts):
    """Multi-head scaled dot-product attention, with parts in slots.

    Each head computes softmax(q k^T / sqrt(K)) v; a linear map combines the heads.  If G < H,
    H / G consecutive heads share one key and value head.

    Source: Vaswani et al. 2017, section 3.2; shared keys: Ainslie et al. 2023, section
    2.2; scores without a scale: Luong et al. 2015, section 3.1.
    """

    batched: Batched | None = None
    """Rows of the current batch, if the model is trained on unpadded batches."""
    cores: Cores = BY_RULE
    """Attention backends by length."""
    places: Mapping[str, tuple[str, int]] = {}
    """Ports that may receive unpadded values, `x` and `memory`: their time axis, and the number of
    axes of a padded value."""

    def __init__(  # noqa: PLR0913 - the params and slots of a block
        self,
        d_model: int,
        d_memory: int,
        heads: int,
        d_k: int,
        d_v: int,
        *,
        kv_heads: int | None = None,
        causal: bool = False,
        bias: bool | Collection[str] = True,
        dropout: float = 0.0,
        scale: float | str = "sqrt",
        cache: str = "keys_values",
        d_out: int | None = None,
        softmax: str = "softmax",
        sinks: bool = False,
        returns: Collection[str] = (),
        ports: Mapping[str, Sequence[str]] = MappingProxyType({}),
        stepping: Collection[str] = (),
        keyed: Collection[str] = (),
        **parts: nn.Module,
    ) -> None:
        """Create the four projections.

        Args:
            d_model: width of the queries and of the output.
            d_memory: width of the keys' and values' sequence.
            heads: number of heads.
            d_k: query and key width of one head.
            d_v: value width of one head.
            kv_heads: number of key and value heads; `heads` if None.
            causal: whether positions attend only to themselves and earlier ones.
            bias: which of the projections `query`, `key`, `value` and `out` have biases, or
                whether all have.
            dropout: dropout probability of the attention weights.
            scale: factor of the dot products, `sqrt` for 1 / sqrt(d_k), or `none`.
            cache: what decoding stores of each position, `keys_values` or their `inputs`.
            d_out: width of the output; `d_model` if None.
            softmax: function that turns scores into weights, one of `kernels/softmax.py`.
            sinks: whether each head has the learned logit of a further key, whose value is zero.
            returns: what it returns after the output: `scores`, `weights`, or both in this order.
            ports: slot to the wires that are passed on to its part, if any.
            stepping: slots whose parts have `begin` and `step`.
            keyed: wires of parts whose last axis is that of the keys.
            **parts: slot (`SLOTS`) to the module that fills it.
        """
        super().__init__(ports, stepping, parts)
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        self.causal, self.dropout, self.keyed = causal, dropout, tuple(keyed)
        self.stores_inputs = cache == "inputs"
        if self.stores_inputs:
            refuse_wires_of_keys(self.ports)
        self.scale = {"sqrt": None, "none": 1.0}[scale] if isinstance(scale, str) else scale
        self.kind, self.returns = softmax, tuple(returns)
        self.bare = self.bare and softmax == "softmax" and not (sinks or returns)
        self.sinks = nn.Parameter(torch.zeros(heads)) if sinks else None
        width = self.kv_heads * d_k

        def biased(name: str) -> bool:
            return bias if isinstance(bias, bool) else name in bias

        self.query = LinearMap(d_model, heads * d_k, biased("query"))
        self.key = LinearMap(d_memory, width, biased("key"))
        self.value = LinearMap(d_memory, self.kv_heads * d_v, biased("value"))
        self.out = LinearMap(heads * d_v, d_out or d_model, biased("out"))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw Xavier-uniform weights; biases and sinks start at zero."""
        draw_linear(generator, self.query, self.key, self.value, self.out)
        if self.sinks is not None:
            nn.init.zeros_(self.sinks)

    def forward(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        **wires: Tensor,
    ) -> Tensor | tuple[Tensor, ...]:
        """Attend from every position of x [B, T, D] to memory [B, S, D'], or to x itself.

        In training with unpadding, x and memory may be unpadded, [R, D]; the output is
        unpadded if x is.

        Args:
            x: queries.
            memory: the sequence that is attended to; x if None.
            mask: [B, S], true at positions that may be attended to.
            bias: [B, T, S], added to the scores of every head; -inf masks a pair.
            **wires: values for the parts in slots.

        Returns:
            The attention output, [B, T, D]; where nothing may be attended to, the output
            projection of zeros.  Then what `returns` names: the scores before masks, and the
            weights before dropout, [B, H, T, S].
        """
        x_rows = self._rows("x", x)
        source_rows = x_rows if memory is None else self._rows("memory", memory)
        dropout = self.dropout if self.training else 0.0
        query, key, value = self._projected(x, memory)
        if x_rows is not None and source_rows is not None:
            unchanged = self.bare and bias is None and (mask is None or mask is source_rows.mask)
            widths = key.size(-1) // self.kv_heads, value.size(-1) // self.kv_heads
            if unchanged and varlen_applies(self.cores, query, widths, dropout=dropout):
                return self._without_padding(query, key, value, x_rows, source_rows)
        query_BHTK = self._queries(with_padding(query, x_rows), wires)
        key_BGSK, value_BGSV = self._heads_of(key, value, wires, source_rows)
        query_BHTK, key_BGSK = self._rotate(query_BHTK, key_BGSK, 0)
        returned: dict[str, Tensor] = {}
        y_BHTV = attend(
            query_BHTK,
            key_BGSK,
            value_BGSV,
            mask,
            causal=self.causal,
            pairs=self._pairs(wires),
            dropout=dropout,
            scale=self.scale,
            bias=None if bias is None else bias[:, None],
            cores=self.cores,
            returned=returned if self.returns else None,
            **self._functions(query_BHTK, key_BGSK, wires),
        )
        return self._with_returned(self._merge(y_BHTV, wires, x_rows), returned)

    def _with_returned(
        self, y: Tensor, returned: Mapping[str, Tensor]
    ) -> Tensor | tuple[Tensor, ...]:
        """Return the output, and what else is to be returned."""
        return (y, *(returned[name] for name in self.returns)) if self.returns else y

    def attention_weights(
        self,
        x: Tensor,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        **wires: Tensor,
    ) -> Tensor:
        """Return the attention weights of each head, [B, H, T, S], without dropout.

        Rows sum to 1, or are zeros if all keys are masked; a part in `after_softmax` may change
        that.

        Args:
            x: as of `forward`.
            memory: as of `forward`.
            mask: as of `forward`.
            bias: as of `forward`.
            **wires: as of `forward`.
        """
        query_BHTK = self._queries(self.query(x), wires)
        key_BGSK = self._keys_values(x if memory is None else memory, wires)[0]
        query_BHTK, key_BGSK = self._rotate(query_BHTK, key_BGSK, 0)
        functions = self._functions(query_BHTK, key_BGSK, wires)
        functions.pop("elementwise", None)
        return weigh(
            query_BHTK,
            key_BGSK,
            mask,
            causal=self.causal,
            pairs=self._pairs(wires),
            scale=self.scale,
            bias=None if bias is None else bias[:, None],
            **functions,
        )

    def begin(
        self,
        capacity: Capacity,
        memory: Tensor | None = None,
        mask: Tensor | None = None,
        **wires: Tensor,
    ) -> States:
        """Return the decoding state: buffers for keys and values, or those of the memory.

        Wires that do not change from step to step are stored for the parts that read them.
        """
        if memory is not None:
            key, value = self._keys_values(memory, wires)
            # Contiguous per head, since every step reads them.
            fixed = {"key": key.contiguous(), "value": value.contiguous(), **wires}
            cache = State(fixed=fixed if mask is None else {**fixed, "mask": mask})
        else:
            cache = State(appended=self._empty(capacity), fixed=dict(wires))
        states: dict[str, Any] = {
            slot: getattr(self, slot).begin(capacity, **self._wires_of(slot, wires))
            for slot in self.stepping
            if (memory is None and not self.stores_inputs) or slot not in OF_KEYS
        }
        return {"": cache, **states} if states else cache

    def step(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
        memory: Tensor | None = None,
        *,
        state: States,
        position: int,
        **wires: Tensor,
    ) -> Tensor | tuple[Tensor, ...]:
        """Attend from the next positions of every row, x [R, T, D].

        With a memory that does not grow, the beams of a sentence are treated as further query
        positions, so the keys and values of the memory are stored once per sentence.

        Args:
            x: queries.
            mask: [R, T], true where later queries may attend to these; only without a memory that
                does not grow.
            bias: [R, T, S], added to the scores; without such a memory, S must cover at least the
                positions up to the last of these.
            memory: [R, T, D'], the same positions of a memory that grows with the queries.
            state: the state returned by `begin`; updated in place.
            position: index of the first of these positions, from 0.
            **wires: values for the parts in slots, at these positions.
        """
        states = state if isinstance(state, dict) else {"": state}
        cache: State = states[""]
        new_wires, wires = (
            wires,
            {**repeated(cache.fixed, x.size(0), ("key", "value", "mask")), **wires},
        )
        if "key" in cache.fixed:
            query_RHTK = self._queries(self.query(x), wires, states, position)
            at = (states, position)
            y_RHTV, of_fixed = self._attend_fixed(query_RHTK, cache.fixed, bias, wires, at)
            y = self._merge(y_RHTV, wires, states=states, position=position)
            return self._with_returned(y, of_fixed)
        end = position + x.size(1)
        # What is returned has all keys so far.
        reach = None if self.mask is None or self.returns else self.mask.reach
        first = 0 if reach is None else max(0, position - reach)
        if self.stores_inputs:
            query_RHTK = self._queries(self.query(x), wires, states, position)
            query_RHTK = self._rotated(query_RHTK, position)
            source = x if memory is None else memory
            key, value = self._projected_again(source, cache, wires, (position, first, end))
        else:
            query, key, value = self._projected(x, memory)
            query_RHTK = self._queries(query, wires, states, position)
            key, value = self._heads_of(key, value, wires, None, states, position)
            query_RHTK, key = self._rotate(query_RHTK, key, position)
            for name, new in (("key", key), ("value", value)):
                cache.appended[name][:, :, position:end] = new
            key, value = (cache.appended[name][:, :, first:end] for name in ("key", "value"))
        mask = mask_so_far(cache, mask, x, position)
        if mask is not None:
            mask = mask[:, first:end]
        stored = {
            name: stored_so_far(cache, name, wire, position) if name in new_wires else wire
            for name, wire in self._wires_of("mask", wires).items()
        }
        so_far = {name: wires[name][..., first:end] for name in self.keyed}
        functions = self._functions(query_RHTK, key, {**wires, **so_far}, states, position)
        if bias is not None:
            bias = bias[:, None, :, first:end]
        returned: dict[str, Tensor] = {}
        if x.size(1) > 1 or not (self.mask is None or (self.mask.exact and not self.returns)):
            allowed = self._allowed(query_RHTK, (position, first, end), stored)
            if self.returns:
                mask = allowed if mask is None else mask[:, None, None] & allowed
            else:
                base = query_RHTK.new_zeros(1, 1, 1, 1) if bias is None else bias
                bias = base.masked_fill(~allowed, float("-inf"))
        y_RHTV = attend(
            query_RHTK,
            key,
            value,
            mask,
            dropout=self.dropout if self.training else 0.0,
            scale=self.scale,
            bias=bias,
            cores=self.cores,
            returned=returned if self.returns else None,
            **functions,
        )
        y = self._merge(y_RHTV, wires, states=states, position=position)
        return self._with_returned(y, returned)

    def _attend_fixed(
        self,
        query_RHTK: Tensor,
        fixed: Mapping[str, Tensor],
        bias: Tensor | None,
        wires: Mapping[str, Tensor],
        at: tuple[Mapping[str, Any], int],
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Attend to a memory that does not grow, [R, H, T, V], and tell what else is returned.

        The states and the position `at` are of what decodes in slots.
        """
        key, length = fixed["key"], query_RHTK.size(2)
        query = query_RHTK.unflatten(0, (key.size(0), -1)).transpose(1, 2).flatten(2, 3)
        if bias is not None:
            bias = bias.unflatten(0, (key.size(0), -1)).flatten(1, 2)[:, None]
        returned: dict[str, Tensor] = {}
        y = attend(
            query,
            key,
            fixed["value"],
            fixed.get("mask"),
            dropout=self.dropout if self.training else 0.0,
            scale=self.scale,
            bias=bias,
            cores=self.cores,
            returned=returned if self.returns else None,
            **self._of_rows(self._functions(query, key, wires, *at), length),
        )

        def by_row(x: Tensor) -> Tensor:
            rows: Tensor = x.unflatten(2, (-1, length)).transpose(1, 2).flatten(0, 1)
            return rows

        return by_row(y), {name: by_row(x) for name, x in returned.items()}

    def _of_rows(self, functions: Mapping[str, Any], length: int) -> dict[str, Any]:
        """Return functions of scores, those of templates applied to each row, [R, H, T, S]."""

        def by_row(function: Any, x: Tensor) -> Tensor:
            rows = x.unflatten(2, (-1, length)).transpose(1, 2)
            y: Tensor = function(rows.flatten(0, 1)).unflatten(0, rows.shape[:2])
            return y.transpose(1, 2).flatten(2, 3)

        return {
            name: functools.partial(by_row, value)
            if callable(value) and (name in self.stepping or self.ports.get(name))
            else value
            for name, value in functions.items()
        }

    def _rows(self, port: str, value: Tensor) -> Rows | None:
        """Return the rows of an unpadded value; None for a padded value."""
        if self.batched is None or port not in self.places:
            return None
        return self.batched.rows_of(value, *self.places[port])

    def _without_padding(
        self, query: Tensor, key: Tensor, value: Tensor, x_rows: Rows, source_rows: Rows
    ) -> Tensor:
        """Attend from queries [R, H * K] with the kernel for unpadded rows."""
        query_RHK = query.unflatten(-1, (self.heads, -1))
        key_SGK, value_SGV = (part.unflatten(-1, (self.kv_heads, -1)) for part in (key, value))
        y_RHV = varlen_unpadded(
            query_RHK, key_SGK, value_SGV, x_rows, source_rows, causal=self.causal, scale=self.scale
        )
        out: Tensor = self.out(y_RHV.flatten(-2))
        return out

    def _empty(self, capacity: Capacity) -> dict[str, Tensor]:
        """Return empty buffers for what is stored of all positions."""
        heads, rows, length = self.kv_heads, capacity.rows, capacity.allocated
        widths = {"key": self.key.out_features, "value": self.value.out_features}
        shapes = {name: (rows, heads, length, width // heads) for name, width in widths.items()}
        if self.stores_inputs:
            return {"input": capacity.zeros((rows, length, self.key.in_features))}
        return {name: capacity.zeros(shape) for name, shape in shapes.items()}

    def _projected_again(
        self, source: Tensor, cache: State, wires: Mapping[str, Tensor], at: tuple[int, int, int]
    ) -> tuple[Tensor, Tensor]:
        """Store a sequence [R, T, D'] and return the keys and values of the positions read.

        Args:
            source: what keys and values are projected from, at the next positions.
            cache: the decoding state; gets it.
            wires: values for the parts in slots.
            at: position of the first query, of the first key, and after the last key.
        """
        position, first, end = at
        cache.appended["input"][:, position:end] = source
        # A part with a state, such as a convolution, needs all positions.
        start = first if set(OF_KEYS).isdisjoint(self.stepping) else 0
        inputs = cache.appended["input"][:, start:end].to(source.dtype)
        key, value = (part[:, :, first - start :] for part in self._keys_values(inputs, wires))
        return self._rotated(key, first), value

    def _queries(
        self,
        query: Tensor,
        wires: Mapping[str, Tensor],
        states: Mapping[str, Any] | None = None,
        position: int = 0,
    ) -> Tensor:
        """Return the queries [B, H, T, K] of projected vectors [B, T, H * K]."""
        query_BHTK = self._split(query, self.heads)
        return self._through("after_query", query_BHTK, wires, states, position)

    def _keys_values(
        self,
        source: Tensor,
        wires: Mapping[str, Tensor],
        rows: Rows | None = None,
        states: Mapping[str, Any] | None = None,
        position: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Return the keys [B, G, S, K] and values [B, G, S, V] of a sequence [B, S, D']."""
        key, value = linear_maps(source, self.key, self.value)
        return self._heads_of(key, value, wires, rows, states, position)

    def _projected(self, x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the projections of x and of memory, or of x alone, not split into heads."""
        if memory is None:
            query, key, value = linear_maps(x, self.query, self.key, self.value)
        else:
            query, (key, value) = self.query(x), linear_maps(memory, self.key, self.value)
        return query, key, value

    def _heads_of(
        self,
        key: Tensor,
        value: Tensor,
        wires: Mapping[str, Tensor],
        rows: Rows | None = None,
        states: Mapping[str, Any] | None = None,
        position: int = 0,
    ) -> tuple[Tensor, Tensor]:
        """Return the keys [B, G, S, K] and values [B, G, S, V] of their projections."""
        key, value = (self._split(with_padding(part, rows), self.kv_heads) for part in (key, value))
        return (
            self._through("after_key", key, wires, states, position),
            self._through("after_value", value, wires, states, position),
        )

    def _split(self, x: Tensor, heads: int) -> Tensor:
        """Reshape [B, T, H * K] to [B, H, T, K]."""
        return x.view(*x.shape[:2], heads, -1).transpose(1, 2)

    def _merge(
        self,
        y_BHTV: Tensor,
        wires: Mapping[str, Tensor],
        rows: Rows | None = None,
        states: Mapping[str, Any] | None = None,
        position: int = 0,
    ) -> Tensor:
        """Project the heads [B, H, T, V] to [B, T, D], or to unpadded [R, D] if rows are given."""
        y_BHTV = self._through("output", y_BHTV, wires, states, position)
        out: Tensor = self.out(without_padding(y_BHTV.transpose(1, 2), rows).flatten(-2))
        return out
