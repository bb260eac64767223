"""Linear maps computed by the matrix product kernel that is fastest on this processor.

torch multiplies float32 matrices on the CPU with MKL and bfloat16 matrices with oneDNN.  On
some processors, oneDNN is twice as fast in float32, too, and torch exposes it as a separate
operator.  The kernel of a model is chosen by a measurement (`runtime/compile/autotune.py`) and set
by `kernel_choice.py`; the default is the kernel of torch.  Maps of the same input are computed
together.

In bfloat16 on a CPU, many rows are multiplied in a few parts (`few_shapes.py`).

Axes: R rows, I input width, O output width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from .few_shapes import FEWEST, in_bfloat16, summed_in_parts, times_in_parts
from .precision import Copies, operand

Product = Literal["torch", "onednn"]
"""`torch`: the kernel of `F.linear`; `onednn`: torch's operator for oneDNN."""

ROWS = 64
"""Minimum number of rows for which a kernel other than torch's is used."""


def has_onednn() -> bool:
    """Return whether this version of torch has oneDNN's matrix product as an operator."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class LinearMap(nn.Linear):
    """Linear map x W^T + b, computed by the chosen kernel, to which LoRA may be added."""

    product_kernel: Product = "torch"
    """Kernel of its products in float32 on the CPU."""
    copied: ClassVar[tuple[str, ...]] = ("weight", "bias")
    """Weights that get low-precision copies."""
    copies: Copies | None = None
    """The copies, if the graph of the model has them."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,  # noqa: FBT001, FBT002 - as in torch
    ) -> None:
        """Create the map, without LoRA."""
        super().__init__(in_features, out_features, bias)
        self.lora: Lora | None = None

    def forward(self, x: Tensor) -> Tensor:
        """Map x [..., I] to [..., O]."""
        y = linear(x, operand(self, "weight"), operand(self, "bias"), self.product_kernel)
        return y if self.lora is None else y + self.lora(x)


