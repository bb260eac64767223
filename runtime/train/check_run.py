"""Checking a run before any of its data is read: its objective, files and settings.

The settings themselves are validated when the run is read (`run.py`).  Everything else that can be
known without the data is reported here, all of it at once; `weft check RUN` prints it, and
`weft train` refuses to begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...specs.findings import Finding, InputError, SpecError
from ...specs.load import OVERRIDES
from .checks.conflicts import conflicts
from .checks.disk import disk_space
from .checks.effects import without_effect
from .checks.files import start_checkpoint, wrong_files
from .checks.model import objective_fits
from .objective.planned import graph_of_run
from .run import Run


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


def checked_run(
    run: Run,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
) -> tuple[list[Finding], Graph | None]:
    """Return everything that is wrong with a run, as far as it is known without its data.

    Args:
        run: the run.
        source: its file, or its name.
        blocks: block types that the run's objective may use besides the installed ones.
        shortened: whether the number of updates was overridden, as one does to try a run: it may
            then end before dropout begins, and with a warning before its warmup ends.
        folder: folder of the run; default: `outputs/NAME`.

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
    try:
        graph = graph_of_run(run, source, blocks)
    except SpecError as error:
        own = [replace(one, source=source) for one in error.findings if one.source == OVERRIDES]
        others = [one for one in error.findings if one.source != OVERRIDES]
        return [*(replace(one, source=source) for one in found), *own, *others], None
    except InputError as error:
        at = error.place.partition("#")[2] or "/objective"
        found.append(Finding(code="R02", at=at, problem=error.problem, help=error.help))
    else:
        found += objective_fits(run, graph)
        found += disk_space(run, graph, folder or Path("outputs") / run.name)
    return [replace(one, source=source) for one in found], graph


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
