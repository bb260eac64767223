"""The projections of multi-head attention, and what decoding stores of them.

Axes: B sequences, T query positions, S key positions, D and D' widths of x and of memory, H heads,
G key and value heads, K and V key and value widths of one head; R rows = N sentences x beams.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from ...kernels.decode_state import Capacity, State
from ...kernels.linear import linear_maps
from ...kernels.unpad import Rows, with_padding, without_padding
from .slots_module import OF_KEYS, Parts


class Projected(Parts):
    """Queries, keys, values and output of multi-head attention, with the parts in their slots."""

    heads: int
    kv_heads: int
    query: Any
    key: Any
    value: Any
    out: Any
    stores_inputs: bool
    """Whether decoding stores what keys and values are projected from, and not these."""

    def _empty(self, capacity: Capacity) -> dict[str, Tensor]:
        """Return empty buffers for what is stored of all positions."""
        heads, rows, length = self.kv_heads, capacity.rows, capacity.allocated
        widths = {"key": self.key.out_features, "value": self.value.out_features}
        shapes = {name: (rows, heads, length, width // heads) for name, width in widths.items()}
        if self.stores_inputs:
            return {"input": capacity.zeros((rows, length, self.key.in_features))}
        return {name: capacity.zeros(shape) for name, shape in shapes.items()}

    def _projected_again(
        self, source: Tensor, own: State, wires: Mapping[str, Tensor], at: tuple[int, int, int]
    ) -> tuple[Tensor, Tensor]:
        """Store a sequence [R, T, D'] and return the keys and values of the positions read.

        Args:
            source: what keys and values are projected from, at the next positions.
            own: the decoding state; gets it.
            wires: values for the parts in slots.
            at: position of the first query, of the first key, and after the last key.
        """
        position, first, end = at
        own.appended["input"][:, position:end] = source
        # A part with a state, such as a convolution, needs all positions.
        start = first if set(OF_KEYS).isdisjoint(self.stepping) else 0
        whole = own.appended["input"][:, start:end].to(source.dtype)
        key, value = (part[:, :, first - start :] for part in self._keys_values(whole, wires))
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
        x_BTHK: Tensor = x.unflatten(-1, (heads, -1))
        return x_BTHK.transpose(1, 2)

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
