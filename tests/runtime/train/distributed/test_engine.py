"""The dtypes of FSDP follow from the pass `casts`."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.graphs.ir.execution import WeightCasts
from weft.runtime.train.engine import mixed_precision


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_weights_are_gathered_in_the_dtype_of_products_and_gradients_summed_in_float32(
    name: Any,
) -> None:
    """Inputs of layers keep their dtype, so the residual stream stays float32."""
    policy = mixed_precision(WeightCasts(name, "fsdp"))

    assert policy.param_dtype == getattr(torch, name)
    assert policy.reduce_dtype == torch.float32
    assert not policy.cast_forward_inputs


def test_in_float32_nothing_is_cast() -> None:
    """The dtypes of weights and gradients are left as they are."""
    policy = mixed_precision(None)

    assert (policy.param_dtype, policy.reduce_dtype, policy.output_dtype) == (None, None, None)
