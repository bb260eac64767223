"""Low-precision copies of weights, written once an update instead of at each use.

Autocast converts a float32 weight whenever a module multiplies by it: in each micro-batch, again
when activations are computed again, and in each compiled layer.  A model whose graph has copies
writes all of them together, before its first forward pass after the weights have changed.  The
gradient of a copy is converted and added to that of its weight, as autocast does it.

Source: Micikevicius et al. 2018, section 3.1, https://arxiv.org/abs/1710.03740
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

_Function = TypeVar("_Function", bound=Callable[..., object])


def uncompiled(function: _Function) -> _Function:
    """Exclude a function from torch.compile, which would unroll its loop for each length."""
    # Like torch.compiler.disable, but without importing the compiler until it is called.
    return cast("_Function", torch._disable_dynamo(function))  # type: ignore[attr-defined]  # noqa: SLF001


def autocast_dtype(tensor: Tensor) -> torch.dtype | None:
    """Return the autocast dtype for the device of a tensor; None if autocast is not enabled."""
    kind = tensor.device.type
    if _has_autocast(kind) and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return None


def without_autocast(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context in which autocast does not change products on the device of a tensor."""
    kind = tensor.device.type
    return torch.autocast(kind, enabled=False) if _has_autocast(kind) else nullcontext()


def _has_autocast(device: str) -> bool:
    """Return whether a device that computes, which `meta` does not, has autocast.

    torch.compile of torch 2.11 does not follow `torch.amp.is_autocast_available`: it would end a
    graph at each linear map.
    """
    return device != "meta"


def as_autocast(*tensors: Tensor) -> list[Tensor]:
    """Cast tensors to the autocast dtype if autocast is enabled; otherwise return them as is."""
    dtype = autocast_dtype(tensors[0])
    return list(tensors) if dtype is None else [tensor.to(dtype) for tensor in tensors]


class _OptimizerSteps:
    """Counts the optimizer steps since its creation.

    A fused step changes parameters without incrementing their version counters.
    """

    def __init__(self) -> None:
        self.steps = 0
        register_optimizer_step_post_hook(self._count)

    def _count(self, *_: Any) -> None:
        self.steps += 1


_steps = functools.cache(_OptimizerSteps)
"""The counter of this process, which starts when someone first asks."""


def steps_made() -> int:
    """Return the number of optimizer steps in this process since the first call."""
    return _steps().steps


