"""Atomic writing of export folders: complete, or not there at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..system import folders

MARKER = "weft.json"
"""File that records the origin of an export; a folder with this file may be replaced."""


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Yield a temporary folder, and rename it to `out` if the block succeeds.

    Args:
        out: final path; an existing folder must be empty or an older export.

    Raises:
        InputError: the path exists and is not an export, or it cannot be written.
    """
    out = out.resolve()
    if out.exists() and not _ours(out):
        raise InputError(
            "the folder exists and is not an export",
            location=str(out),
            help="choose a new folder, or empty this one",
        )
    try:
        with folders.new_folder(out) as partial:
            yield partial
    except OSError as error:
        raise InputError(
            f"cannot write the export: {error.strerror or error}",
            location=str(out),
            help="choose a writable folder on a disk with free space",
        ) from error


def _ours(folder: Path) -> bool:
    """Return whether a folder is empty or marked as an export."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return folder.is_dir()
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(marker, dict) and {"target", "fingerprint"} <= marker.keys()


def write_marker(folder: Path, graph: Graph, target: str, more: Mapping[str, Any]) -> None:
    """Write the marker file with the origin of an export.

    Args:
        folder: export folder.
        graph: the exported graph.
        target: name of the engine.
        more: settings, and results of the check.
    """
    value = {
        "target": target,
        "spec": graph.name,
        "fingerprint": fingerprint(graph),
        "weft": version("weft"),
        **more,
    }
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    (folder / MARKER).write_text(text, encoding="utf-8")
