"""The text of the kernels that were chosen for a module."""

from __future__ import annotations

from typing import Any

import pytest
from weft.graphs.ir.execution import KernelChoice

CASES: dict[str, dict[str, Any]] = {
    "products by torch, attention plain to 32, fused beyond": {
        "product": "torch",
        "attention": {"32": "plain", "*": "fused"},
    },
    "products by packed, attention plain, varlen without padding, losses by triton": {
        "product": "packed",
        "attention": {"32": "plain", "*": "plain", "unpadded": "varlen"},
        "loss": "triton",
    },
    "products and attention measured when training begins": {"product": None, "attention": None},
}


@pytest.mark.parametrize("text", CASES)
def test_kernels_are_told_in_one_line(text: str) -> None:
    """One backend for all lengths is named once; what is not chosen yet is measured."""
    assert str(KernelChoice(**CASES[text])) == text
