"""Run a built model one position at a time.

Axes: N sentences, K beams, R = N * K rows, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ...blocks.kernels.decode_state import Capacity, State
from ..codegen.decode import KEPT, LEAD, kept_value
from ..compile.decoder import decoder_of
from .active_rows import BlockStepper, rows_of

READ_AT_ONCE = 512
"""Prompt tokens that are read in one call; memory grows with the square of this number."""

CACHED = 160_000
"""Logits of one model that are averaged with another's at once; more do not stay in the cache."""

FEW = 3
"""Rows are moved one by one if at most one in this many moves; otherwise all are copied at once."""


class ModelStepper:
    """Adapts a model whose spec has a step axis to the `Stepper` protocol."""

    first_buffer: int | None = 16
    """Positions for which buffers are allocated at first; they are doubled.  None for all."""

    def __init__(  # noqa: PLR0913 - all by name but two
        self,
        model: nn.Module,
        fixed: Mapping[str, Tensor],
        *,
        beams: int,
        length: int,
        moving: str = "target",
        output: str = "logits",
        masks: Collection[str] = (),
        sentences: int | None = None,
        candidates: Tensor | None = None,
    ) -> None:
        """Run the parts that do not depend on the output once, and allocate the decoding state.

        Args:
            model: built from a spec with a `step`; in evaluation mode.
            fixed: inputs without the step axis, one row per sentence.
            beams: hypotheses K per sentence.
            length: maximum number of positions.
            moving: the input that is fed back.
            output: the output with the logits of the next token, [.., V].
            masks: mask inputs with the step axis; they are true everywhere.
            sentences: number of sentences, if there are no fixed inputs.
            candidates: ids of the logits to compute, if the model has a shortlist; None for all.
        """
        parameter = next(model.parameters())
        device = next((value.device for value in fixed.values()), parameter.device)
        kind = device.type
        half = torch.is_autocast_enabled(kind)
        dtype = torch.get_autocast_dtype(kind) if half else parameter.dtype
        rows = next((value.size(0) for value in fixed.values()), sentences or 1)
        capacity = Capacity(
            rows, beams, length, dtype, device, first=self.first_buffer, candidates=candidates
        )
        decoder = decoder_of(model)
        self._steps = decoder.steps
        module: Any = decoder.module(model, dtype)
        self.rows = capacity.sentences
        self.beams = beams
        self._model = module
        self._moving, self._output = moving, output
        self._masks = {
            name: torch.ones(capacity.rows, 1, dtype=torch.bool, device=device) for name in masks
        }
        self._used, self._length, self._room = 0, length, capacity.allocated
        self._state = module.begin(capacity, **fixed)

    def read(self, tokens_RP: Tensor, position: int = 0) -> None:
        """Append tokens to every row at once, without computing logits.

        Args:
            tokens_RP: P tokens of each row.
            position: number of tokens before them.
        """
        read: Any = self._model.read_prompt
        for start in range(0, tokens_RP.size(1), READ_AT_ONCE):
            tokens_RT = tokens_RP[:, start : start + READ_AT_ONCE]
            masks = {name: mask.expand(-1, tokens_RT.size(1)) for name, mask in self._masks.items()}
            moving = {self._moving: tokens_RT, **masks}
            self._make_room(position + start + tokens_RT.size(1))
            read(**moving, state=self._state, position=position + start)

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Append one token to every row and return the logits [R, V] of the next token."""
        return self.steps(tokens_R[:, None], position)[:, -1]

    def steps(self, tokens_RT: Tensor, position: int) -> Tensor:
        """Append T tokens to every row and return the logits [R, T, V] after each."""
        masks = {name: mask.expand(-1, tokens_RT.size(1)) for name, mask in self._masks.items()}
        moving = {self._moving: tokens_RT, **masks}
        self._make_room(position + tokens_RT.size(1))
        last = self._used >= self._length
        outputs = self._steps.run(self._model, moving, self._state, position, last=last)
        logits: Tensor = outputs[self._output]
        return logits

    def _make_room(self, used: int) -> None:
        """Enlarge the buffers that are too short for this many positions."""
        if used > self._room:
            self._room = min(max(used, 2 * self._room), max(used, self._length))
            enlarge(self._state, self._room, self._used)
        self._used = used

    def reorder(self, rows_R: Tensor) -> None:
        """Make each row continue from another row of its sentence."""
        reorder(self._state, rows_R, self._used)

    def narrow(self, sentences_N: Tensor) -> None:
        """Keep only these sentences, in this order."""
        rows_R = rows_of(sentences_N, self.beams)
        narrow(self._state, sentences_N, rows_R, self._used)
        self._masks = {name: mask[rows_R] for name, mask in self._masks.items()}
        self.rows = len(sentences_N)


def mean_log_p(logits: Sequence[Tensor]) -> Tensor:
    """Return the logarithm of the mean of several models' probabilities, in float32.

    On the CPU, blocks of rows are computed one after the other, so that a block stays in the cache:
    1,280 rows of 10,000 logits of two models take half the time that they take at once.
    """
    if logits[0].device.type != "cpu":
        return _mean_log_p(logits)
    rows = max(1, CACHED // logits[0].shape[-1])
    blocks = zip(*(tensor.flatten(0, -2).split(rows) for tensor in logits), strict=True)
    log_p = torch.empty(logits[0].shape, dtype=torch.float32)
    for block, out in zip(blocks, log_p.flatten(0, -2).split(rows), strict=True):
        out.copy_(_mean_log_p(block))
    return log_p


def _mean_log_p(logits: Sequence[Tensor]) -> Tensor:
    """Return the mean, of all rows at once."""
    first, *others = (torch.log_softmax(tensor, -1, dtype=torch.float32) for tensor in logits)
    for other in others:
        torch.logaddexp(first, other, out=first)
    return first.sub_(math.log(len(logits)))


class EnsembleStepper:
    """Several models with one vocabulary, combined by averaging their probabilities.

    Source: Sutskever et al. 2014, section 3.6.
    """

    def __init__(self, steppers: Sequence[BlockStepper]) -> None:
        """Combine steppers over the same sentences."""
        self._steppers = steppers
        self.rows = steppers[0].rows

    def read(self, tokens_RT: Tensor) -> None:
        """Append the first tokens of every row, without computing logits."""
        for stepper in self._steppers:
            stepper.read(tokens_RT)

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Append one token to every row and return the log probabilities [R, V], in float32."""
        return mean_log_p([stepper.step(tokens_R, position) for stepper in self._steppers])

    def steps(self, tokens_RT: Tensor, position: int) -> Tensor:
        """Append T tokens to every row and return the log probabilities [R, T, V] after each."""
        return mean_log_p([stepper.steps(tokens_RT, position) for stepper in self._steppers])

    def reorder(self, rows_R: Tensor) -> None:
        """Make each row continue from another row of its sentence."""
        for stepper in self._steppers:
            stepper.reorder(rows_R)

    def narrow(self, sentences_N: Tensor) -> None:
        """Keep only these sentences, in this order."""
        for stepper in self._steppers:
            stepper.narrow(sentences_N)
        self.rows = len(sentences_N)


