"""Train a run and open a checkpoint: shared by the public API and the commands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..graphs.ir.block_type import BlockType
from ..graphs.ir.graph import Graph
from ..specs.findings import InputError
from .compile.roofline import full_speed, peak_flops
from .data.prepare import Prepared, prepare
from .data.preparing.preparation import Report as PrepareReport
from .data.symbols import SYMBOLS, Symbols
from .model.model import Adapted, Model
from .model.opening import ensemble, open_model
from .profiling.report import write
from .profiling.summary import Profile
from .spec.check import graph_of, listed, with_blocks
from .system.lock import locked
from .tasks import translation
from .tasks.registry import make_task, reading_of, sizes_of, tokenizer_of
from .train.check_run import refuse_long_pairs, refuse_wrong_run
from .train.context import Listener, Result, TrainingContext
from .train.device import Place, choose
from .train.distributed.world import World, launched, resumes_by_itself, world
from .train.objective.context import graph_of_prepared, objective_context, prepare_objective
from .train.objective.settings import ObjectiveRun
from .train.reporting.opening import counted, opener
from .train.reporting.trackers.tensorboard import TensorBoard
from .train.resuming.retention import checkpoints
from .train.run import Run, load_run, spec_of
from .train.run_base import BaseRun

MEASURED_FROM = 1000
"""Minimum updates of a run for which the device's peak FLOP/s is measured."""

__all__ = [
    "Adapted",
    "Model",
    "Silent",
    "ensemble",
    "graph_for",
    "open_model",
    "prepare_and_report",
    "prepare_run",
    "profile",
    "tokenizer_files",
    "train",
]


def tokenizer_files(prepared: Prepared) -> dict[str, bytes]:
    """Return the tokenizers of prepared data as files of a checkpoint."""
    source, target = prepared.source_tokenizer, prepared.target_tokenizer
    if source is target:
        return {"tokenizer.model": source.bytes}
    name = SYMBOLS if isinstance(target, Symbols) else "target.model"
    return {"source.model": source.bytes, name: target.bytes}


def prepare_run(
    run: Run,
    folder: Path,
    report: PrepareReport | None = None,
    *,
    workers: int | None = None,
    log: Callable[[str], None] | None = None,
) -> Prepared:
    """Prepare the tokenizer and the binary corpus of a run, or open them; see `prepare`."""
    made = folder / "prepared"
    return prepare(
        run.data,
        tokenizer_of(run),
        made,
        reading=reading_of(run),
        report=report,
        workers=workers,
        log=log,
    )


