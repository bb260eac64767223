"""Train a run and open a checkpoint: shared by the public API and the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ..graphs.ir.block_type import BlockType
from ..specs.findings import InputError
from .analysis.profile_summary import Profile, write
from .data.preparation import Report as PrepareReport
from .data.prepare import Prepared
from .model.model import Adapted, Model
from .model.opening import ensemble, open_model
from .spec.check import listed
from .system.executors.executor import On
from .system.executors.units import Watch
from .system.lock import locked
from .train.context import Listener, Result, prepared_data, training_context, with_prepared
from .train.device import choose, settings_of_process
from .train.distributed.failures import reported_once
from .train.distributed.launch import all_processes
from .train.distributed.world import World, launched, restarted, share_folder, world
from .train.plan import RunPlan, plan_named
from .train.run import Run

__all__ = [
    "Adapted",
    "Model",
    "Silent",
    "ensemble",
    "open_model",
    "prepare_run",
    "profile",
    "train",
]


def prepare_run(
    plan: RunPlan,
    folder: Path,
    report: PrepareReport | None = None,
    *,
    processes: int | None = None,
    on: On = "local",
    log: Callable[[str], None] | None = None,
    to: str | None = None,
    watch: Watch | None = None,
) -> Prepared:
    """Prepare the tokenizers and tables of a run, or open them, and check that they fit.

    Args:
        plan: the plan of the run.
        folder: folder of the run; the data goes to its subfolder `prepared`.
        report: called with the progress.
        processes: shards that are tokenized at the same time; default: one for each core, and on a
            cluster as many as it takes.
        on: where: `local`, `ray`, `dask:ADDRESS`, `slurm`, or settings.
        log: called with single lines of text.
        to: place to which the prepared data is uploaded: a folder, or an address such as
            `s3://bucket/wmt`.
        watch: called with the state of each shard, if other processes make them.

    Raises:
        InputError: the data is invalid, a place cannot be reached, or the data does not fit
            the objective.
        SpecError: the run or its objective has mistakes.
    """
    run, objective = plan.required()
    prepared = prepared_data(
        run, folder, report, processes=processes, on=on, log=log, to=to, watch=watch
    )
    with_prepared(objective, prepared)
    return prepared


def train(
    run: Run | str | Path,
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool | Literal["auto"] = False,
    listener: Listener | None = None,
    report: PrepareReport | None = None,
    blocks: Iterable[BlockType] = (),
) -> Result:
    """Train a run, from its data to its averaged checkpoint.

    Args:
        run: a run, a path, or a shipped name such as `multi30k-en-de`.
        out: folder of the run; default: `outputs/NAME`.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        resume: whether to continue from the newest checkpoint in the folder; `auto` continues if
            there is one, and begins otherwise, but refuses the folder of another run.
        listener: called with log lines, progress and validations.
        report: called with the progress of data preparation.
        blocks: block types that the run's spec may use besides the installed ones; pass them
            again to `open` and to a resumed `train`, because a checkpoint never names code.

    Returns:
        The outcome, and the paths of the checkpoints.

    Raises:
        InputError: the data, the folder, a checkpoint or a block is invalid.
        SpecError: the run or its spec has errors.
    """
    # Slow imports that are not needed for using a model.
    from .analysis.attention_pictures import pictures_of  # noqa: PLC0415
    from .train.restore import continues  # noqa: PLC0415
    from .train.trainer import Trainer  # noqa: PLC0415

    chosen, types = Path(out) if out is not None else None, listed(blocks)
    with reported_once():
        plan = plan_named(run, overrides, types, folder=chosen)
        settings, _ = plan.required()
        placement = choose(settings)
    folder = chosen or Path("outputs") / settings.name
    if not launched():  # of several processes, the main one decides
        continues(folder, settings, resume)
    with (
        all_processes(
            {"format": 1, **settings.model_dump(mode="json", by_alias=True, exclude_unset=True)},
            settings.parallel.processes or 1,
            folder,
            threads=settings.threads,
            blocks=bool(types),
        ),
        reported_once(),
        settings_of_process(settings, placement),
        world(placement.device, settings.parallel) as process,
        _alone(folder, process),
    ):
        placement = replace(placement, device=process.device)
        for warning in plan.warnings if process.is_main_process else ():
            (listener or Silent()).log(f"warning: {warning.problem}")
        goes_on = process.on_main(
            lambda: continues(folder, settings, resume, again=restarted(folder))
        )
        share_folder(folder, process)
        context = training_context(
            plan,
            folder,
            placement,
            process,
            (listener or Silent()) if process.is_main_process else Silent(),
            report if process.is_main_process else None,
        )
        most = settings.evaluate.pictures
        draw = pictures_of(context.graph, context.columns, folder / "pictures", most)
        context = replace(context, pictures=draw)
        return Trainer(context, resume=goes_on).train()


def _alone(folder: Path, process: World) -> AbstractContextManager[None]:
    """Return a lock of the run's folder, which the main process holds for all processes."""
    return locked(folder) if process.is_main_process else nullcontext()


def profile(
    run: Run | str | Path,
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    updates: int = 5,
    listener: Listener | None = None,
    report: PrepareReport | None = None,
) -> tuple[Profile, list[Path]]:
    """Run some updates under torch's profiler, and return where their time is spent.

    This does not begin the run: no weights are saved.

    Args:
        run: as for `train`.
        out: folder of the run; the profile is written to its subfolder `profile`.
        overrides: as for `train`.
        updates: number of recorded updates, after a few warm-up updates.
        listener: as for `train`.
        report: as for `train`.

    Returns:
        The profile, and the files that it was written to.

    Raises:
        InputError: the data or the folder is invalid, or `updates` is less than 1.
        SpecError: the run or its spec has errors.
    """
    from .train.profile import profile_run  # noqa: PLC0415 - as for `train`

    if updates < 1:
        raise InputError(f"cannot profile {updates} updates", help="set 1 or more")
    chosen = Path(out) if out is not None else None
    plan = plan_named(run, overrides, folder=chosen)
    settings, _ = plan.required()
    folder = chosen or Path("outputs") / settings.name
    placement = choose(settings)
    trace = folder / "profile" / "trace.json.gz"
    with settings_of_process(settings, placement):
        context = training_context(plan, folder, placement, World(), listener or Silent(), report)
        folder = trace.parent
        folder.mkdir(parents=True, exist_ok=True)
        run_profile = profile_run(context, updates, trace)
    title = f"{settings.name}: one update on {placement.device}"
    return run_profile, [*write(run_profile, folder, title), trace]


class Silent:
    """A listener that ignores all calls."""

    def log(self, text: str) -> None:
        """Ignore a log line."""

    def progress(self, progress: Any) -> None:
        """Ignore progress."""

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Ignore a validation."""
