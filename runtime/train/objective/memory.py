"""Memory of segments: the state that training carries from one row of a document to the next.

It is the state of decoding: a segment is one step of many positions.  After the step, the last
positions are kept without a gradient, so the next segment reads them like those of a prompt.

Axes: B rows of a batch, A rows of the batch before it, M positions kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ....blocks.kernels.decode_state import Capacity, State
from ....graphs.ir.graph import Graph
from ....specs.findings import InputError
from ...codegen.decode import KEPT

if TYPE_CHECKING:
    from ...data.table import Batch

_ROWS, _LENGTH = "rows", "length"
"""Names of the rows of the last batch, and of the number of positions kept."""
_MASK = "mask"


class Memory:
    """State of an objective in segments, between batches."""

    def __init__(self, graph: Graph) -> None:
        """Start without a memory.

        Args:
            graph: graph of an objective with `segments`.
        """
        if graph.segments is None:
            msg = f"'{graph.name}' has no segments"
            raise ValueError(msg)
        self._longest, axis = graph.segments.memory, graph.segments.axis
        self._moving = {
            name: type_.axes.index(axis)
            for name, type_ in graph.inputs.items()
            if axis in type_.axes
        }
        self.tensors: dict[str, Tensor] = {}
        """What is carried, as a checkpoint stores it; empty before the first batch."""

    def run(self, module: nn.Module, inputs: Mapping[str, Tensor], batch: Batch) -> Any:
        """Compute a batch of segments, and keep the state at its end.

        A row that is the next segment of a row of the batch before reads its memory; other rows
        start without one.

        Args:
            module: module of the objective.
            inputs: its inputs.
            batch: the batch that they are from.

        Returns:
            The outputs of the objective, by name.
        """
        moving = {name: inputs[name] for name in self._moving}
        name, value = next(iter(moving.items()))
        length, device = value.size(self._moving[name]), value.device
        before_B = self._before(batch).to(device)
        kept = int(self.tensors[_LENGTH]) if bool((before_B >= 0).any()) else 0
        capacity = Capacity(len(before_B), 1, kept + length, _dtype(module, device), device)
        fixed = {name: value for name, value in inputs.items() if name not in moving}
        state = module.begin(capacity, **fixed)  # type: ignore[operator]
        if bool((before_B >= 0).any()):
            for path, one in _states(state):
                self._fill(path, one, before_B, kept)
        outputs = module.step(**moving, state=state, position=kept)  # type: ignore[operator]
        self._keep(state, batch, kept + length)
        return outputs

    def load(self, tensors: Mapping[str, Tensor], device: torch.device) -> None:
        """Continue with the tensors of a checkpoint."""
        self.tensors = {name: one.to(device) for name, one in tensors.items()}

    def _before(self, batch: Batch) -> Tensor:
        """Return the row of the last batch that each row continues, [B]; -1 for none.

        Raises:
            InputError: the data do not say where documents begin.
        """
        if batch.first is None:
            raise InputError(
                "the objective has 'segments', but no column cuts its texts into segments",
                place="/data/columns",
                help="set 'segment' of the text column to the number of tokens of a row",
            )
        rows, first = batch.rows.tolist(), batch.first.tolist()
        known = {row: at for at, row in enumerate(self.tensors.get(_ROWS, torch.empty(0)).tolist())}
        return torch.tensor(
            [-1 if new else known.get(row - 1, -1) for row, new in zip(rows, first, strict=True)]
        )

    def _fill(self, path: str, state: State, before_B: Tensor, kept: int) -> None:
        """Write the memory of the rows into a new state."""
        goes_on_B = before_B >= 0
        at_B = before_B.clamp(min=0)
        for name, buffer in state.appended.items():
            old = self.tensors[f"{path}/{name}"].index_select(0, at_B)
            buffer.narrow(-2, 0, kept).copy_(old)
        if state.appended:
            buffer = next(iter(state.appended.values()))
            mask = torch.ones(
                (len(before_B), buffer.size(-2), 1), dtype=torch.bool, device=buffer.device
            )
            if (stored := self.tensors.get(f"{path}/{_MASK}")) is not None:
                mask[:, :kept] = stored.index_select(0, at_B)
            mask[:, :kept] &= goes_on_B[:, None, None]
            state.appended[_MASK] = mask
        for name, fresh in state.carried.items():
            old = self.tensors[f"{path}/{name}"].index_select(0, at_B)
            some = goes_on_B.view(-1, *[1] * (fresh.dim() - 1))
            fresh.copy_(torch.where(some, old, fresh))

    def _keep(self, state: Any, batch: Batch, length: int) -> None:
        """Keep the last positions of a state after `length` positions."""
        kept = min(length, self._longest)
        self.tensors = {
            _ROWS: torch.as_tensor(batch.rows, dtype=torch.int64).clone(),
            _LENGTH: torch.tensor(kept),
        }
        for path, one in _states(state):
            for name, buffer in one.appended.items():
                last = buffer.detach().narrow(-2, length - kept, kept)
                self.tensors[f"{path}/{name}"] = last.clone()
            for name, tensor in one.carried.items():
                self.tensors[f"{path}/{name}"] = tensor.detach().clone()


def _states(state: Any, path: str = "") -> Iterator[tuple[str, State]]:
    """Yield the states of blocks inside a decoding state, with their paths."""
    if isinstance(state, State):
        yield path, state
    elif isinstance(state, Mapping):
        for name, inner in state.items():
            if not name.startswith(KEPT):
                yield from _states(inner, f"{path}.{name}" if path else name)
    elif isinstance(state, list | tuple):
        for number, inner in enumerate(state):
            yield from _states(inner, f"{path}.{number}")


def _dtype(module: nn.Module, device: torch.device) -> torch.dtype:
    """Return the dtype of the state: that of autocast, or of the weights."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return next(module.parameters()).dtype
