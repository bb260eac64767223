"""Kernels of a model: those of its matrix products, its attention and its losses.

Generated code calls `use_kernels` where the graph names kernels; modules of other models keep
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from .attention_backends import BY_RULE, Cores
from .linear import Product, has_onednn
from .losses.fused_linear_cross_entropy import LossKernel, has_triton


def use_kernels(
    model: nn.Module,
    *,
    product: Product = "torch",
    attention: Cores = BY_RULE,
    loss: LossKernel = "torch",
) -> None:
    """Set the kernels of all modules of a model that multiply matrices, attend or are losses.

    Args:
        model: the model; its modules have `product_kernel`, `cores` or `loss_kernel` as
            attributes of a class.
        product: kernel of products in float32 on the CPU.
        attention: attention backends by length; by default, a rule chooses them.
        loss: kernel of the softmax of losses that compute a linear map.

    Raises:
        ValueError: this installation does not have the kernel.
    """
    if loss == "triton" and not has_triton():
        msg = "the kernel 'triton' for losses needs the package triton, which is not installed"
        raise ValueError(msg)
    if product != "torch" and not has_onednn():
        msg = f"this torch has no kernel '{product}' for matrix products"
        raise ValueError(msg)
    modules: Iterable[Any] = model.modules()
    for module in modules:
        if hasattr(type(module), "product_kernel"):
            module.product_kernel = product
        if hasattr(type(module), "cores"):
            module.cores = attention
        if hasattr(type(module), "loss_kernel"):
            module.loss_kernel = loss