class Lora(nn.Module):
    """Low-rank matrices that are added to a linear map: alpha / r * x A^T B^T.

    A is [r, I] and B [O, r].

    Source: Hu et al. 2022, section 4.1.
    """

    def __init__(self, linear: nn.Linear, rank: int, alpha: float) -> None:
        """Create both matrices."""
        super().__init__()
        self.factor = alpha / rank
        self.a = LinearMap(linear.in_features, rank, bias=False)
        self.b = LinearMap(rank, linear.out_features, bias=False)

    def initialize(self, generator: torch.Generator) -> None:
        """Draw A as the weights of `torch.nn.Linear`, and set B to zero: nothing is added yet."""
        bound = self.a.in_features**-0.5
        nn.init.uniform_(self.a.weight, -bound, bound, generator=generator)
        nn.init.zeros_(self.b.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Return what is added for x [..., I], in the shape [..., O]."""
        y: Tensor = self.b(self.a(x)) * self.factor
        return y


def draw_linear(generator: torch.Generator, *maps: nn.Linear) -> None:
    """Draw Xavier-uniform weights for each map, in their order; biases start at zero."""
    for linear in maps:
        nn.init.xavier_uniform_(linear.weight, generator=generator)
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)


Block = TypeVar("Block", bound=nn.Module)


def with_lora(block: Block, *maps: str, rank: int, alpha: float) -> Block:
    """Add low-rank matrices to linear maps of a block, and return it.

    Args:
        block: the block.
        *maps: names of its linear maps; "" is the block itself.
        rank: rank of the matrices.
        alpha: scale; their product is multiplied by alpha / rank.
    """
    for name in maps:
        linear: Any = block.get_submodule(name)
        linear.lora = Lora(linear, rank, alpha)
    return block


def linear(
    x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None, kernel: Product = "torch"
) -> Tensor:
    """Return x W^T + b for x [..., I], by the given kernel if it applies, else by torch's."""
    if suits_parts(x, weight_OI):
        half = torch.bfloat16
        operands = (x.to(half), weight_OI.to(half), None if bias_O is None else bias_O.to(half))
        in_parts: Tensor = _InParts.apply(_IN_PARTS, *operands)  # type: ignore[no-untyped-call]
        return in_parts
    if kernel == "torch" or not _serves(x, weight_OI):
        return F.linear(x, weight_OI, bias_O)
    y: Tensor = _Onednn.apply(_ONEDNN, x, weight_OI, bias_O)  # type: ignore[no-untyped-call]
    return y


class JoinableMap:
    """A linear map that can be one product with others of the same input."""

    def joined(self, x: Tensor, maps: tuple[Any, ...]) -> Sequence[Tensor]:
        """Apply maps of the same class to x [..., I], of which this is the first."""
        raise NotImplementedError


def linear_maps(x: Tensor, *maps: nn.Module) -> Sequence[Tensor]:
    """Apply linear maps to the same x [..., I], as one product where that is faster.

    That is in training in bfloat16 on the CPU: x is then cast once, and its gradient is one
    product that sums in float32.  In decoding, maps of a class of `JoinableMap` are joined
    too.  Maps with LoRA, or of another class, are applied one by one.

    Args:
        x: the input of all maps.
        *maps: the maps, which all have biases or none.

    Returns:
        The outputs of the maps; views of one tensor if they were computed together.
    """
    first = maps[0]
    if isinstance(first, JoinableMap) and all(type(layer) is type(first) for layer in maps):
        return first.joined(x, maps)
    together = _together(x, maps)
    if not together:
        return tuple(layer(x) for layer in maps)
    half = torch.bfloat16
    weight_OI = torch.cat([operand(layer, "weight").to(half) for layer in together])
    biases = [bias.to(half) for layer in together if (bias := operand(layer, "bias")) is not None]
    bias_O = torch.cat(biases) if biases else None
    y = linear(x, weight_OI, bias_O)
    parts: tuple[Tensor, ...] = torch.split(y, [layer.out_features for layer in together], -1)
    return parts


def _together(x: Tensor, maps: Sequence[nn.Module]) -> list[LinearMap]:
    """Return the maps if they are computed as one product, else nothing."""
    if not torch.is_grad_enabled():
        return []
    joinable = [
        layer
        for layer in maps
        if type(layer) is LinearMap and layer.lora is None and suits_parts(x, layer.weight)
    ]
    alike = len(joinable) == len(maps) and len({layer.bias is None for layer in joinable}) == 1
    return joinable if alike else []


def times_transposed(a_RI: Tensor, b_OI: Tensor, kernel: Product = "torch") -> Tensor:
    """Return a b^T for two matrices, by the given kernel; not differentiable."""
    if in_bfloat16(a_RI, b_OI):
        return times_in_parts(a_RI, b_OI)
    if kernel == "torch" or not _suits_onednn(a_RI, b_OI):
        return a_RI @ b_OI.t()
    return _onednn(a_RI, b_OI, None)


def transposed_times(a_RO: Tensor, b_RI: Tensor, kernel: Product = "torch") -> Tensor:
    """Return a^T b for two matrices, by the given kernel; not differentiable."""
    if in_bfloat16(a_RO, b_RI):
        return summed_in_parts(a_RO, b_RI)
    if kernel == "torch" or not _suits_onednn(a_RO, b_RI):
        return a_RO.t() @ b_RI
    return _onednn_summed(a_RO, b_RI)


def _suits_onednn(a: Tensor, b: Tensor) -> bool:
    """Return whether oneDNN's operator computes a product of two matrices."""
    return a.dtype == torch.float32 and a.device.type == "cpu" and bool(a.numel() and b.numel())


def _serves(x: Tensor, weight_OI: Tensor) -> bool:
    """Return whether the operands are plain float32 tensors on the CPU with many rows.

    Tensor subclasses (distributed, fake) and compiled graphs use torch's kernel.
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


def suits_parts(x: Tensor, weight_OI: Tensor) -> bool:
    """Return whether a linear map is computed by oneDNN in bfloat16 on many rows."""
    return in_bfloat16(x, weight_OI) and x.numel() >= FEWEST * x.size(-1)


class _Kernel(NamedTuple):
    """Functions for the three products of a linear map."""

    times: Callable[[Tensor, Tensor, Tensor | None], Tensor]
    """Compute a b^T + bias from a [R, I], b [O, I] and an optional bias."""
    summed: Callable[[Tensor, Tensor], Tensor]
    """Compute a^T b from a [R, O] and b [R, I]."""


_ONEDNN = _Kernel(_onednn, _onednn_summed)
_IN_PARTS = _Kernel(times_in_parts, summed_in_parts)


def _as_rows(x: Tensor) -> Tensor:
    """Reshape [..., I] to a contiguous [R, I]."""
    return x.reshape(-1, x.size(-1)).contiguous()


class _Linear(torch.autograd.Function):
    """Linear map whose three products, forward and backward, use a given kernel."""

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
        ctx: Any, grad_y: Tensor
    ) -> tuple[None, Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of x, W and b, and None for the kernel."""
        x, weight_OI = ctx.saved_tensors
        grad_y_RO = _as_rows(grad_y)
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[1]:
            grad_x = ctx.kernel.times(grad_y_RO, weight_OI.t(), None).view(x.shape)
        if ctx.needs_input_grad[2]:
            grad_weight = ctx.kernel.summed(grad_y_RO, _as_rows(x))
        if ctx.has_bias and ctx.needs_input_grad[3]:
            grad_bias = grad_y_RO.sum(0)
        return None, grad_x, grad_weight, grad_bias


class _Onednn(_Linear):
    """Linear map by oneDNN; a separate class, so that profiles show its name."""


class _InParts(_Linear):
    """Linear map computed in parts of rows."""
