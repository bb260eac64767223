"""The context of the training of an objective: its data, graph, losses and validation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.traverse import position_limits
from ....specs.composition.inherit import parent_of
from ....specs.findings import InputError, SpecError, nearest_shipped, pointer
from ....specs.form import UseNode, kind_of
from ....specs.held import SpecFile
from ....specs.load import FOLDERS
from ....specs.reader import read_file, shipped_names
from ...compile.roofline import full_speed, peak_flops
from ...data.columns.fitting import Fitting
from ...data.columns.objective import inputs_of, objective_graph
from ...data.preparing.preparation import Report
from ...data.preparing.prepare import Prepared, prepare
from ..context import Listener, TrainingContext
from ..device import Place
from ..distributed.world import World
from ..reporting.opening import counted, opener
from ..run import Run
from .class_axes import Axes, class_axes
from .losses import ObjectiveLosses
from .validation import validator

MEASURED_FROM = 1000
"""Minimum updates of a run for which the device's peak FLOP/s is measured."""
OBJECTIVES = "objectives"
"""Folder of `specs/` that contains the shipped objectives."""
CHECKPOINT = "checkpoint"
"""Key of a param of a run that holds the model of a checkpoint."""


def objective_file(run: Run, source: str) -> str:
    """Return the objective of a run: a shipped one, or a file in the run's folder.

    Raises:
        InputError: there is none of this name.
    """
    found = _named(run.objective, source, OBJECTIVES)
    if found is None:
        near = nearest_shipped(run.objective, known_objectives(run, source), OBJECTIVES)
        raise InputError(
            f"no objective '{run.objective}'",
            place=f"{source}#/objective",
            help=near if near.startswith("did") else f"name a file in the run's folder; {near}",
        )
    return str(found)


def known_objectives(run: Run, source: str) -> list[str]:
    """Return what a run could name as its objective: shipped ones, and files in its folder."""
    ending = ".json" if run.objective.endswith(".json") else ""
    beside = {path.stem for path in Path(source).parent.glob("*.json")} - {Path(source).stem}
    return [f"{name}{ending}" for name in beside] + list(shipped_names(OBJECTIVES))


def _named(name: str, source: str, *folders: str) -> Path | None:
    """Return the file of the spec or objective that a run names, in its folder or shipped.

    A run often has the name of its model, so another run in the folder does not hide a shipped
    file.

    Args:
        name: what the run names.
        source: file of the run.
        folders: folders of `specs/` with the shipped files.
    """
    found = parent_of(name, Path(source), *folders)
    shipped = shipped_names(*folders).get(name)
    if found is None or shipped is None or found == shipped:
        return found
    try:
        return shipped if kind_of(read_file(found)[0]) == "run" else found
    except (InputError, SpecError):  # told where the file is loaded
        return found


