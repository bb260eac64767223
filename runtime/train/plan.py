"""The plan of a run: its objective, passes, costs and all that is wrong with it; no torch.

A plan is made once, from the settings of a run and before any of its data is read, and handed to
whatever needs it: `weft check`, training, profiles, studies, and the studio.  The settings
themselves are validated when the run is read (`run.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.execution import KernelChoice, Precision
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType, sizes_of_inputs
from ...graphs.passes.pipeline import PassSettings
from ...specs.findings import Finding, InputError, SpecError, certainly_meant, nearest
from ...specs.load import OVERRIDES
from ...specs.lost_settings import NO_SETTING, LostSettings
from ...specs.reader import RUN_FOLDER, find, read_file, run_in
from ..spec.check import with_blocks
from .checks.batches import stages_without_effect, uniform_updates
from .checks.effects import conflicts, without_effect
from .checks.files import disk_space, start_checkpoint, wrong_files
from .checks.model import objective_fits, too_many_weights, wrong_parametrization
from .costs import Projection, project
from .objective import (
    Objective,
    Objectives,
    known_objectives,
    objective_file,
    planned_inputs,
    with_defaults,
)
from .run import KernelSettings, Run, read_run

_IDLE = "R01"
"""Code of a setting without effect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """A run with all that is known of it before its data is read."""

    run: Run | None
    """The run; None if it cannot be read."""
    source: str
    """Its file, or its name."""
    findings: list[Finding]
    """Errors and warnings."""
    objective: Objective | None = None
    """Its objective, type-checked; None if it has mistakes."""

    @property
    def graph(self) -> Graph | None:
        """The graph of the objective, if that has no mistakes."""
        return self.objective.graph if self.objective else None

    @property
    def columns(self) -> Mapping[str, ValueType]:
        """Types of the inputs that the columns fill, as far as they are known."""
        return self.objective.columns if self.objective else {}

    @property
    def errors(self) -> list[Finding]:
        """The findings because of which the run cannot train."""
        return [finding for finding in self.findings if finding.level == "error"]

    @property
    def warnings(self) -> list[Finding]:
        """The findings with which the run can train."""
        return [finding for finding in self.findings if finding.level == "warning"]

    @property
    def passes(self) -> PassSettings:
        """Settings of the passes of training in one process, which unpads.

        Raises:
            SpecError: the run is wrong.
        """
        return settings_of_run(self.required()[0], unpad=True)

    @property
    def costs(self) -> Projection:
        """Estimated work of the training.

        Raises:
            SpecError: the run is wrong.
        """
        run, objective = self.required()
        return project(run, objective.graph)

    def required(self) -> tuple[Run, Objective]:
        """Return the run and its objective.

        Raises:
            SpecError: the run is wrong; with every mistake.
        """
        if self.errors or self.run is None or self.objective is None:
            raise SpecError(self.errors)
        return self.run, self.objective


def load_run(name: str | Path, overrides: Mapping[str, Any] | None = None) -> tuple[Run, str]:
    """Read a run file or a shipped run.

    Args:
        name: path of a run file, or name of a shipped run such as `multi30k-en-de`.
        overrides: values by dotted path, such as `{"optimizer.clip": 1.0}`.

    Returns:
        The run, and the file it was read from.

    Raises:
        InputError: the file does not exist.
        SpecError: the file is not valid JSON or not a valid run; with every mistake of the run, as
            `weft check` reports them.
    """
    value, source = read_file(find(str(name), RUN_FOLDER))
    return run_of(value, source, overrides), source


def run_of(value: Any, source: str, overrides: Mapping[str, Any] | None = None) -> Run:
    """Return the run in a JSON value.

    Args:
        value: content of a run file.
        source: its name, for findings.
        overrides: as of `load_run`, in the current format.

    Raises:
        SpecError: it is not a valid run; with every mistake of the run, as `weft check` reports
            them.
    """
    read = read_run(value, source, overrides)
    if read.findings or read.form is None:
        raise SpecError(plan_value(value, source, overrides).errors)
    return read.form


def run_at(spec: object, overrides: dict[str, Any] | None = None) -> tuple[Run, str] | None:
    """Return a run and its file; None if a path or a name is not that of a run.

    Args:
        spec: a path or a name; nothing else is a run.
        overrides: values by path of the keys of the run.

    Raises:
        SpecError: the run has mistakes.
    """
    read = run_in(spec) if isinstance(spec, str | Path) else None
    return None if read is None else (run_of(*read, overrides), read[1])


