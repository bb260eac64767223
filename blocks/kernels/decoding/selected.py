"""Some of the outputs of a linear map, for decoding with a shortlist.

The output projection is the largest product of a decoding step.  Where a batch needs few of its
outputs, their rows of the matrix are selected once, when decoding begins; generated code then calls
the smaller map at each step.  It computes as the other one does: prepacked, in int8, or plainly.

Axes: C selected outputs.

Source: Jean et al. 2015, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..linear import linear
from .prepacked import InferenceLinear


def select_outputs(module: nn.Module, ids_C: Tensor | None) -> Callable[[Tensor], Tensor]:
    """Return the map from the input of a linear map to some of its outputs.

    Weights that change afterwards have no effect on it.

    Args:
        module: a plain linear map (`is_plain`), or one for inference.
        ids_C: the outputs; None for all, and the map is then the module itself.
    """
    if ids_C is None:
        return module
    projection: Any = module
    weight_CI = projection.weight.detach().index_select(0, ids_C)
    bias_C = None if projection.bias is None else projection.bias.detach().index_select(0, ids_C)
    if isinstance(module, InferenceLinear):
        smaller = type(module)(module.in_features, len(ids_C), module.dtype)
        smaller.weight = nn.Parameter(weight_CI, requires_grad=False)
        smaller.bias = None if bias_C is None else nn.Parameter(bias_C, requires_grad=False)
        return smaller
    kind = ids_C.device.type
    if torch.is_autocast_enabled(kind):  # cast once, not in every product
        weight_CI = weight_CI.to(torch.get_autocast_dtype(kind))
    return partial(linear, weight_OI=weight_CI, bias_O=bias_C, kernel=projection.product_kernel)
