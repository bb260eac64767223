"""Scan: a cell that is applied to one position after another and carries state.

Axes: B sequences, T positions; R rows = N sentences x beams.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.decode_state import Capacity, State
from ..kernels.precision import uncompiled


class Scan(nn.Module):
    """The loop h_t = cell(x_t, h_{t-1}) over positions, for any number of carried values."""

    def __init__(
        self,
        carry: Mapping[str, tuple[int, ...]],
        *,
        along: Mapping[str, int],
        reads: Collection[str],
        cell: nn.Module,
    ) -> None:
        """Store the cell.

        Args:
            carry: carried values, by name in order, with their widths.
            along: ports that have the axis of the positions, each with its index.
            reads: carried values that the cell reads.
            cell: module that is given `x`, these values and the other wires, all at one position,
                and returns the carried values.
        """
        super().__init__()
        self.carry, self.along, self.reads = dict(carry), dict(along), tuple(reads)
        self.cell: Any = cell

    @uncompiled
    def forward(self, x: Tensor, mask: Tensor | None = None, **wires: Tensor) -> Any:
        """Return the carried values after each position, [B, T, ...].

        Args:
            x: vectors, [B, T, D].
            mask: [B, T]; where false, the carried values stay as they are.
            **wires: carried values before the first position, [B, ...], and wires of the cell.
        """
        state = {}
        for name, widths in self.carry.items():
            start = wires.pop(name, None)
            if start is None:
                # As all later states: a compiled cell is then one graph.
                zeros = x.new_zeros(x.size(0), 1, *widths)
                state[name] = zeros.requires_grad_(torch.is_grad_enabled())
            else:
                state[name] = start[:, None]
        return self._run(x, mask, wires, state)

    def begin(self, capacity: Capacity, **wires: Tensor) -> State:
        """Return the carried values of every row, and the wires that steps do not change."""
        carried = {}
        for name, widths in self.carry.items():
            start = wires.pop(name, None)
            carried[name] = (
                capacity.zeros((capacity.rows, 1, *widths))
                if start is None
                else start[:, None].to(capacity.dtype).repeat_interleave(capacity.beams, 0)
            )
        return State(carried=carried, fixed=wires)

    def step(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        state: State,
        position: int,
        **wires: Tensor,
    ) -> Any:
        """Process the next positions of every row, x [R, T, D]; as `forward`, of R rows."""
        del position
        for name, value in state.fixed.items():
            wires[name] = value.repeat_interleave(x.size(0) // value.size(0), 0)
        outputs = self._run(x, mask, wires, state.carried)
        several = outputs if isinstance(outputs, tuple) else (outputs,)
        for name, output in zip(self.carry, several, strict=True):
            state.carried[name].copy_(output[:, -1:])
        return outputs

    def _run(
        self,
        x: Tensor,
        mask: Tensor | None,
        wires: Mapping[str, Tensor],
        state: Mapping[str, Tensor],
    ) -> Any:
        """Return the carried values after each position: one tensor, or several in order."""
        moving = {"x": x, **{name: wires[name] for name in self.along if name in wires}}
        fixed = {name: value for name, value in wires.items() if name not in moving}
        values = dict(state)
        outputs: dict[str, list[Tensor]] = {name: [] for name in self.carry}
        for t in range(x.size(1)):
            at = {name: value.narrow(self.along[name], t, 1) for name, value in moving.items()}
            result = self.cell(**at, **fixed, **{name: values[name] for name in self.reads})
            several = result if isinstance(result, tuple) else (result,)
            for name, after in zip(self.carry, several, strict=True):
                if mask is not None:
                    updates = mask[:, t].view(-1, *(1,) * (after.dim() - 1))
                    after = torch.where(updates, after, values[name])  # noqa: PLW2901
                outputs[name].append(after)
            values = {name: steps[-1] for name, steps in outputs.items()}
        joined = [torch.cat(steps, 1) for steps in outputs.values()]
        return joined[0] if len(joined) == 1 else tuple(joined)
