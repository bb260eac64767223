"""Write the report of a study in all of its forms."""

from __future__ import annotations

import json
from pathlib import Path

from ....specs.files import write_beside
from .page import page
from .record import Record, study_record
from .text import latex, markdown, table_csv

FOLDER = "report"


def write_report(out: Path) -> tuple[Record, list[Path]]:
    """Write the report of the jobs that are done into the folder of a study.

    Args:
        out: folder of the study.

    Returns:
        The record, and the files: HTML, Markdown, LaTeX, CSV and JSON.

    Raises:
        InputError: there is no study in the folder, or a file cannot be written.
    """
    record = study_record(out)
    forms = {
        "html": page(record, out),
        "md": markdown(record),
        "tex": latex(record),
        "csv": table_csv(record),
        "json": json.dumps(record, indent=1, ensure_ascii=False) + "\n",
    }
    paths = []
    for suffix, text in forms.items():
        path = out / FOLDER / f"{record['study']}.{suffix}"
        write_beside(path, text.encode(), "report")
        paths.append(path)
    return record, paths
