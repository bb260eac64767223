"""Kernels of a model: those of its matrix products and of its attention.

Generated code calls `use_kernels` where the graph names kernels; modules of other models keep
theirs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from .attention_backends import Cores
from .linear import Product, has_onednn


def use_kernels(model: nn.Module, *, product: Product, attention: Cores) -> None:
    """Set the kernels of all modules of a model that multiply matrices or attend.

    Args:
        model: the model; its modules have `product_kernel` or `cores` as attributes of a class.
        product: kernel of products in float32 on the CPU.
        attention: attention backends by length.

    Raises:
        ValueError: this version of torch does not have the kernel.
    """
    if product != "torch" and not has_onednn():
        msg = f"this torch has no kernel '{product}' for matrix products"
        raise ValueError(msg)
    modules: Iterable[Any] = model.modules()
    for module in modules:
        if hasattr(type(module), "product_kernel"):
            module.product_kernel = product
        if hasattr(type(module), "cores"):
            module.cores = attention