def reorder(state: Any, rows_R: Tensor, used: int) -> None:
    """Gather the per-row tensors of a state, in place; per-sentence tensors do not change.

    On the CPU, if few rows continue from another row, only those are copied.

    Args:
        state: the decoding state that `begin` returned.
        rows_R: for each row, the row from which it continues.
        used: number of filled positions; the rest of a buffer is not touched.
    """
    moved = None
    if rows_R.device.type == "cpu":
        own_R = torch.arange(len(rows_R))
        moved = (rows_R != own_R).nonzero()[:, 0]
        if len(moved) * FEW > len(rows_R):
            moved = None
    _reorder(state, rows_R if moved is None else rows_R[moved], moved, used)


def _reorder(state: Any, rows_M: Tensor, moved_M: Tensor | None, used: int) -> None:
    """Make the rows `moved_M`, or all rows if it is None, continue from `rows_M`."""
    if isinstance(state, State):
        filled = [buffer.narrow(-2, 0, used) for buffer in state.appended.values()]
        for tensor in (*filled, *state.carried.values()):
            taken = tensor.index_select(0, rows_M)
            if moved_M is None:
                tensor.copy_(taken)
            else:
                tensor.index_copy_(0, moved_M, taken)
    elif isinstance(state, Mapping):
        lead = state.get(LEAD, 0)
        for inner in state.values():
            _reorder(inner, rows_M, moved_M, used + lead)
    elif isinstance(state, list | tuple):
        for inner in state:
            _reorder(inner, rows_M, moved_M, used)


def enlarge(state: Any, length: int, used: int) -> None:
    """Enlarge the buffers of a state to a number of positions, in place.

    Args:
        state: the decoding state that `begin` returned.
        length: positions that every buffer can hold afterwards.
        used: number of filled positions; the rest of a buffer is not copied.
    """
    if isinstance(state, State):
        for name, buffer in state.appended.items():
            if buffer.size(-2) < length:
                larger = buffer.new_zeros(*buffer.shape[:-2], length, buffer.size(-1))
                larger.narrow(-2, 0, used).copy_(buffer.narrow(-2, 0, used))
                state.appended[name] = larger
    elif isinstance(state, Mapping):
        lead = state.get(LEAD, 0)
        for name, inner in state.items():
            if not name.startswith(KEPT):
                enlarge(inner, length + lead, used + lead)
    elif isinstance(state, list | tuple):
        for inner in state:
            enlarge(inner, length, used)


def narrow(state: Any, sentences_M: Tensor, rows_M: Tensor, used: int) -> None:
    """Keep only some sentences of a state, in place.

    Args:
        state: the decoding state that `begin` returned.
        sentences_M: the sentences to keep, in their new order.
        rows_M: their rows.
        used: number of filled positions; the rest of a buffer is not copied.
    """
    if isinstance(state, State):
        for name, buffer in state.appended.items():
            smaller = buffer.new_zeros(len(rows_M), *buffer.shape[1:])
            filled = buffer.narrow(-2, 0, used).index_select(0, rows_M)
            smaller.narrow(-2, 0, used).copy_(filled)
            state.appended[name] = smaller
        for name, tensor in state.carried.items():
            state.carried[name] = tensor.index_select(0, rows_M)
        for name, tensor in state.fixed.items():
            state.fixed[name] = tensor.index_select(0, sentences_M)
    elif isinstance(state, dict):
        lead = state.get(LEAD, 0)
        for name, inner in state.items():
            if name.startswith(LEAD):
                continue
            if not name.startswith(KEPT):
                narrow(inner, sentences_M, rows_M, used + lead)
            elif (batch_dim := kept_value(name)[1]) is not None:
                state[name] = inner.index_select(batch_dim, rows_M)
    elif isinstance(state, list | tuple):
        for inner in state:
            narrow(inner, sentences_M, rows_M, used)
