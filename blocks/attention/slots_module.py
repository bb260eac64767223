"""The slots of multi-head attention: which parts fill them, and how they are applied.

Axes: B sequences, T query positions, S key positions, H heads, G key and value heads, K and V key
and value widths of one head; R rows = N sentences x beams, L positions of a decoding buffer.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.attention_backends import Pairs, of_pairs
from ..kernels.decode_state import State

SLOTS = (
    "after_query",
    "after_key",
    "after_value",
    "position",
    "score",
    "mask",
    "after_softmax",
    "output",
)
"""The slots, all optional."""
OF_KEYS = ("after_key", "after_value")
"""The slots whose results decoding stores, with the keys and values."""
States = State | dict[str, Any]
"""The decoding state: of attention alone, or by slot, with that of attention under ""."""


class Parts(nn.Module):
    """The parts in the slots of attention, each a module or None."""

    after_query: Any
    after_key: Any
    after_value: Any
    position: Any
    score: Any
    mask: Any
    after_softmax: Any
    output: Any
    scale: float | None
    """Factor of the scores; 1 / sqrt(K) if None."""
    kind: str
    """Function that turns scores into weights."""
    sinks: nn.Parameter | None
    """Logits [H] of a further key whose value is zero."""

    def __init__(
        self,
        ports: Mapping[str, Sequence[str]],
        stepping: Collection[str],
        parts: Mapping[str, nn.Module],
    ) -> None:
        """Store the parts.

        Args:
            ports: slot to the wires that are passed on to its part, if any.
            stepping: slots whose parts have `begin` and `step`.
            parts: slot to its part.
        """
        super().__init__()
        self.ports = {slot: tuple(names) for slot, names in ports.items()}
        self.stepping = tuple(stepping)
        for slot in SLOTS:
            setattr(self, slot, parts.get(slot))
        self.bare = not parts

    def _wires_of(self, slot: str, wires: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the wires that are passed on to a slot."""
        return {name: wires[name] for name in self.ports.get(slot, ()) if name in wires}

    def _through(
        self,
        slot: str,
        x: Tensor,
        wires: Mapping[str, Tensor],
        states: Mapping[str, Any] | None,
        position: int,
    ) -> Tensor:
        """Apply the part in a slot, if there is one; while decoding, to the next positions."""
        part = getattr(self, slot)
        if part is None:
            return x
        passed = self._wires_of(slot, wires)
        if states is not None and slot in states:
            moving = {name: wire for name, wire in passed.items() if name not in states[""].fixed}
            y: Tensor = part.step(x=x, state=states[slot], position=position, **moving)
        else:
            y = part(x=x, **passed)
        return y

    def _rotate(self, query_BHTK: Tensor, key_BGTK: Tensor, start: int) -> tuple[Tensor, Tensor]:
        """Rotate queries and keys, counted from `start`, if positions are rotary."""
        return self._rotated(query_BHTK, start), self._rotated(key_BGTK, start)

    def _rotated(self, x_BHTK: Tensor, start: int) -> Tensor:
        """Rotate queries or keys, counted from `start`, if positions are rotary."""
        if self.position is None or not self.position.rotates:
            return x_BHTK
        y_BHTK: Tensor = self.position(x_BHTK, start)
        return y_BHTK

    def _pairs(self, wires: Mapping[str, Tensor]) -> Pairs | None:
        """Return the part in `mask` as a function of positions and rows."""
        passed = self._wires_of("mask", wires)
        pairs: Pairs | None = functools.partial(self.mask, **passed) if passed else self.mask
        return pairs

    def _functions(
        self,
        query_BHTK: Tensor,
        key_BGSK: Tensor,
        wires: Mapping[str, Tensor],
        states: Mapping[str, Any] | None = None,
        position: int = 0,
    ) -> dict[str, Any]:
        """Return the arguments of `attend` for the parts that change scores or weights."""
        functions: dict[str, Any] = {"kind": self.kind} if self.kind != "softmax" else {}
        if self.sinks is not None:
            functions["sinks"] = self.sinks
        if self.position is not None and not self.position.rotates:
            term = self.position(query_BHTK, key_BGSK)
            if self.position.scaled:
                term = term * (query_BHTK.size(-1) ** -0.5 if self.scale is None else self.scale)
            functions["inner"] = term
        for name in ("score", "after_softmax"):
            if getattr(self, name) is not None:
                functions[name] = functools.partial(
                    self._through, name, wires=wires, states=states, position=position
                )
        if self.score is not None:
            functions["elementwise"] = getattr(self.score, "elementwise", False) is True
        return functions

    def _allowed(
        self, query_RHTK: Tensor, at: tuple[int, int, int], stored: Mapping[str, Tensor]
    ) -> Tensor:
        """Return which keys are not later and not masked, [R or 1, 1, T, S].

        Args:
            query_RHTK: queries.
            at: position of the first query, of the first key, and after the last key.
            stored: wires of the part in `mask`, [R, L] each.
        """
        position, first, end = at
        query_T = torch.arange(position, end, device=query_RHTK.device)
        key_S = torch.arange(first, end, device=query_RHTK.device)
        allowed = key_S[None, :] <= query_T[:, None]
        if self.mask is not None:
            pairs = functools.partial(self.mask, **stored)
            allowed = allowed & of_pairs(pairs, query_T, key_S, query_RHTK.size(0))
        return allowed if allowed.dim() > 2 else allowed[None, None]  # noqa: PLR2004 - with rows


def repeated(fixed: Mapping[str, Tensor], rows: int, skip: Collection[str]) -> dict[str, Tensor]:
    """Return values of sentences, once for each row."""
    return {
        name: value.repeat_interleave(rows // value.size(0), 0)
        for name, value in fixed.items()
        if name not in skip
    }


def stored_so_far(cache: State, name: str, new: Tensor, position: int) -> Tensor:
    """Append a value [R, T] at a position, and return it for all positions, [R, L]."""
    length, end = next(iter(cache.appended.values())).size(-2), position + new.size(1)
    buffer = cache.appended.setdefault(name, new.new_zeros(new.size(0), length, 1))
    buffer[:, position:end, 0] = new
    return buffer[..., 0]


def mask_so_far(cache: State, mask: Tensor | None, x: Tensor, position: int) -> Tensor | None:
    """Append a mask [R, T] of x [R, T, D], and return it for all positions, [R, L].

    Without a mask, all these positions may be attended to.  None if no position is masked; a
    state that was carried from an earlier segment has a mask of its positions.
    """
    if mask is None:
        if "mask" not in cache.appended:
            return None
        mask = x.new_ones(x.shape[:2], dtype=torch.bool)
    return stored_so_far(cache, "mask", mask, position)


def refuse_wires_of_keys(ports: Mapping[str, Sequence[str]]) -> None:
    """Raise an error if the part of keys or values reads a wire.

    With `cache` set to `inputs`, the part runs over all positions in every step, but the wire has
    only the next ones.

    Raises:
        ValueError: such a wire exists.
    """
    for slot in OF_KEYS:
        if ports.get(slot):
            msg = f"'cache' of attention is 'inputs', but the part in '{slot}' reads a wire"
            raise ValueError(msg)
