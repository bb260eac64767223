"""Reading a study: a file, or one that weft ships."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...graphs.json_schema import DRAFT
from ...plugin import Finding, SpecError, set_dotted
from ...specs.lost_settings import read_settings
from ...specs.reader import FOR_EDITORS, find, read_file, refuse_other
from .document import StudySettings

FOLDER = "studies"
"""Folder of `specs/` that contains the shipped studies."""
_ROWS = ("/rows/*", "/grid/*")
_DEPENDS = {"": _ROWS, "/compare": _ROWS, "/rows": ("/rows",), "/search": _ROWS}
"""Settings to the others that are read with them, so that a wrong one may cause findings there."""


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
        InputError: the file does not exist.
        SpecError: the file is not valid JSON or not a valid study.
    """
    value, source = read_file(find(str(name), FOLDER))
    refuse_other(value, source, "study")
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
    findings: list[Finding] = []
    for dotted, new in (overrides or {}).items():
        try:
            set_dotted(value, dotted, new, source)
        except SpecError as error:
            findings += error.findings
    read = read_settings(StudySettings, value, source, {}, _DEPENDS)
    findings += read.findings
    if findings or read.form is None:
        raise SpecError(findings)
    return read.form


def study_schema() -> dict[str, Any]:
    """Return the JSON Schema of a study file, with which editors complete and validate it."""
    schema = StudySettings.model_json_schema()
    properties = {FOR_EDITORS: {"type": "string"}, **schema["properties"]}
    return {"$schema": DRAFT, **schema, "title": "A study of weft", "properties": properties}
