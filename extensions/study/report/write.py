"""Write the report of a study in all of its forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from ....plugin import InputError, did_you_mean, write_beside
from ..jobs import json_text
from .forms import FORMS, Form
from .latex import latex
from .page import page
from .record import Record, study_record
from .text import report_markdown, table_csv

FOLDER = "report"


def write_report(
    out: Path, to: Path | None = None, forms: Sequence[Form] = FORMS
) -> tuple[Record, list[Path]]:
    """Write the report of the jobs that are done.

    The SVG is the picture of the differences, which the Markdown shows if both are written; there
    is none before two rows have a result.

    Args:
        out: folder of the study.
        to: folder of the report; default: `report` in the folder of the study.
        forms: what is written.

    Returns:
        The record, and the files.

    Raises:
        InputError: a form is unknown, there is no study in the folder, or a file cannot be written.
    """
    for form in forms:
        if form not in FORMS:
            raise InputError(f"unknown form '{form}'", help=did_you_mean(form, FORMS))
    record = study_record(out)
    from .plots import effects

    picture = effects(record) if {"html", "svg"} & {*forms} else ""
    shown = f"{record['study']}.svg" if picture and "svg" in forms else ""
    makers: Mapping[Form, Callable[[], str]] = {
        "html": lambda: page(record, out, picture),
        "md": lambda: report_markdown(record, shown),
        "svg": lambda: picture,
        "tex": lambda: latex(record),
        "csv": lambda: table_csv(record),
        "json": lambda: json_text(_finite(record)),
    }
    paths = []
    for form in FORMS:
        if form in forms and (form != "svg" or picture):
            path = (out / FOLDER if to is None else to) / f"{record['study']}.{form}"
            write_beside(path, makers[form]().encode(), "report")
            paths.append(path)
    return record, paths


def _finite(value: Any) -> Any:
    """Return a JSON value with null for each number that is not finite, which JSON cannot write."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
