"""Checking a run before any of its data is read: its objective, files and settings.

The settings themselves are validated when the run is read (`run.py`).  Everything else that can be
known without the data is reported here, all of it at once; `weft check RUN` prints it, and
`weft train` refuses to begin.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...specs.findings import Finding, InputError, SpecError, certainly_meant, nearest
from ...specs.load import OVERRIDES
from ...specs.recovery.lost_settings import NO_SETTING, LostSettings
from .checks.conflicts import conflicts
from .checks.disk import disk_space
from .checks.effects import without_effect
from .checks.files import start_checkpoint, wrong_files
from .checks.model import objective_fits
from .objective.context import known_objectives
from .objective.planned import graph_of_run
from .run import Run, read_run


def check_run(
    run: Run,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
) -> list[Finding]:
    """Return everything that is wrong with a run; see `checked_run`."""
    return checked_run(run, source, blocks, shortened=shortened, folder=folder)[0]


@dataclass(frozen=True, slots=True)
class CheckedRun:
    """What a check of a run found."""

    run: Run | None
    """The run; None if it cannot be read."""
    findings: list[Finding]
    """Errors and warnings."""
    graph: Graph | None = None
    """The graph of its objective, if it has no mistakes."""


def checked_value(
    value: Any,
    source: str,
    overrides: Mapping[str, Any] | None = None,
    blocks: Iterable[BlockType] = (),
) -> CheckedRun:
    """Return everything that is wrong with the run in a JSON value, also with its form.

    A setting that cannot be read does not end the check; what depends on it is not reported.

    Args:
        value: content of a run file, which is not changed.
        source: its name, for findings.
        overrides: values by dotted path.
        blocks: block types that its objective may use besides the installed ones.

    Raises:
        SpecError: it is not a run, or of an unknown format.
    """
    read = read_run(copy.deepcopy(value), source, overrides)
    if read.form is None:
        return CheckedRun(None, list(read.findings))
    shortened = "updates" in (overrides or {})
    findings, graph = checked_run(read.form, source, blocks, shortened=shortened, lost=read.lost)
    places = {(finding.code, finding.at) for finding in read.findings}
    written = (
        replace(finding, at=read.written(finding.at)) if finding.source == source else finding
        for finding in findings
    )
    others = [
        finding
        for finding in written
        if finding.source != source
        or not (read.lost.hides(finding.at) or (finding.code, finding.at) in places)
    ]
    return CheckedRun(read.form, [*read.findings, *others], graph)


def checked_run(
    run: Run,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
    lost: LostSettings = NO_SETTING,
) -> tuple[list[Finding], Graph | None]:
    """Return everything that is wrong with a run, as far as it is known without its data.

    Args:
        run: the run.
        source: its file, or its name.
        blocks: block types that the run's objective may use besides the installed ones.
        shortened: whether the number of updates was overridden, as one does to try a run: it may
            then end before dropout begins, and with a warning before its warmup ends.
        folder: folder of the run; default: `outputs/NAME`.
        lost: settings that could not be read, of which the run has guesses.

    Returns:
        The findings, which may be warnings, and the graph of the objective if it has no mistakes.
    """
    graph: Graph | None = None
    found = [
        *without_effect(run, shortened=shortened),
        *conflicts(run),
        *wrong_files(run),
        *start_checkpoint(run),
    ]
    if any(lost.inside(place) for place in ("/objective", "/params")):
        return [replace(finding, source=source) for finding in found], None
    try:
        graph = graph_of_run(run, source, blocks, lost)
    except SpecError as error:
        own = [replace(one, source=source) for one in error.findings if one.source == OVERRIDES]
        others = [one for one in error.findings if one.source != OVERRIDES]
        return [*(replace(one, source=source) for one in found), *own, *others], None
    except InputError as error:
        at = error.place.partition("#")[2] or "/objective"
        found.append(Finding(code="R02", at=at, problem=error.problem, help=error.help))
        found += _with_similar_objective(run, source, blocks, lost)
    else:
        found += objective_fits(run, graph)
        found += disk_space(run, graph, folder or Path("outputs") / run.name)
    return [replace(one, source=source) for one in found], graph


def _with_similar_objective(
    run: Run, source: str, blocks: Iterable[BlockType], lost: LostSettings
) -> list[Finding]:
    """Return the findings about the params of a run whose objective is certainly misspelled."""
    names = known_objectives(run, source)
    if run.objective in names or not certainly_meant(run.objective, names):
        return []
    similar = run.model_copy(update={"objective": nearest(run.objective, names)})
    try:
        graph_of_run(similar, source, blocks, lost)
    except SpecError as error:
        return [finding for finding in error.findings if finding.source in (OVERRIDES, source)]
    except InputError:
        pass
    return []


def refuse_wrong_run(
    run: Run,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
) -> list[Finding]:
    """Raise an error if anything is wrong with a run; arguments as of `check_run`.

    Returns:
        The warnings.

    Raises:
        SpecError: `check_run` returns errors.
    """
    findings = check_run(run, source, blocks, shortened=shortened, folder=folder)
    if errors := [finding for finding in findings if finding.level == "error"]:
        raise SpecError(errors)
    return findings
