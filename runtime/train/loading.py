"""Loading runs: a file, or one that weft ships, with every mistake that can be found.

Not here: the settings (`run.py`), and what can be wrong with them (`check_run.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...specs.findings import SpecError
from ...specs.reader import find, read_file
from .check_run import checked_value
from .run import Run, read_run

FOLDER = "runs"
"""Folder of `specs/` that contains the shipped runs."""


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
    value, source = read_file(find(str(name), FOLDER))
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
        findings = checked_value(value, source, overrides).findings
        raise SpecError(finding for finding in findings if finding.level == "error")
    return read.form
