"""The state of a step program as a flat list of named tensors, and back.

A decoder's state is nested by node, but an engine that runs one graph per step takes and
returns tensors by name.  Here the state grows by one position per step, whereas the model
itself fills a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn

from .....plugin import Capacity, Graph, InputError, State
from .....runtime.codegen.decode import KEPT, kept_value

Kind = Literal["appended", "carried", "fixed"]
KINDS: tuple[Kind, ...] = ("appended", "carried", "fixed")
GROWN = "grown"
"""Kind of other tensors with a dimension of the state's capacity; they grow by one per step."""
NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Leaf:
    """One tensor of a state."""

    name: str
    """Path of the block and name in its state, such as `decoder.0.self_attention.key`."""
    kind: Kind
    value: Tensor


def leaves(state: Any, path: tuple[str, ...] = ()) -> Iterator[Leaf]:
    """Yield the tensors of a state in a fixed order."""
    if isinstance(state, State):
        for kind in KINDS:
            for name, value in getattr(state, kind).items():
                yield Leaf(".".join((*path, name)), kind, value)
    elif isinstance(state, Mapping):
        for name, inner in state.items():
            if name.startswith(KEPT):  # a value that is constant over steps
                yield Leaf(".".join((*path, kept_value(name)[0])), "fixed", inner)
            else:
                yield from leaves(inner, (*path, name))
    elif isinstance(state, Sequence):
        for index, inner in enumerate(state):
            yield from leaves(inner, (*path, str(index)))


def rebuilt(like: Any, values: Iterator[Tensor]) -> Any:
    """Return a state of the same structure with new tensors, in the order of `leaves`."""
    if isinstance(like, State):
        parts = [{name: next(values) for name in getattr(like, kind)} for kind in KINDS]
        return State(*parts)
    if isinstance(like, Mapping):
        return {
            name: next(values) if name.startswith(KEPT) else rebuilt(inner, values)
            for name, inner in like.items()
        }
    return [rebuilt(inner, values) for inner in like]


def grown_of(short: Any, long: Any) -> dict[str, int]:
    """Return, by tensor name, the dimension that depends on the capacity.

    Args:
        short: a state.
        long: the same state with a larger capacity; appended buffers are ignored.
    """
    return {
        leaf.name: axis
        for leaf, other in zip(leaves(short), leaves(long), strict=True)
        if leaf.kind != "appended"
        for axis, (a, b) in enumerate(zip(leaf.value.shape, other.value.shape, strict=True))
        if a != b
    }


@dataclass(frozen=True, slots=True)
class Loop:
    """Inputs and output of a step program."""

    tokens: str
    """Input that receives the generated tokens."""
    masks: tuple[str, ...]
    """Mask inputs; every position is kept."""
    fixed: tuple[str, ...]
    """Inputs that are constant over steps."""
    output: str
    """Output with the scores of the next token."""


def loop_of(graph: Graph) -> Loop:
    """Return the inputs and output of a graph's step program.

    Raises:
        InputError: the step needs inputs other than ids and masks, or the graph has no logits.
    """
    moving = {n: t for n, t in graph.inputs.items() if graph.step_axis in t.axes}
    ids = [name for name, type_ in moving.items() if type_.kind == "ids"]
    masks = [name for name, type_ in moving.items() if type_.kind == "mask"]
    if len(ids) != 1 or len(ids) + len(masks) != len(moving) or "logits" not in graph.outputs:
        raise InputError(
            "its steps do not map one input of ids to 'logits'",
            location=f"{graph.source}#/step",
            help="use weft eject, which writes plain PyTorch including the steps",
        )
    fixed = tuple(name for name in graph.inputs if name not in moving)
    return Loop(ids[0], tuple(masks), fixed, "logits")


class Begin(nn.Module):
    """The graph that runs once: from constant inputs to the state before the first step."""

    def __init__(self, model: nn.Module, loop: Loop, like: Any) -> None:
        """Store the model.

        Args:
            model: model with a `begin` method.
            loop: inputs and output of its steps.
            like: a state after one step, which has every tensor.
        """
        super().__init__()
        self.model, self.loop, self.like = model, loop, like

    def forward(self, *fixed: Tensor) -> tuple[Tensor, ...]:
        """Return the tensors of the state; growing tensors have 0 positions."""
        first = fixed[0]
        dtype = next(self.model.parameters()).dtype
        capacity = Capacity(first.size(0), 1, 0, dtype, first.device)
        begin: Any = self.model.begin
        begun = {leaf.name: leaf.value for leaf in leaves(begin(capacity, **self._named(fixed)))}
        return tuple(
            begun[leaf.name] if leaf.name in begun else _none(leaf.value, first.size(0))
            for leaf in leaves(self.like)
        )

    def _named(self, fixed: Sequence[Tensor]) -> dict[str, Tensor]:
        return dict(zip(self.loop.fixed, fixed, strict=True))


def _none(like: Tensor, rows: int) -> Tensor:
    """Return an empty buffer with 0 positions, as the first step expects."""
    return like.new_zeros(rows, *like.shape[1:-2], 0, like.size(-1))


class Step(nn.Module):
    """One decoding step: from tokens and state to logits and the changed state tensors."""

    def __init__(
        self,
        model: nn.Module,
        loop: Loop,
        like: Any,
        *,
        counted: bool,
        grown: Mapping[str, int] = NOTHING,
    ) -> None:
        """Store the model.

        Args:
            model: model with a `step` method.
            loop: inputs and output of its steps.
            like: a state after one step, which has every tensor.
            counted: whether the first value is a tensor whose length is the number of past
                positions, because the state does not contain that number.
            grown: result of `grown_of`.
        """
        super().__init__()
        self.model, self.loop, self.like, self.counted = model, loop, like, counted
        self.grown = grown

    def forward(self, tokens: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        """Return logits [R, V] and the changed state tensors.

        Args:
            tokens: [R, 1], the last token of each row.
            *values: the state's tensors, in the order of `leaves`.
        """
        position, states = 0, list(values)
        if self.counted:
            position = states.pop(0).size(0)
        tensors = []
        for leaf, value in zip(leaves(self.like), states, strict=True):
            if leaf.kind == "appended":
                position = value.size(-2)
                tensors.append(_longer(value, value.dim() - 2))
            elif leaf.name in self.grown:
                tensors.append(_longer(value, self.grown[leaf.name]))
            else:
                tensors.append(value.clone() if leaf.kind == "carried" else value)
        state = rebuilt(self.like, iter(tensors))
        mask = torch.ones_like(tokens, dtype=torch.bool)
        moving = {self.loop.tokens: tokens, **dict.fromkeys(self.loop.masks, mask)}
        step: Any = self.model.step
        logits = step(**moving, state=state, position=position)[self.loop.output][:, -1]
        changed = [
            leaf.value for leaf in leaves(state) if leaf.kind != "fixed" or leaf.name in self.grown
        ]
        return (logits, *changed)


def _longer(value: Tensor, axis: int) -> Tensor:
    """Return a tensor with one more position of zeros along a dimension."""
    shape = list(value.shape)
    shape[axis] = 1
    return torch.cat([value, value.new_zeros(shape)], axis)