def prepare_and_report(
    run: Run | ObjectiveRun,
    source: str,
    folder: Path,
    report: PrepareReport | None = None,
    *,
    workers: int | None = None,
    log: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Prepare the data of a run, check that its spec fits, and return the report.

    Raises:
        InputError: the data is invalid, or does not fit the spec.
        SpecError: the spec has mistakes.
    """
    if isinstance(run, ObjectiveRun):
        tables = prepare_objective(run, folder, report, workers=workers, log=log)
        graph_of_prepared(run, source, tables)
        return tables.report
    made = prepare_run(run, folder, report, workers=workers, log=log)
    graph_for(run, source, made)
    return made.report


def graph_for(run: Run, source: str, prepared: Prepared, blocks: Iterable[BlockType] = ()) -> Graph:
    """Return the graph of a run's spec, with the vocabulary sizes of its tokenizers."""
    loaded = with_blocks(spec_of(run, source), blocks)
    tokenizers = prepared.source_tokenizer, prepared.target_tokenizer
    sizes = sizes_of(run.model_dump(mode="json"), *tokenizers)
    params = translation.vocabulary_params(run.params, sizes, loaded.form.params)
    graph = graph_of(replace(loaded, overrides=params))
    make_task(run, prepared, graph).check(graph)
    return graph


def train(
    run: Run | ObjectiveRun | str | Path,
    *,
    out: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
    listener: Listener | None = None,
    report: PrepareReport | None = None,
    blocks: Iterable[BlockType] = (),
) -> Result:
    """Train a run, from its data to its averaged checkpoint.

    Args:
        run: a run, a path, or a shipped name such as `multi30k-en-de`.
        out: folder of the run; default: `outputs/NAME`.
        overrides: dotted path to value, such as `{"data.root": "corpora/multi30k"}`.
        resume: whether to resume from the newest checkpoint in the folder.
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
    # A slow import that is not needed for using a model.
    from .train.resuming.restore import refuse_taken  # noqa: PLC0415
    from .train.trainer import Trainer  # noqa: PLC0415

    settings: Run | ObjectiveRun
    if isinstance(run, BaseRun):
        settings, source = run, run.name
    else:
        settings, source = load_run(run, overrides)
    blocks = listed(blocks)
    folder = Path(out) if out is not None else Path("outputs") / settings.name
    shortened = "updates" in (overrides or {})
    refuse_wrong_run(settings, source, blocks, shortened=shortened, folder=folder)
    if not launched():  # torchrun may resume by itself, which is known only to its processes
        refuse_taken(folder, resume=resume)
    place = choose(settings)
    with world(place.device, settings.parallel) as here, _alone(folder, here):
        place = replace(place, device=here.device)
        begun = bool(checkpoints(folder))
        by_itself = resumes_by_itself(folder, here, refused=begun != resume)
        if not by_itself:
            refuse_taken(folder, resume=resume)
        context = _training_context(
            settings,
            source,
            folder,
            place,
            here,
            (listener or Silent()) if here.is_main_process else Silent(),
            report if here.is_main_process else None,
            blocks,
        )
        return Trainer(context, resume=resume or (by_itself and begun)).train()


def _alone(folder: Path, here: World) -> AbstractContextManager[None]:
    """Return a lock of the run's folder, which the main process holds for all processes."""
    return locked(folder) if here.is_main_process else nullcontext()


def profile(
    run: Run | ObjectiveRun | str | Path,
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
    settings: Run | ObjectiveRun
    if isinstance(run, BaseRun):
        settings, source = run, run.name
    else:
        settings, source = load_run(run, overrides)
    folder = Path(out) if out is not None else Path("outputs") / settings.name
    from .train.profile import profile_run  # noqa: PLC0415 - as for `train`

    if updates < 1:
        raise InputError(f"cannot profile {updates} updates", help="set 1 or more")
    place = choose(settings)
    context = _training_context(
        settings, source, folder, place, World(), listener or Silent(), report
    )
    folder = folder / "profile"
    folder.mkdir(parents=True, exist_ok=True)
    trace = folder / "trace.json.gz"
    found = profile_run(context, updates, trace)
    title = f"{settings.name}: one update on {place.device}"
    return found, [*write(found, folder, title), trace]


def _training_context(
    settings: Run | ObjectiveRun,
    source: str,
    folder: Path,
    place: Place,
    here: World,
    listener: Listener,
    report: PrepareReport | None,
    blocks: Iterable[BlockType] = (),
) -> TrainingContext:
    """Prepare the data of a run, and collect everything that its training needs."""
    listener.log(f"{place.device}, {'bfloat16' if place.half else 'float32'}: {place.reason}")
    if isinstance(settings, ObjectiveRun):
        return objective_context(settings, source, folder, place, here, listener, report, blocks)
    with here.main_process_first():
        prepared = prepare_run(settings, folder, report, log=listener.log)
    graph = graph_for(settings, source, prepared, blocks)
    refuse_long_pairs(graph, (prepared.train, prepared.valid))
    task = make_task(settings, prepared, graph)
    listener.log(f"{graph.name}: {graph.parameters():,} parameters")
    for split in ("train", "valid"):
        listener.log(counted(split, prepared.report[split], "pairs"))
    return TrainingContext(
        run=settings,
        graph=graph,
        task=task,
        corpus=prepared.train,
        folder=folder,
        place=place,
        tokenizers=tokenizer_files(prepared),
        pad=prepared.source_tokenizer.pad,
        eos=prepared.source_tokenizer.eos,
        validate=task.validator(prepared, settings, place),
        data=prepared.digest,
        listener=listener,
        world=here,
        full_speed=_full_speed(settings, graph, prepared, place, here)
        if here.is_main_process
        else None,
        trackers=opener((TensorBoard(),), settings, folder, listener.log),
    )


def _full_speed(
    settings: Run, graph: Graph, prepared: Prepared, place: Place, here: World
) -> float | None:
    """Return the speed at peak FLOP/s; None for short runs.

    Processes on CPUs are assumed to share one CPU, other processes to have a device each.
    """
    if settings.updates < MEASURED_FROM:
        return None
    tokens = prepared.train.header["tokens"]
    means = [tokens[side] / max(1, len(prepared.train)) + 1 for side in ("source", "target")]
    best = peak_flops(place.device, torch.bfloat16 if place.half else torch.float32)
    devices = 1 if place.device.type == "cpu" else here.size
    return full_speed(graph, means[0], means[1], best * devices)


class Silent:
    """A listener that ignores all calls."""

    def log(self, text: str) -> None:
        """Ignore a log line."""

    def progress(self, progress: Any) -> None:
        """Ignore progress."""

    def validated(self, update: int, values: Mapping[str, Any]) -> None:
        """Ignore a validation."""
