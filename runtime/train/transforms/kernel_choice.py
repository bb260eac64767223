"""Choice of the kernels of a run, from its settings or its checkpoint."""

from __future__ import annotations

import torch

from ...compile.autotune import Kernels, as_kept, choose_kernels
from ..context import State, TrainingContext


def chosen_kernels(context: TrainingContext, state: State) -> Kernels:
    """Choose and log the kernels of a run; a resumed run reuses its earlier choice.

    Args:
        context: provides the device, the settings of the run and the listener.
        state: stores the choice.

    Raises:
        InputError: the run requests a kernel that is not available.
    """
    place, requested = context.place, context.run.kernels
    product, attention = requested.product, requested.attention
    if context.run.deterministic:  # a measurement may differ between machines
        product = "torch" if product == "auto" else product
        attention = "fused" if attention == "auto" else attention
    elif place.dtype == torch.float16 and attention == "auto":  # measured in other precisions
        attention = "fused"
    kernels = as_kept(state.kernels or {}) or choose_kernels(
        place.device,
        half=place.half,
        product_kernel=product,
        attention_kernel=attention,
        loss_kernel=requested.loss,
    )
    state.kernels = kernels.as_json()
    context.listener.log(str(kernels))
    return kernels
