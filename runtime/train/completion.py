"""Completion of a run: the same run with every setting written, to read or to edit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.value_type import sizes_of_inputs
from ...specs.reader import run_file
from ..data.columns.objective import with_defaults
from ..spec.check import with_blocks
from .check_run import check_run
from .loading import load_run, run_of
from .objective.context import objective_file
from .objective.planned import planned_inputs
from .run import Run

_IDLE = "R01"
"""Code of a setting without effect."""


def run_at(spec: object, overrides: dict[str, Any] | None = None) -> tuple[Run, str] | None:
    """Return a run and its file; None if a path or a name is not that of a run.

    Args:
        spec: a path or a name; nothing else is a run.
        overrides: values by path of the keys of the run.

    Raises:
        SpecError: the run has mistakes.
    """
    path = run_file(spec) if isinstance(spec, str | Path) else None
    return None if path is None else load_run(path, overrides)


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
    given = {name: replace(one, size=one.size or 1) for name, one in planned_inputs(run)[0].items()}
    defaults = loaded.recovered.params
    sizes = sizes_of_inputs(loaded.recovered.inputs, defaults, given)
    params = {
        name: value
        for name, value in defaults.items()
        if name not in sizes and not (isinstance(value, str) and value.startswith("="))
    }
    value = run.model_dump(mode="json", by_alias=True)
    value["params"] = {**params, **with_defaults(loaded, run.params)}
    known = {finding.at for finding in check_run(run, source, blocks)}
    while idle := [
        finding.at
        for finding in check_run(run_of(value, source), source, blocks)
        if finding.code == _IDLE and finding.at not in known
    ]:
        for at in idle:
            _remove(value, at)
    return value


def _remove(value: dict[str, Any], at: str) -> None:
    """Remove what a JSON Pointer of keys points to."""
    *path, last = at.removeprefix("/").split("/")
    for key in path:
        value = value[key]
    del value[last]