def plan_named(
    run: Run | str | Path,
    overrides: Mapping[str, Any] | None = None,
    blocks: Iterable[BlockType] = (),
    *,
    folder: Path | None = None,
) -> RunPlan:
    """Return the plan of a run, or of a run file or a shipped run; see `plan_value`.

    Args:
        run: a run, a path, or a shipped name.
        overrides: values by dotted path; of a run, they are in it already.
        blocks: block types that its objective may use besides the installed ones.
        folder: folder of the run; default: `outputs/NAME`.

    Raises:
        InputError: the file does not exist.
        SpecError: it is not a run, or of an unknown format.
    """
    if isinstance(run, Run):
        shortened = "updates" in (overrides or {})
        return plan_run(run, run.name, blocks, shortened=shortened, folder=folder)
    value, source = read_file(find(str(run), RUN_FOLDER))
    return plan_value(value, source, overrides, blocks, folder=folder)


def plan_value(
    value: Any,
    source: str,
    overrides: Mapping[str, Any] | None = None,
    blocks: Iterable[BlockType] = (),
    *,
    folder: Path | None = None,
    objectives: Objectives | None = None,
) -> RunPlan:
    """Return the plan of the run in a JSON value, with the mistakes of its form.

    A setting that cannot be read does not end the check; what depends on it is not reported.

    Args:
        value: content of a run file, which is not changed.
        source: its name, for findings.
        overrides: values by dotted path.
        blocks: as of `plan_named`.
        folder: as of `plan_named`.
        objectives: as of `plan_run`.

    Raises:
        SpecError: it is not a run, or of an unknown format.
    """
    read = read_run(copy.deepcopy(value), source, overrides)
    if read.form is None:
        return RunPlan(run=None, source=source, findings=list(read.findings))
    plan = plan_run(
        read.form,
        source,
        blocks,
        shortened="updates" in (overrides or {}),
        folder=folder,
        lost=read.lost,
        objectives=objectives,
    )
    reported = {(finding.code, finding.at) for finding in read.findings}
    written = (
        replace(finding, at=read.written(finding.at)) if finding.source == source else finding
        for finding in plan.findings
    )
    others = [
        finding
        for finding in written
        if finding.source != source
        or not (read.lost.hides(finding.at) or (finding.code, finding.at) in reported)
    ]
    return replace(plan, findings=[*read.findings, *others])


def plan_run(
    run: Run,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
    lost: LostSettings = NO_SETTING,
    objectives: Objectives | None = None,
) -> RunPlan:
    """Return the plan of a run, with everything that is wrong with it.

    Args:
        run: the run.
        source: its file, or its name.
        blocks: block types that the run's objective may use besides the installed ones.
        shortened: whether the number of updates was overridden, as one does to try a run: it may
            then end before dropout begins, and with a warning before its warmup ends.
        folder: folder of the run; default: `outputs/NAME`.
        lost: settings that could not be read, of which the run has guesses.
        objectives: objectives of other runs, one of which may be that of this run.
    """
    objective: Objective | None = None
    findings = [
        *without_effect(run, shortened=shortened),
        *conflicts(run),
        *wrong_files(run),
        *uniform_updates(run),
        *stages_without_effect(run, shortened=shortened),
    ]
    started = list(start_checkpoint(run))
    findings += started
    if not any(lost.inside(key) for key in ("/objective", "/params")):
        try:
            if objectives is None or lost is not NO_SETTING:
                objective = Objective.of(run, source, blocks, lost)
            else:
                objective = objectives.of(run, source)
        except SpecError as error:
            findings += [finding for finding in error.findings if finding.source == OVERRIDES]
            others = [finding for finding in error.findings if finding.source != OVERRIDES]
            placed = [replace(finding, source=source) for finding in findings]
            return RunPlan(run=run, source=source, findings=[*placed, *others])
        except InputError as error:
            at = error.location.partition("#")[2] or "/objective"
            findings.append(Finding(code="R02", at=at, problem=error.problem, help=error.help))
            findings += _with_similar_objective(run, source, blocks, lost)
        else:
            findings += [*too_many_weights(objective.graph)] or [
                *objective_fits(run, objective.graph),
                *wrong_parametrization(run, objective),
                *([] if started else _start_fits(run, objective, blocks)),
                *disk_space(run, objective.graph, folder or Path("outputs") / run.name),
            ]
    placed = [replace(finding, source=source) for finding in findings]
    return RunPlan(run=run, source=source, findings=placed, objective=objective)


