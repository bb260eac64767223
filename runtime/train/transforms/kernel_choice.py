"""Kernels of a run: as it says, or as it did before it was resumed."""

from __future__ import annotations

from ...compile.autotune import Kernels, as_kept, choose_kernels
from ..context import State, TrainingContext


def chosen_kernels(context: TrainingContext, state: State) -> Kernels:
    """Return the kernels of a run, and say which; a resumed run goes on with those it had.

    Args:
        context: gives the place, the run's wishes, and who hears.
        state: remembers the choice.

    Raises:
        InputError: the run asks for a kernel that is not there.
    """
    place, requested = context.place, context.run.kernels
    kernels = as_kept(state.kernels or {}) or choose_kernels(
        place.device,
        half=place.half,
        product_kernel=requested.product,
        attention_kernel=requested.attention,
    )
    state.kernels = kernels.as_json()
    context.listener.log(str(kernels))
    return kernels
