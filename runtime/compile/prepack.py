"""Pack: a model that will read a little many times, its matrices laid out for that once.

A decoder multiplies few rows with every matrix, at every step.  Its matrices are put in
the order in which the processor's kernels read them, and into bfloat16 when that is
asked for, before the first step instead of at each one.  The packed model is another one
of the same classes: state, `begin`, `step` and `forward` are what they were.

Measured on an AMD processor with AVX-512: products in float32 take 0.45 of the time that
torch's usual ones take, from 4 rows to 2,048; in bfloat16 0.75 to 0.95.
"""

from __future__ import annotations

import copy
import functools
import itertools
import weakref
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_post_hook

from ...blocks.kernels.linear import LinearMap

_LIBRARY = torch.library.Library("weft", "DEF")
_LIBRARY.define("packed_linear(Tensor x, Tensor place, SymInt width) -> Tensor")
"""A packed product for torch.compile, which cannot look at a packed matrix."""
_PLACES: weakref.WeakValueDictionary[int, PackedLinear] = weakref.WeakValueDictionary()
_counted = itertools.count()


class PackedLinear(nn.Module):
    """A linear map that is ready to be used many times, and no longer learns."""

    def __init__(self, linear: nn.Linear, dtype: torch.dtype) -> None:
        """Lay the matrix out; that takes about as much time as one use, and its memory again.

        Args:
            linear: on the CPU.
            dtype: in which it is to multiply.
        """
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.dtype = dtype
        self.packed = _ops()._reorder_linear_weight(linear.weight.detach().to(dtype), None)  # noqa: SLF001
        self.bias = _cast(linear.bias, dtype)
        # A tensor, as a number would be a constant of a graph, and every layer have its own.
        self.place = torch.tensor(next(_counted))
        _PLACES[int(self.place)] = self

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., D] to [..., O], in the precision of the matrix."""
        if torch.compiler.is_compiling():
            known: Tensor = torch.ops.weft.packed_linear(
                x.to(self.dtype), self.place, self.out_features
            )
            return known
        return self.multiply(x)

    def multiply(self, x: Tensor) -> Tensor:
        """Do it."""
        y: Tensor = _ops()._linear_pointwise(  # noqa: SLF001 - torch has no public name for it
            x.to(self.dtype), self.packed, self.bias, "none", [], ""
        )
        return y

    def extra_repr(self) -> str:
        """Show the sizes where torch shows modules."""
        return f"{self.in_features}, {self.out_features}, {self.dtype}"


def _by_place(x: Tensor, place: Tensor, _: int) -> Tensor:
    return _PLACES[int(place)].multiply(x)


def _sized(x: Tensor, _: Tensor, width: int) -> Tensor:
    return x.new_empty((*x.shape[:-1], width))


_LIBRARY.impl("packed_linear", _by_place, "CPU")
torch.library.register_fake("weft::packed_linear", _sized, lib=_LIBRARY)

_Marks = tuple[bool, int, tuple[tuple[int, int], ...]]
"""By what a change shows: whether it trains, steps of optimizers, places of parameters."""
_HELD: weakref.WeakKeyDictionary[nn.Module, dict[torch.dtype, tuple[_Marks, nn.Module]]]
_HELD = weakref.WeakKeyDictionary()


def packed(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    """Return a model whose linear maps are packed, or the model itself where that cannot be.

    It is kept for as long as the model is, and made anew when a parameter has changed.
    Everything but the matrices of linear maps is shared with the model.

    Args:
        model: what will decode; it stays as it is.
        dtype: in which linear maps multiply.
    """
    parameters = list(model.parameters())
    if not parameters or any(one.device.type != "cpu" for one in parameters):
        return model
    if torch.is_grad_enabled() or parameters[0].dtype != torch.float32 or not can_pack(dtype):
        return model
    places = tuple((one.data_ptr(), _version(one)) for one in parameters)
    marks = model.training, _steps().made, places
    held = _HELD.setdefault(model, {})
    if dtype not in held or held[dtype][0] != marks:
        held.pop(dtype, None)
        held[dtype] = marks, _copied(model, dtype, {})
    return held[dtype][1]


@functools.cache
def can_pack(dtype: torch.dtype) -> bool:
    """Say whether this torch packs matrices on this processor, by trying it on a small one."""
    if dtype not in (torch.float32, torch.bfloat16):
        return False
    linear = nn.Linear(24, 40)
    x = torch.linspace(-1, 1, 3 * 24).view(3, 24)
    with torch.no_grad():
        try:
            found = PackedLinear(linear, dtype)(x)
        except (AttributeError, RuntimeError):  # another torch, or built without oneDNN
            return False
        expected = F.linear(x.to(dtype), linear.weight.to(dtype), _cast(linear.bias, dtype))
    near = 1e-4 if dtype == torch.float32 else 0.05
    return found.dtype == dtype and bool((found - expected).abs().max() < near)


def _copied(module: nn.Module, dtype: torch.dtype, known: dict[int, nn.Module]) -> nn.Module:
    """Return a module that shares all with another but the linear maps in it.

    Args:
        module: what is copied.
        dtype: in which linear maps multiply.
        known: what has been copied before; what stands in two places goes on doing so.
    """
    if id(module) in known:
        return known[id(module)]
    plain = (nn.Linear.forward, LinearMap.forward)
    if isinstance(module, nn.Linear) and type(module).forward in plain:
        made: nn.Module = PackedLinear(module, dtype).train(module.training)
    else:
        made = copy.copy(module)
        inner = {
            name: None if one is None else _copied(one, dtype, known)
            for name, one in module._modules.items()  # noqa: SLF001 - all of them, in order
        }
        # What was compiled is the other's `forward`.
        made.__dict__ |= {"_modules": inner, "_compiled_call_impl": None}
    known[id(module)] = made
    return made


def _cast(bias: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if bias is None else bias.detach().to(dtype)


def _ops() -> Any:
    return torch.ops.mkldnn


class _Steps:
    """How many steps optimizers have made since this was made.

    A fused step changes parameters behind the back of their version counters.
    """

    def __init__(self) -> None:
        self.made = 0
        register_optimizer_step_post_hook(self._one_more)

    def _one_more(self, *_: Any) -> None:
        self.made += 1


_steps = functools.cache(_Steps)
"""The one count of this process, which begins when a model is first packed."""


def _version(tensor: Tensor) -> int:
    """Return how often a tensor has been changed in place; one of inference mode does not say."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - no public name
