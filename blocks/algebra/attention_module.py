"""Attention whose nodes have been merged, with the kernels of `attention@1`.

The names of axes are those of `attention.py`: b sequences, t query positions, s key positions, k
and v widths of one head; all others are heads.  Axes: B sequences, H heads, G heads of keys, T
query positions, S key positions, K and V widths; R rows = N sentences x beams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn

from ..kernels.attention import attend, weigh
from ..kernels.attention_backends import BY_RULE, Cores
from ..kernels.decode_state import Capacity, State, so_far

_FIXED = frozenset("btskv")
"""Names of axes that are not heads."""


class MergedAttention(nn.Module):
    """softmax(scale * q k^T + bias) v for each head, of values with named axes.

    Source: Vaswani et al. 2017, section 3.2.1.
    """

    cores: Cores = BY_RULE
    """Attention backends by length."""

    def __init__(  # noqa: PLR0913 - the arguments of a generated constructor
        self,
        query: str,
        key: str,
        value: str,
        result: str,
        scale: float,
        *,
        mask: str = "",
        bias: str = "",
        causal: bool = False,
        dropout: float = 0.0,
        stores: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    ) -> None:
        """Set the names of the axes of everything that it reads and returns.

        Args:
            query: names of the axes of queries, such as `b h t k`.
            key: those of keys, such as `b h s k`; heads that keys lack share one key head.
            value: those of values, such as `b h s v`.
            result: those of the result, such as `b h t v`.
            scale: factor of the products.
            mask: names of the axes of the mask, of `b h t s`, if there is one.
            bias: names of the axes of what is added to the scores, if anything is.
            causal: whether positions attend only to keys of the same and earlier positions.
            dropout: dropout probability of the attention weights.
            stores: port to the sizes of what decoding stores of it, without rows and positions.
        """
        super().__init__()
        texts = {"query": query, "key": key, "value": value, "mask": mask, "bias": bias}
        self.axes = {port: tuple(text.split()) for port, text in texts.items()}
        self.result = tuple(result.split())
        shared = [name for name in self.axes["key"] if name not in _FIXED]
        others = [name for name in self.axes["query"] if name not in {*_FIXED, *shared}]
        self.heads = (*_numbered(shared), *_numbered(others))
        self.scale, self.causal, self.dropout = scale, causal, dropout
        self.stores = dict(stores)
        pairs = ("b", *self.heads, "t", "s")
        orders = dict.fromkeys(("mask", "bias"), pairs)
        orders |= dict.fromkeys(("query", "key", "value"), ("b", *self.heads, *"tskv"))
        self.orders = {port: _order(names, orders[port]) for port, names in self.axes.items()}
        self.order = _order(("b", *self.heads, "t", "v"), self.result)

    def forward(
        self,
        *,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Attend from queries to keys, and return the weighted sums of the values.

        Args:
            query: queries, with axes as named.
            key: keys.
            value: values.
            mask: true at pairs that may attend.
            bias: added to the scores; -inf masks a pair.
        """
        ports = {"query": query, "key": key, "value": value, "mask": mask, "bias": bias}
        arranged = {name: self._arranged(name, x) for name, x in ports.items() if x is not None}
        return self._returned(self._attend(arranged, causal=self.causal), query)

    def attention_weights(
        self,
        *,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the attention weights of each head, [B, H, T, S], without dropout."""
        ports = {"query": query, "key": key, "mask": mask, "bias": bias}
        arranged = {name: self._arranged(name, x) for name, x in ports.items() if x is not None}
        del value
        mask_BS, bias = _as_bias(arranged.get("mask"), arranged.get("bias"))
        return weigh(
            arranged["query"],
            arranged["key"],
            mask_BS,
            causal=self.causal,
            scale=self.scale,
            bias=bias,
        )

    def begin(self, capacity: Capacity, **fixed: Tensor) -> State:
        """Return the decoding state: empty buffers, and the values that do not grow."""
        buffers = {}
        for name, (*before, width) in self.stores.items():
            zeros = capacity.zeros((capacity.rows, *before, capacity.allocated, width))
            buffers[name] = zeros.bool() if name == "mask" else zeros
        arranged = {name: self._arranged(name, x) for name, x in fixed.items()}
        rows = capacity.sentences
        return State(
            appended=buffers,
            fixed={
                name: x.expand(rows, *x.shape[1:]) if x.size(0) == 1 else x
                for name, x in arranged.items()
            },
        )

    def step(self, *, state: State, position: int, **moving: Tensor) -> Tensor:
        """Attend from the next queries of every row.

        To a memory that does not grow, the beams of a sentence attend as further query positions.

        Args:
            state: the state returned by `begin`; updated in place.
            position: index of the first of these positions, from 0.
            **moving: values of these positions; pairs have all keys so far.
        """
        query = moving["query"]
        arranged = {name: self._arranged(name, x) for name, x in moving.items()}
        for name in self.stores:
            arranged[name] = _stored(state, name, arranged[name], position)
        if "key" in state.fixed:
            return self._returned(self._attend_fixed(arranged, state.fixed), query)
        rows, length = query.size(self.axes["query"].index("b")), arranged["query"].size(2)
        for name, x in state.fixed.items():
            arranged[name] = x if x.size(0) == rows else x.repeat_interleave(rows // x.size(0), 0)
        if self.causal and length > 1:
            end = arranged["key"].size(2)
            later_TS = torch.ones(length, end, dtype=torch.bool, device=query.device)
            later_TS = later_TS.triu(end - length + 1)
            base = arranged.get("bias", arranged["query"].new_zeros(()))
            arranged["bias"] = base.masked_fill(later_TS[None, None], float("-inf"))
        return self._returned(self._attend(arranged), query)

    def _attend(self, arranged: Mapping[str, Tensor], *, causal: bool = False) -> Tensor:
        """Attend, [B, H, T, V]."""
        query, key = arranged["query"], arranged["key"]
        mask_BS, bias = _as_bias(arranged.get("mask"), arranged.get("bias"))
        if bias is not None:
            bias = bias.expand(-1, -1, query.size(2), key.size(2))
        return attend(
            query,
            key,
            arranged["value"],
            mask_BS,
            causal=causal,
            dropout=self.dropout if self.training else 0.0,
            scale=self.scale,
            bias=bias,
            cores=self.cores,
        )

    def _attend_fixed(self, moving: Mapping[str, Tensor], fixed: Mapping[str, Tensor]) -> Tensor:
        """Attend to a memory that does not grow, [R, H, T, V]."""
        query, sentences = moving["query"], fixed["key"].size(0)
        folded = dict(fixed)
        for name, x in moving.items():
            wide = x.expand(query.size(0), -1, query.size(2), -1)
            folded[name] = wide.unflatten(0, (sentences, -1)).transpose(1, 2).flatten(2, 3)
        y_NHTV = self._attend(folded)
        y_RHTV: Tensor = y_NHTV.unflatten(2, (-1, query.size(2))).transpose(1, 2).flatten(0, 1)
        return y_RHTV

    def _arranged(self, port: str, x: Tensor) -> Tensor:
        """Return a value with its heads as one axis: [B, H, T, K], or a mask [B, S].

        A mask or a bias has the size 1 in place of the axes that it lacks.
        """
        names, order = self.axes[port], self.orders[port]
        if order is not None:
            x = x.permute(order)
        if port in ("query", "key", "value"):
            heads = x.dim() - 3  # beside rows, positions and the width
            return x if heads == 1 else x.flatten(1, heads) if heads else x.unsqueeze(1)
        if port == "mask" and {*names} == {"b", "s"}:
            return x
        for index, name in enumerate(("b", *self.heads, "t", "s")):
            x = x if name in names else x.unsqueeze(index)
        return x.flatten(1, -3) if self.heads else x.unsqueeze(1)

    def _returned(self, y_BHTV: Tensor, query: Tensor) -> Tensor:
        """Return the result with its axes in the order of their names."""
        y = y_BHTV
        if not self.heads:
            y = y.squeeze(1)
        elif len(self.heads) > 1:
            sizes = [query.size(self.axes["query"].index(name)) for name in self.heads]
            y = y.unflatten(1, sizes)
        return y if self.order is None else y.permute(self.order)


def _order(names: tuple[str, ...], target: Iterable[str]) -> tuple[int, ...] | None:
    """Return how to permute the axes of these names into another order; None if they have it."""
    order = tuple(names.index(name) for name in target if name in names)
    return None if order == tuple(range(len(order))) else order


def _numbered(names: list[str]) -> list[str]:
    """Return names such as h2 and h10 in the order of their numbers."""
    return sorted(names, key=lambda name: (len(name), name))


def _as_bias(mask: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return a mask [B, S], and a bias with -inf where another mask is false."""
    if mask is None or mask.dim() == 2:  # noqa: PLR2004 - of keys alone
        return mask, bias
    base = mask.new_zeros((), dtype=torch.float32) if bias is None else bias
    return None, base.masked_fill(~mask, float("-inf"))


def _stored(state: State, name: str, x: Tensor, position: int) -> Tensor:
    """Append an arranged value, and return that of all positions so far."""
    if name in ("key", "value"):
        buffer, end = state.appended[name], position + x.size(2)
        buffer[:, :, position:end] = x
        return buffer[:, :, :end]
    if x.dim() == 2:  # noqa: PLR2004 - a mask of keys alone
        return so_far(state, name, x, position, 1)
    return so_far(state, name, x.squeeze(2), position, 2).unsqueeze(2)
