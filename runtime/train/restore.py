"""The beginning of a training: a new model, the newest sound checkpoint, or other weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from torch import nn

from ...specs.findings import InputError
from ...specs.regular_files import DamagedError
from ..checkpoint.checkpoint import Checkpoint, open_checkpoint, refuse_other_graph, set_weights
from ..checkpoint.state import RunState
from ..checkpoint.tokenizers import classes_by_column
from ..data.columns.labels import LabelColumn
from ..system.folders import recover
from ..system.strangers import object_in
from .context import TrainingContext
from .retention import checkpoints, differs, remove_leftovers, thin
from .run import Run

Resume = bool | Literal["auto"]
SAME = ("parallel", "activation_checkpointing")
"""Settings that change how a run is computed but not its results."""
DAMAGED = ".damaged"
"""Added to the name of a damaged checkpoint, which is kept but never used again."""


def continues(folder: Path, run: Run, resume: Resume, *, again: bool = False) -> bool:
    """Return whether a training continues a run in a folder, rather than begin one.

    Call it before anything is written.

    Args:
        folder: folder of the run.
        run: the run.
        resume: as of `weft.train`.
        again: whether torchrun has restarted a training that fitted the folder when it began.

    Raises:
        InputError: the folder and `resume` do not fit, or with `auto`, the folder belongs to
            another run.
    """
    begun = checkpoints(folder)
    if begun and not (resume or again):
        raise InputError(
            "the folder already holds a run",
            location=str(folder),
            help="continue it with --resume, or give another folder with --out",
        )
    if not begun and resume is True and not again:
        raise InputError(
            "there is nothing to resume: the folder holds no checkpoint",
            location=str(folder),
            help="leave out --resume to start the run, or give its folder with --out",
        )
    done = max((int(path.name) for path in begun), default=0)
    if done > run.updates:
        raise InputError(
            f"the run ends at update {run.updates}, but its newest checkpoint is of update {done}",
            location=str(folder),
            help=f"set 'updates' to more than {done}, or give another folder with --out",
        )
    if resume == "auto" and not again:
        _refuse_another(folder, run)
    return bool(begun)


def _refuse_another(folder: Path, run: Run) -> None:
    """Refuse what only a person can decide: a folder of another run, or with damaged checkpoints.

    Raises:
        InputError: the folder does not belong to the run, or its checkpoints are damaged.
    """
    begun = checkpoints(folder)
    if not begun:
        for path in folder.glob(f"checkpoints/[0-9]*{DAMAGED}"):
            raise InputError(
                "the folder holds a run whose checkpoints are damaged",
                location=str(path),
                help="restore them, or give another folder with --out",
            )
        return
    try:
        before = object_in(begun[-1], "run.json")
    except InputError:  # damaged: the checkpoint before it may be sound
        return
    now = run.model_dump(mode="json", by_alias=True)
    if changed := _changed(now, before):
        raise InputError(
            f"the folder belongs to another run: it has another {', '.join(changed)}",
            location=str(folder),
            help="give another folder with --out; --resume without 'auto' continues the run with"
            " other settings",
        )


def _changed(now: Mapping[str, Any], before: Mapping[str, Any]) -> list[str]:
    """Return the settings that differ from those of a checkpoint, and may change the results."""
    different = [key for key, value in now.items() if differs({key: value}, before)]
    return [f"'{key}'" for key in different if key not in SAME]


def newest(context: TrainingContext, *, resume: bool) -> Checkpoint | None:
    """Return the newest sound checkpoint of a run that is resumed; None at the start of a run.

    Raises:
        InputError: no checkpoint can be opened.
    """
    world, folder, checkpoint = context.world, context.folder, None
    with world.main_process_first():
        if world.is_main_process:
            for name in ("best", "averaged"):
                recover(folder / name)
            remove_leftovers(folder)
            if resume:
                checkpoint = _newest_sound(context)
                # A kill after the last save may have come before the older ones were deleted.
                thin(folder, context.run.checkpoint)
    chosen = world.broadcast(str(checkpoint.folder) if checkpoint is not None else "")
    if chosen and checkpoint is None:  # another process has verified it
        checkpoint = open_checkpoint(chosen, context.graph.blocks, verify=False)
    return checkpoint


def state_in(checkpoint: Checkpoint | None) -> RunState:
    """Return the state of a run at a checkpoint; that of a new run without one."""
    return RunState.model_validate({} if checkpoint is None else checkpoint.state)


def restore(
    model: nn.Module, context: TrainingContext, checkpoint: Checkpoint | None
) -> Path | None:
    """Give a model the weights of a checkpoint of its run, or of `start` of the run.

    Args:
        model: a new model of the context's graph.
        context: context of the training.
        checkpoint: the checkpoint that the run continues from, if any.

    Returns:
        The folder of the checkpoint that the run continues from.

    Raises:
        InputError: a checkpoint cannot be opened, or belongs to another run.
    """
    if checkpoint is not None:
        _resumed(model, context, checkpoint)
        return checkpoint.folder
    for node, path in context.weights.items():
        _filled(model, context, node, path)
    if context.start is not None:
        context.start.fill(model, context.listener.log)
    return None


def _newest_sound(context: TrainingContext) -> Checkpoint:
    """Return the newest checkpoint that is sound; rename damaged ones.

    Raises:
        DamagedError: none is sound.
        InputError: a sound checkpoint cannot be opened for another reason.
    """
    problems: list[str] = []
    for path in reversed(checkpoints(context.folder)):
        try:
            checkpoint = open_checkpoint(path, context.graph.blocks)
            if not checkpoint.can_resume:
                problems.append(f"{path}: the checkpoint has no optimizer state")
                continue
            checkpoint.verify_optimizer()
        except DamagedError as error:
            problems.append(f"{error.location}: {error.problem}")
            path.rename(path.with_name(path.name + DAMAGED))
            context.listener.log(f"warning: {problems[-1]}; trying the checkpoint before it")
            continue
        return checkpoint
    raise DamagedError(
        "no checkpoint of the run can be resumed"
        + "".join(f"\n      {problem}" for problem in problems),
        location=str(context.folder / "checkpoints"),
        help="start a new run with --out; set 'start' in it to reuse weights of this one",
    )


def _resumed(model: nn.Module, context: TrainingContext, checkpoint: Checkpoint) -> None:
    """Restore the weights of a checkpoint, if its run is that of the context."""
    graph, listener, folder = context.graph, context.listener, checkpoint.folder
    refuse_other_tokenizers(
        checkpoint,
        context,
        problem="the run was started with another tokenizer",
        help_="restore the data of the first run, or start a new run with --out",
    )
    refuse_other_graph(
        checkpoint.graph,
        graph,
        problem="the run was started with another graph",
        location=str(folder),
        help_="restore its spec and params, or start a new run with --out; set 'start' in"
        " the new run to reuse the weights that fit",
    )
    now = context.run.model_dump(mode="json", by_alias=True)
    before, after = _updaters(checkpoint.run), _updaters(now)
    if before != after:
        raise InputError(
            f"the run was started with {' and '.join(before)}, but now has"
            f" {' and '.join(after)}; these cannot use the state of those",
            location="/optimizer/groups" if before[:1] == after[:1] else "/optimizer/type",
            help="restore 'optimizer', or start a new run with --out; set 'start' in the new run to"
            " reuse the weights",
        )
    if changed := _changed(now, checkpoint.run):
        listener.log(f"warning: settings differ from the start of the run: {', '.join(changed)}")
    set_weights(model, checkpoint.weights, graph, str(folder))
    context.losses.carry(checkpoint.memory(), context.placement.device)
    state = state_in(checkpoint)
    if state.data and state.data != context.data:
        listener.log(
            "warning: the training data differ from those that the run has seen; a resumed run "
            "equals an undisturbed one only with the same data"
        )
    listener.log(f"resuming after update {state.update} from {folder}")


def _updaters(run: Mapping[str, Any]) -> list[str]:
    """Return which optimizers of a run, as written, keep state for which weights."""
    optimizer = run.get("optimizer", {})
    kind = optimizer.get("type", "adam")
    others = [
        f"'{group.get('type') or kind}' for '{group['select']}'"
        + "".join(f" except '{text}'" for text in group.get("except", ()))
        for group in optimizer.get("groups", ())
        if (group.get("type") or kind) != kind
    ]
    return [f"the optimizer '{kind}'", *others]


def _filled(model: nn.Module, context: TrainingContext, node: str, folder: Path) -> None:
    """Give the model of a node the weights of its checkpoint."""
    checkpoint = open_checkpoint(folder, context.graph.blocks)
    graph = {model.name: inner for model, inner in context.graph.models()}[node]
    set_weights(model.get_submodule(node), checkpoint.weights, graph, str(folder))
    context.listener.log(f"{node}: weights of {folder}")


def refuse_other_tokenizers(
    checkpoint: Checkpoint, context: TrainingContext, *, problem: str, help_: str
) -> None:
    """Raise an error if a checkpoint was trained with other tokenizers or classes.

    Raises:
        InputError: they are not those of the context.
    """
    if checkpoint.tokenizers != dict(context.tokenizers):
        raise InputError(problem, location=str(checkpoint.folder), help=help_)
    for name, classes in classes_by_column(checkpoint).items():
        column = context.columns.get(name)
        if isinstance(column, LabelColumn) and column.classes != classes:
            problem = f"the classes of '{name}' have other numbers than in the checkpoint"
            raise InputError(problem, location=str(checkpoint.folder), help=help_)