def version_of(tensor: Tensor) -> int:
    """Return the version counter of a tensor; -1 for tensors of inference mode, which have none."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public name


class _Copy(NamedTuple):
    """A copy of a weight."""

    weight: Tensor
    state: tuple[int, int, bool]
    """State of the weight when the copy was written."""
    tensor: Tensor
    """The copy; a gradient of it goes to the weight."""


class Copies:
    """The copies of the weights of one module."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Start without copies."""
        self.dtype = dtype
        self.by_name: dict[str, _Copy] = {}
        """Name of a weight to its copy."""

    def of(self, name: str, weight: Tensor, *, training: bool) -> Tensor:
        """Return the copy of a weight; the weight itself if autocast would not convert it.

        A copy that is out of date is not used, so autocast converts the weight.  Compiled code
        cannot look: it uses copies in training alone, where the root has written them.
        """
        copy = self.by_name.get(name)
        if copy is None or not _casts(weight.device.type, self.dtype):
            return weight
        if torch.compiler.is_compiling():
            return copy.tensor if training else weight
        return copy.tensor if copy.weight is weight and copy.state == _state(weight) else weight

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles of the model, which write their own copies."""
        return {"dtype": self.dtype, "by_name": {}}


class Casts:
    """Writes the copies of all weights of a model."""

    def __init__(self, dtype: torch.dtype) -> None:
        """Make copies of a dtype."""
        self.dtype = dtype
        self._modules: list[nn.Module] = []
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}
        """Identity of a weight to the weight and the memory of its copy."""

    def join(self, model: nn.Module) -> None:
        """Give copies to all modules of a model whose class names weights, as `copied`."""
        modules: Iterable[Any] = model.modules()
        for module in modules:
            if hasattr(type(module), "copied"):
                module.copies = Copies(self.dtype)
                self._modules.append(module)

    @uncompiled
    def refresh(self) -> None:
        """Write the copies again if a weight has changed and autocast would convert it."""
        weights = list(self._weights())
        if not weights or torch.is_inference_mode_enabled():
            return
        if not _casts(weights[0][2].device.type, self.dtype):
            return
        states = {id(weight): _state(weight) for _, _, weight in weights}
        stale = [
            (copies, name, weight)
            for copies, name, weight in weights
            if _is_stale(copies.by_name.get(name), weight, states[id(weight)])
        ]
        if not stale:
            return
        self._buffers = {id(w): self._memory(w) for _, _, w in weights}
        changed = {id(weight): weight for _, _, weight in stale}
        memory = [self._buffers[key][1] for key in changed]
        with torch.no_grad():
            torch._foreach_copy_(memory, list(changed.values()))
        written = {
            key: _Linked.apply(weight, self._buffers[key][1])  # type: ignore[no-untyped-call]
            for key, weight in changed.items()
        }
        for copies, name, weight in stale:
            copies.by_name[name] = _Copy(weight, states[id(weight)], written[id(weight)])

    def _memory(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return a weight and the memory of its copy."""
        cached = self._buffers.get(id(weight))
        if cached is not None and cached[0] is weight and cached[1].device == weight.device:
            return cached
        return weight, torch.empty_like(weight, dtype=self.dtype, requires_grad=False)

    def _weights(self) -> Iterator[tuple[Copies, str, Tensor]]:
        """Yield each weight that gets a copy, a tied one under each of its names."""
        for module in self._modules:
            copied: Any = module
            for name in copied.copied:
                weight: Any = getattr(module, name, None)
                if weight is not None and weight.dtype == torch.float32 and not _spread(weight):
                    yield copied.copies, name, weight

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles of the model, without the copied weights."""
        return {**vars(self), "_buffers": {}}


def operand(module: nn.Module, name: str) -> Any:
    """Return a weight as the products of a module read it: its copy, if it has a current one."""
    weight = getattr(module, name)
    copies: Copies | None = getattr(module, "copies", None)
    if copies is None or weight is None:
        return weight
    return copies.of(name, weight, training=module.training)


def _casts(device: str, dtype: torch.dtype) -> bool:
    """Return whether autocast converts the operands of products on a device to a dtype."""
    return (
        _has_autocast(device)
        and torch.is_autocast_enabled(device)
        and torch.get_autocast_dtype(device) == dtype
    )


def _spread(weight: Tensor) -> bool:
    """Return whether a weight is distributed over processes: such a weight gets no copy."""
    return type(weight).__module__.startswith("torch.distributed")


def _state(weight: Tensor) -> tuple[int, int, bool]:
    """Return what changes when a weight does, or when it is frozen."""
    return steps_made(), version_of(weight), weight.requires_grad


def _is_stale(copy: _Copy | None, weight: Tensor, state: tuple[int, int, bool]) -> bool:
    """Return whether a copy must be written again, or gets no gradient although it should."""
    if copy is None or copy.weight is not weight or copy.state != state:
        return True
    return torch.is_grad_enabled() and weight.requires_grad and not copy.tensor.requires_grad


class _Linked(torch.autograd.Function):
    """The copy of a weight as a function of the weight.

    It saves nothing, so every micro-batch of an update can run its backward pass through it.
    """

    @staticmethod
    def forward(ctx: Any, weight: Tensor, copy: Tensor) -> Tensor:
        """Return the copy."""
        del ctx, weight
        return copy

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Return the gradient in the dtype of the weight."""
        del ctx
        return gradient.float(), None
