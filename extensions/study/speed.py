"""How fast runs train, for estimates: measured on finished runs, or assumed from the peak."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ...plugin import InputError
from .jobs import TRAINED, Trained, costs_of_jobs, jobs_of, open_plan, read_json
from .planning.base import Run

MFU = 0.3
"""Share of the peak FLOP/s that a run is assumed to reach before any run has finished."""


def flops_per_second(out: Path, speed: float | None = None) -> Callable[[Run], float]:
    """Return the FLOP/s with which a run trains.

    Args:
        out: folder of the study; the runs that are finished there tell the speed.
        speed: a speed to use instead.
    """
    fixed = speed or _of_finished(out)
    if fixed is not None:
        return lambda _: fixed
    return _of_peak


def _of_finished(out: Path) -> float | None:
    """Return the mean speed of the finished runs; None if there are none."""
    try:
        record = open_plan(out)
    except InputError:
        return None
    works = {
        key: costs["training_flops"] / costs["updates"]
        for key, costs in costs_of_jobs(record).items()
    }
    flops = seconds = 0.0
    for job in {job.key: job for job in jobs_of(record, out)}.values():
        if (job.folder / TRAINED).is_file():
            trained = read_json(job.folder / TRAINED, Trained)
            flops += works[job.key] * trained["update"]
            seconds += trained["seconds"]
    return flops / seconds if seconds else None


def _of_peak(run: Run) -> float:
    """Return a share of the measured peak FLOP/s of the device."""
    from ...plugin import settings_of_process  # noqa: PLC0415
    from ...runtime.compile.roofline import peak_flops  # noqa: PLC0415
    from ...runtime.train.device import choose  # noqa: PLC0415

    placement = choose(run)
    with settings_of_process(run, placement):
        return MFU * peak_flops(placement.device, placement.dtype)