def opened_params(run: Run, source: str) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the params of a run with the specs of checkpoints, and these checkpoints by param.

    A param `{"checkpoint": FOLDER}` holds the model of a checkpoint with its weights, and
    `{"spec": NAME}` a spec in the folder of the run, or a shipped one.

    Args:
        run: the run.
        source: its file.

    Raises:
        InputError: a folder is not a checkpoint.
    """
    params, folders = dict(run.params), {}
    for name, value in run.params.items():
        if isinstance(value, dict) and isinstance(value.get("spec"), str):
            file = _named(value["spec"], source, *FOLDERS)
            if file is not None:
                params[name] = {**value, "spec": SpecFile(file)}
        if not isinstance(value, dict) or CHECKPOINT not in value:
            continue
        folder = Path(str(value[CHECKPOINT]))
        place = f"#{pointer('params', name, CHECKPOINT)}"
        if value.keys() != {CHECKPOINT}:
            raise InputError(
                "a param with 'checkpoint' has no other keys", place=place, help="remove them"
            )
        try:
            spec = json.loads((folder / "spec.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise InputError(
                f"'{folder}' is not a checkpoint: {error}",
                place=place,
                help="name a folder such as outputs/RUN/averaged",
            ) from error
        params[name], folders[name] = {"spec": spec}, folder
    return params, folders


def weights_of_nodes(graph: Graph, folders: Mapping[str, Path]) -> dict[str, Path]:
    """Return the checkpoint of each node whose param holds the model of one."""
    return {
        name: folders[node.use.removeprefix("=").strip()]
        for name, node in graph.spec.nodes.items()
        if isinstance(node, UseNode) and node.use.removeprefix("=").strip() in folders
    }


def prepared_data(
    run: Run,
    folder: Path,
    report: Report | None = None,
    *,
    workers: int | None = None,
    log: Callable[[str], None] | None = None,
) -> Prepared:
    """Prepare the tokenizers and tables of a run, or open them; see `prepare`."""
    return prepare(
        run.data, run.tokenizers, folder / "prepared", report=report, workers=workers, log=log
    )


def graph_of_prepared(
    run: Run, source: str, prepared: Prepared, blocks: Iterable[BlockType] = ()
) -> Graph:
    """Return the graph of a run's objective, with the sizes of its prepared columns.

    The batches of the prepared tables are padded to lengths that fit it.

    Raises:
        InputError: there is no such objective, or a checkpoint cannot be read.
        SpecError: the objective has mistakes, or a column does not fill one of its inputs.
    """
    params, _ = opened_params(run, source)
    graph = objective_graph(objective_file(run, source), params, prepared.columns, blocks)
    for table in (prepared.train, prepared.valid):
        table.fitting = Fitting.of(graph, inputs_of(prepared.columns))
    refuse_long_rows(graph, prepared)
    return graph


def refuse_long_rows(graph: Graph, prepared: Prepared) -> None:
    """Raise an error if a text is longer than a model has positions.

    Raises:
        InputError: a row is too long; the help names the setting that cuts it.
    """
    most = min(position_limits(graph), default=None)
    if most is None:
        return
    for name, column in prepared.columns.items():
        type_ = column.inputs.get(name)
        if type_ is None or type_.kind != "ids":
            continue
        for split, table in (("training", prepared.train), ("validation", prepared.valid)):
            longest = int(table.lengths[name].max(initial=0)) if name in table.lengths else 0
            longest = table.fitting.length(name, longest)
            if longest > most:
                raise InputError(
                    f"the longest {split} text of the column '{name}' has {longest} tokens, special"
                    f" tokens included, but '{graph.name}' has {most} positions",
                    place=f"#{pointer('data', 'columns', name, 'max_length')}",
                    help=f"set 'max_length' of the column to at most {most}, or give the model more"
                    " positions",
                )


def training_context(
    run: Run,
    source: str,
    folder: Path,
    place: Place,
    world: World,
    listener: Listener,
    report: Report | None = None,
    blocks: Iterable[BlockType] = (),
) -> TrainingContext:
    """Prepare the data of a run, and collect everything that its training needs.

    Raises:
        InputError: the data or a checkpoint is wrong.
        SpecError: the objective has mistakes.
    """
    listener.log(f"{place.device}, {place.precision}: {place.reason}")
    with world.main_process_first():
        prepared = prepared_data(run, folder, report, log=listener.log)
    graph = graph_of_prepared(run, source, prepared, blocks)
    _, folders = opened_params(run, source)
    if graph.segments is not None and world.size > 1:
        raise InputError(
            f"'{graph.name}' carries state between batches, so its training runs in one process",
            place="/parallel",
            help="start it without torchrun",
        )
    losses = ObjectiveLosses(graph, run.auxiliary)
    listener.log(f"{graph.name}: {graph.parameters():,} parameters")
    for split in ("train", "valid"):
        listener.log(counted(split, prepared.report[split], "rows"))
    return TrainingContext(
        run=run,
        graph=graph,
        losses=losses,
        corpus=prepared.train,
        folder=folder,
        place=place,
        tokenizers=prepared.files,
        validate=validator(run, graph, losses, prepared, place),
        data=prepared.digest,
        columns=prepared.columns,
        listener=listener,
        world=world,
        trackers=opener(run.trackers, run, run.name, folder, listener.log),
        freeze=run.freeze,
        train=run.train,
        weights=weights_of_nodes(graph, folders),
        class_axes=_class_axes(run, source, prepared, graph, blocks),
        full_speed=_full_speed(run, graph, prepared, place, world)
        if world.is_main_process
        else None,
    )


def _class_axes(
    run: Run, source: str, prepared: Prepared, graph: Graph, blocks: Iterable[BlockType]
) -> dict[str, Axes | None]:
    """Return the axes of classes; none for a run that does not start from a checkpoint."""
    if run.start is None:
        return {}
    params, _ = opened_params(run, source)
    return class_axes(objective_file(run, source), params, prepared.columns, graph, blocks)


def _full_speed(
    run: Run, graph: Graph, prepared: Prepared, place: Place, world: World
) -> float | None:
    """Return the speed at peak FLOP/s; None for short runs.

    Processes on CPUs are assumed to share one CPU, other processes to have a device each.
    """
    if run.updates < MEASURED_FROM:
        return None
    lengths = {name: float(each.mean()) for name, each in prepared.train.lengths.items()}
    best = peak_flops(place.device, place.dtype)
    devices = 1 if place.device.type == "cpu" else world.size
    return full_speed(graph, lengths, best * devices)
