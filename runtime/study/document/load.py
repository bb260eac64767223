"""Reading a study: a file, or one that weft ships."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ....graphs.json_schema import DRAFT
from ....specs.findings import InputError
from ....specs.form import describes_run
from ....specs.reader import FOR_EDITORS, find, parse, read_file
from ...train.run import set_dotted
from .settings import StudySettings

FOLDER = "studies"
"""Folder of `specs/` that contains the shipped studies."""


def load_study(
    name: str | Path, overrides: Mapping[str, Any] | None = None
) -> tuple[StudySettings, str]:
    """Read a study file or a shipped study.

    Args:
        name: path of a study file, or name of a shipped study.
        overrides: values by dotted path, such as `{"budget.updates": 200}`.

    Returns:
        The study, and the file that it was read from.

    Raises:
        InputError: the file does not exist, or is a run.
        SpecError: the file is not valid JSON or not a valid study.
    """
    value, source = read_file(find(str(name), FOLDER))
    if describes_run(value):
        raise InputError(
            "this is a run, and a study is a table of runs",
            place=source,
            help="write a study with it as \"run\"; 'weft schema --study' prints the keys",
        )
    return study_of(value, source, overrides), source


def study_of(value: Any, source: str, overrides: Mapping[str, Any] | None = None) -> StudySettings:
    """Return the study in a JSON value.

    Args:
        value: content of a study file.
        source: its name, for findings.
        overrides: as of `load_study`.

    Raises:
        SpecError: it is not a valid study.
    """
    for dotted, new in (overrides or {}).items():
        set_dotted(value, dotted, new, source)
    return parse(StudySettings, value, source, {}, strict=True)


def study_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file, with which editors complete and validate it."""
    schema = StudySettings.model_json_schema()
    properties = {FOR_EDITORS: {"type": "string"}, **schema["properties"]}
    return {"$schema": DRAFT, **schema, "title": "A study of weft", "properties": properties}
