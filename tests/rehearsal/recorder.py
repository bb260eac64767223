"""What a program asks of a GPU, recorded on fake tensors: kernels, bytes, waits, work on the CPU.

Fake tensors have a shape and a device, but no values.  A question that only the device could
answer, such as `item()`, is recorded as a wait and answered with a constant.
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import weft
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

ROOT = str(Path(weft.__file__).parent)
NO_KERNEL = {
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "_reshape_alias",
    "_unsafe_view",
    "lift_fresh",
    "resize_",
    "set_",
    "record_stream",
}
"""Operators that compute nothing although they are not declared as views."""
WAITS = {"nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "equal"}
"""Operators whose result has a size or a value that the host must read."""
INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}


class Recorder(TorchDispatchMode):
    """Records every operator between `__enter__` and `__exit__`."""

    def __init__(self) -> None:
        """Start with nothing recorded."""
        super().__init__()
        self.kernels: Counter[str] = Counter()
        """Operator to the number of its kernels."""
        self.bytes = 0
        """Bytes of all tensors on the device that kernels read or write."""
        self.waits: Counter[str] = Counter()
        """Operator and place of each wait for the device."""
        self.on_cpu: Counter[str] = Counter()
        """Operator and place of each tensor that is computed on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record an operator and run it."""
        del types
        named = kwargs or {}
        name = func.overloadpacket.__name__
        given = [*_tensors(args), *_tensors(tuple(named.values()))]
        on_device = any(one.device.type == "cuda" for one in given)
        if name == "_local_scalar_dense":
            return self._answered(name, args[0], on_device=on_device)
        if on_device and self._must_wait(name, func, args):
            self.waits[f"{name} at {_place()}"] += 1
            if name == "equal":
                return True
            if name == "nonzero":
                return torch.empty(
                    (args[0].numel(), args[0].dim()), dtype=torch.int64, device=args[0].device
                )
        made = func(*args, **named)
        found = list(_tensors(made if isinstance(made, tuple | list) else (made,)))
        if name in ("_to_copy", "copy_") and on_device:
            target = args[0] if name == "copy_" else found[0]
            if target.device.type == "cpu":
                self.waits[f"copy to the CPU at {_place()}"] += 1
        if func.is_view or func.namespace == "prim" or name in NO_KERNEL:
            return made
        if on_device or any(one.device.type == "cuda" for one in found):
            touched = [one for one in (*given, *found) if one.device.type == "cuda"]
            self.kernels[name] += 1
            self.bytes += sum(one.numel() * one.element_size() for one in touched)
        elif any(one.dim() for one in found):
            self.on_cpu[f"{name} at {_place()}"] += 1
        return made

    def _answered(self, name: str, value: Tensor, *, on_device: bool) -> Any:
        """Return a constant for a value that the host reads."""
        if on_device:
            self.waits[f"{name} at {_place()}"] += 1
        if value.dtype == torch.bool:
            return True
        return 1.0 if value.dtype.is_floating_point else 1

    def _must_wait(self, name: str, func: Any, args: Any) -> bool:
        """Return whether the host waits for the result of an operator on the device."""
        if name in WAITS or (name == "repeat_interleave" and len(args) == 1):
            return True
        masks = (torch.bool, torch.uint8)
        del func
        return name in INDEXES and any(one is not None and one.dtype in masks for one in args[1])


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, tuple | list):
            yield from _tensors(value)


def _place() -> str:
    """Return the innermost line of Weft or of generated code that is running."""
    for frame in reversed(traceback.extract_stack()):
        if frame.filename.startswith("<weft_generated"):
            return f"generated:{frame.lineno}"
        if frame.filename.startswith(ROOT) and "/tests/" not in frame.filename:
            return f"{frame.filename.removeprefix(ROOT + '/')}:{frame.lineno}"
    return "outside of weft"
