"""Results of a benchmark, written one by one, so that those of an interrupted run are kept."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def add_rows_option(parser: argparse.ArgumentParser) -> None:
    """Add the option `--rows`, whose value `write_row` takes."""
    parser.add_argument("--rows", type=Path, help="file to which each row is appended as JSON")


def write_row(path: Path | None, row: Mapping[str, Any]) -> None:
    """Append a row to a file of JSON lines; do nothing without a path."""
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return the complete rows of a file; none if it does not exist."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