def _start_fits(run: Run, objective: Objective, blocks: Iterable[BlockType]) -> Iterable[Finding]:
    """Return the findings about the weights from which a run starts."""
    if run.start is None or not (run.start.weights or run.start.freeze):
        return []
    from .start import start_fits  # noqa: PLC0415 - imports torch

    return start_fits(run, objective, blocks)


def _with_similar_objective(
    run: Run, source: str, blocks: Iterable[BlockType], lost: LostSettings
) -> list[Finding]:
    """Return the findings about the params of a run whose objective is certainly misspelled."""
    names = known_objectives(run, source)
    if run.objective in names or not certainly_meant(run.objective, names):
        return []
    similar = run.model_copy(update={"objective": nearest(run.objective, names)})
    try:
        Objective.of(similar, source, blocks, lost)
    except SpecError as error:
        return [finding for finding in error.findings if finding.source in (OVERRIDES, source)]
    except InputError:
        pass
    return []


def complete(run: Run, source: str, blocks: Iterable[BlockType] = ()) -> dict[str, Any]:
    """Return the document of a run with all settings, which trains the same.

    The params of the objective are those that neither follow the columns nor other params.
    Settings that the run does not set and that would have no effect are left out.

    Args:
        run: the run.
        source: its file.
        blocks: block types that its objective may use besides the installed ones.

    Raises:
        InputError: there is no such objective.
        SpecError: the objective cannot be read.
    """
    loaded = with_blocks(objective_file(run, source), blocks)
    types, _ = planned_inputs(run)
    filled = {name: replace(type_, size=type_.size or 1) for name, type_ in types.items()}
    defaults = loaded.recovered.params
    sizes = sizes_of_inputs(loaded.recovered.inputs, defaults, filled)
    params = {
        name: value
        for name, value in defaults.items()
        if name not in sizes and not (isinstance(value, str) and value.startswith("="))
    }
    value = run.model_dump(mode="json", by_alias=True)
    value["params"] = {**params, **with_defaults(loaded, run.params)}
    idle = {finding.at for finding in plan_run(run, source, blocks).findings}
    while added := [
        finding.at
        for finding in plan_run(run_of(value, source), source, blocks).findings
        if finding.code == _IDLE and finding.at not in idle
    ]:
        for at in added:
            _remove(value, at)
    return value


def _remove(value: dict[str, Any], at: str) -> None:
    """Remove what a JSON Pointer of keys points to."""
    *path, last = at.removeprefix("/").split("/")
    for key in path:
        value = value[key]
    del value[last]


def settings_of_run(
    run: Run,
    *,
    unpad: bool,
    kernels: KernelChoice | None = None,
    processes: int = 1,
    precision: Precision | None = None,
) -> PassSettings:
    """Return the settings of the passes of a run.

    Args:
        run: the run.
        unpad: whether to unpad, which depends on the data of a run whose `padding` is `auto`.
        kernels: the kernels that a measurement chose; None for those that the run names.
        processes: number of processes that train.
        precision: dtype of products on the device of the run; None for that of its settings,
            float32 if these leave it to the device.
    """
    checkpointing = run.activation_checkpointing
    requested: Precision = "float32" if run.precision == "auto" else run.precision
    used = requested if precision is None else precision
    return PassSettings(
        unpad=unpad,
        strict=run.padding == "unpadded",
        activation_checkpointing=(checkpointing,)
        if isinstance(checkpointing, str)
        else tuple(checkpointing),
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
    settings, choices = run.kernels, {}
    if settings.product == "auto" and run.deterministic:  # a measurement may differ in each run
        choices["product"] = "torch"
    if settings.attention == "auto" and (run.deterministic or precision == "float16"):
        choices["attention"] = "fused"  # float16 is not measured
    return settings.model_copy(update=choices)


def _named(run: Run, precision: Precision) -> KernelChoice:
    """Return the kernels that a run has without a measurement; None for those that need one."""
    settings = kernels_to_choose(run, precision)
    product, attention, loss = (
        None if name == "auto" else name
        for name in (settings.product, settings.attention, settings.loss)
    )
    return KernelChoice(product, None if attention is None else {"*": attention}, loss)
