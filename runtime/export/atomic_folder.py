"""Writing: a folder that another engine reads appears whole, or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...graphs.ir.canonical import fingerprint
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..checkpoint.checkpoint import replace_folder

MARKER = "weft.json"
"""Says what an export was made from; a folder that has it may be replaced."""


@contextmanager
def new_folder(out: Path) -> Iterator[Path]:
    """Give a folder to write into, which takes its name when all went well.

    Args:
        out: the name; what stands there must be empty or an older export.

    Raises:
        InputError: something else stands there, or it cannot be written.
    """
    out = out.resolve()
    if out.exists() and not _ours(out):
        raise InputError(
            "the folder is there and is no export",
            place=str(out),
            help="name a new folder, or empty this one",
        )
    partial = out.with_name(f".{out.name}.partial")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        yield partial
        replace_folder(partial, out)
    except OSError as error:
        raise InputError(
            f"cannot write the export: {error.strerror or error}",
            place=str(out),
            help="name a folder that can be written, on a disk with room",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _ours(folder: Path) -> bool:
    """Say whether a folder is empty, or its marker says that it is an export."""
    if not folder.is_dir() or not any(folder.iterdir()):
        return folder.is_dir()
    try:
        told = json.loads((folder / MARKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(told, dict) and {"target", "fingerprint"} <= told.keys()


def write_marker(folder: Path, graph: Graph, target: str, more: Mapping[str, Any]) -> None:
    """Say what an export was made from, and how.

    Args:
        folder: where.
        graph: what was exported.
        target: for what.
        more: settings, and what the check found.
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
