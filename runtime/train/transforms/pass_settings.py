"""Settings of the passes over the graph of a run; see `graphs/passes/pipeline.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....graphs.ir.execution import KernelChoice, Precision
from ....graphs.passes.pipeline import Settings

if TYPE_CHECKING:
    from ..run import KernelSettings, Run


def settings_of_run(
    run: Run,
    *,
    unpad: bool,
    kernels: KernelChoice | None = None,
    processes: int = 1,
    precision: Precision | None = None,
) -> Settings:
    """Return the settings of the passes of a run.

    Args:
        run: the run.
        unpad: whether to unpad, which depends on the data of a run whose `padding` is `auto`.
        kernels: the kernels that a measurement chose; None for those that the run names.
        processes: number of processes that train.
        precision: dtype of products on the device of the run; None for that of its settings,
            float32 if these leave it to the device.
    """
    wanted = run.activation_checkpointing
    requested: Precision = "float32" if run.precision == "auto" else run.precision
    used = requested if precision is None else precision
    return Settings(
        unpad=unpad,
        strict=run.padding == "unpadded",
        activation_checkpointing=(wanted,) if isinstance(wanted, str) else tuple(wanted),
        kernels=_named(run, used) if kernels is None else kernels,
        processes=processes,
        data=run.parallel.data,
        tensor=run.parallel.tensor,
        precision=used,
        without=run.without,
    )


def kernels_to_choose(run: Run, precision: Precision) -> KernelSettings:
    """Return the kernel settings of a run; `auto` is left only where a measurement decides.

    Args:
        run: the run.
        precision: dtype of products.
    """
    settings, known = run.kernels, {}
    if settings.product == "auto" and run.deterministic:  # a measurement may differ in each run
        known["product"] = "torch"
    if settings.attention == "auto" and (run.deterministic or precision == "float16"):
        known["attention"] = "fused"  # float16 is not measured
    return settings.model_copy(update=known)


def _named(run: Run, precision: Precision) -> KernelChoice:
    """Return the kernels that a run has without a measurement; None for those that need one."""
    settings = kernels_to_choose(run, precision)
    product, attention, loss = (
        None if name == "auto" else name
        for name in (settings.product, settings.attention, settings.loss)
    )
    return KernelChoice(product, None if attention is None else {"*": attention}, loss)
