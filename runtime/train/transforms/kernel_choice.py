"""Choice of the kernels of a run, from its settings or its checkpoint."""

from __future__ import annotations

from ...compile.autotune import Kernels, as_kept, choose_kernels
from ..context import State, TrainingContext
from .pass_settings import kernels_to_choose


def chosen_kernels(context: TrainingContext, state: State) -> Kernels:
    """Choose and log the kernels of a run; a resumed run reuses its earlier choice.

    Args:
        context: provides the device, the settings of the run and the listener.
        state: stores the choice.

    Raises:
        InputError: the run requests a kernel that is not available.
    """
    place = context.place
    requested = kernels_to_choose(context.run, place.precision)
    kernels = as_kept(state.kernels or {}) or choose_kernels(
        place.device,
        half=place.half,
        product_kernel=requested.product,
        attention_kernel=requested.attention,
        loss_kernel=requested.loss,
    )
    state.kernels = kernels.as_json()
    context.listener.log(str(kernels))
    return kernels
