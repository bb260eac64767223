"""Write the report of a study in all of its forms."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from ....plugin import InputError, did_you_mean, write_beside
from ..jobs import json_text
from .forms import FORMS, Form
from .labels import labelled
from .latex import latex
from .page import page
from .record import Record, study_record
from .text import report_markdown, table_csv

FOLDER = "report"


def write_report(
    out: Path, to: Path | None = None, forms: Sequence[Form] = FORMS
) -> tuple[Record, list[Path]]:
    """Write the report of the jobs that are done.

    SVG and PDF are the figures: of the differences, the losses, and what is tuned or fitted.  The
    Markdown shows them if both are written; there is none of what has no result yet.

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
    from .plots import figures

    shown, study = labelled(record), record["study"]
    svg = figures(shown, "svg") if {"html", "svg"} & {*forms} else {}
    pdf = figures(shown, "pdf") if "pdf" in forms else {}
    pictures = {name: _file(study, name, "svg") for name in svg} if "svg" in forms else {}
    makers: Mapping[Form, Callable[[], Mapping[str, bytes]]] = {
        "html": lambda: _one(page(shown, out, {name: file.decode() for name, file in svg.items()})),
        "md": lambda: _one(report_markdown(shown, pictures)),
        "svg": lambda: svg,
        "pdf": lambda: pdf,
        "tex": lambda: _one(latex(shown)),
        "csv": lambda: _one(table_csv(record)),
        "json": lambda: _one(json_text(_finite(record))),
    }
    paths, folder = [], out / FOLDER if to is None else to
    for form in FORMS:
        for name, content in makers[form]().items() if form in forms else ():
            path = folder / _file(study, name, form)
            write_beside(path, content, "report")
            paths.append(path)
    return record, paths


def _one(text: str) -> dict[str, bytes]:
    """Return the only file of a form by its name."""
    return {"": text.encode()}


def _file(study: str, name: str, form: Form) -> str:
    """Return the name of a file; the figure of the differences has that of the study alone."""
    return f"{study}.{form}" if name in ("", "effects") else f"{study}-{name}.{form}"


def _finite(value: Any) -> Any:
    """Return a JSON value with null for each number that is not finite, which JSON cannot write."""
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not isfinite(value) else value
