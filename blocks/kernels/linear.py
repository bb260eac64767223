"""Product: the matrix products of linear maps, by the kernel that is fastest on this processor.

torch multiplies float32 matrices on the CPU with one library (MKL) and bfloat16 ones with
another (oneDNN).  On some processors the second one is twice as fast in float32 too, and
torch has it as an operator of its own.  Which one runs is a choice of the process, made by
a measurement (`runtime/compile/autotune.py`); until then it is torch's.  Products of many
rows in bfloat16 are made in parts (`rows.py`).

Axes: R rows, I width of what is read, O width of what is given.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .bucketed_matmul import serves, summed_in_parts, times_in_parts

Product = Literal["torch", "onednn"]
"""`torch` is what `F.linear` runs, `onednn` torch's operator for oneDNN."""

ROWS = 64
"""Fewest rows that are worth another kernel than torch's."""

_chosen: Product = "torch"


def use_product(product: Product) -> None:
    """Multiply float32 matrices on the CPU by one kernel from now on, in this process.

    Raises:
        ValueError: this torch lacks the kernel.
    """
    global _chosen  # noqa: PLW0603 - kernels are the process's, like its threads
    if product != "torch" and not has_onednn():
        msg = f"this torch has no kernel '{product}' for matrix products"
        raise ValueError(msg)
    _chosen = product


def product_in_use() -> Product:
    """Return the kernel that multiplies float32 matrices on the CPU."""
    return _chosen


def has_onednn() -> bool:
    """Say whether this torch has oneDNN's product as an operator."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class LinearMap(nn.Linear):
    """A linear map, x W^T + b, by the chosen kernel."""

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., I] to [..., O]."""
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return x W^T + b, for x [..., I], by the chosen kernel where it serves, else by torch's."""
    if serves(x, weight_OI):
        half = torch.bfloat16
        given = (x.to(half), weight_OI.to(half), None if bias_O is None else bias_O.to(half))
        in_parts: Tensor = _InParts.apply(_IN_PARTS, *given)  # type: ignore[no-untyped-call]
        return in_parts
    if _chosen == "torch" or not _serves(x, weight_OI):
        return F.linear(x, weight_OI, bias_O)
    y: Tensor = _Onednn.apply(_ONEDNN, x, weight_OI, bias_O)  # type: ignore[no-untyped-call]
    return y


def times_transposed(a_RI: Tensor, b_OI: Tensor) -> Tensor:
    """Return a b^T of two matrices, by the chosen kernel; outside of autograd."""
    if _chosen == "torch" or a_RI.dtype != torch.float32 or a_RI.device.type != "cpu":
        return a_RI @ b_OI.t()
    return _onednn(a_RI, b_OI, None)


def _serves(x: Tensor, weight_OI: Tensor) -> bool:
    """Say whether plain float32 tensors on the CPU, many rows of them, are multiplied.

    Tensors of other classes (distributed, fake) and compiled graphs go torch's way.
    """
    return (
        not torch.compiler.is_compiling()
        and x.device.type == "cpu"
        and x.dtype == weight_OI.dtype == torch.float32
        and x.numel() >= ROWS * x.size(-1)
        and type(x) is Tensor
        and type(weight_OI) in (Tensor, nn.Parameter)
        and not torch.is_autocast_enabled("cpu")
    )


def _onednn(a_RI: Tensor, b_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """Return a b^T + bias; the operands may be transposed views."""
    product: Tensor = torch.ops.mkldnn._linear_pointwise(a_RI, b_OI, bias_O, "none", [], "")  # noqa: SLF001 - the only way to this kernel
    return product


def _onednn_summed(a_RO: Tensor, b_RI: Tensor) -> Tensor:
    """Return a^T b."""
    return _onednn(a_RO.t(), b_RI.t(), None)


class _Kernel(NamedTuple):
    """How the three products of a linear map are made."""

    times: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """From a [R, I], b [O, I] and a bias to a b^T + bias."""
    summed: Callable[[Tensor, Tensor], Tensor]
    """From a [R, O] and b [R, I] to a^T b."""


_ONEDNN = _Kernel(_onednn, _onednn_summed)
_IN_PARTS = _Kernel(times_in_parts, summed_in_parts)


def _as_rows(x: Tensor) -> Tensor:
    """[..., I] to [R, I], in memory row after row."""
    return x.reshape(-1, x.size(-1)).contiguous()


class _Linear(torch.autograd.Function):
    """A linear map whose three products, forward and backward, are a kernel's."""

    @staticmethod
    def forward(
        ctx: Any, kernel: _Kernel, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None
    ) -> Tensor:
        """Return x W^T + b."""
        ctx.save_for_backward(x, weight_OI)
        ctx.kernel, ctx.has_bias = kernel, bias_O is not None
        y_RO = kernel.times(_as_rows(x), weight_OI, bias_O)
        return y_RO.view(*x.shape[:-1], weight_OI.size(0))

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_y: Tensor
    ) -> tuple[None, Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients at x, W and b; a kernel has none."""
        x, weight_OI = ctx.saved_tensors
        of_y_RO = _as_rows(of_y)
        of_x = of_weight = of_bias = None
        if ctx.needs_input_grad[1]:
            of_x = ctx.kernel.times(of_y_RO, weight_OI.t(), None).view(x.shape)
        if ctx.needs_input_grad[2]:
            of_weight = ctx.kernel.summed(of_y_RO, _as_rows(x))
        if ctx.has_bias and ctx.needs_input_grad[3]:
            of_bias = of_y_RO.sum(0)
        return None, of_x, of_weight, of_bias


class _Onednn(_Linear):
    """One by oneDNN: the name is what profiles show."""


class _InParts(_Linear):
    """One with rows in parts."""
