"""Make this checkout importable as the package weft, without pip and without a network.

A machine with a GPU may have torch and nothing else.  `make_site` fills a folder for PYTHONPATH: a
link to the checkout, its metadata with the entry points of pyproject.toml, and the contents of
wheels that the machine lacks, such as pydantic's.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


def entry_point_lines(project: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of entry_points.txt of the table [project] of a pyproject.toml."""
    groups = {"console_scripts": project.get("scripts", {}), **project.get("entry-points", {})}
    for group, points in groups.items():
        yield f"[{group}]"
        yield from (f"{name} = {value}" for name, value in points.items())


def make_site(folder: Path, wheels: Iterable[Path] = ()) -> Path:
    """Fill an empty folder for PYTHONPATH; return it.

    Raises:
        OSError: it cannot be written, or a wheel cannot be read.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    name, version = project["name"], project["version"]
    information = folder / f"{name}-{version}.dist-info"
    information.mkdir(parents=True)
    (folder / name).symlink_to(ROOT, target_is_directory=True)
    metadata = ("Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}")
    (information / "METADATA").write_text("\n".join(metadata) + "\n")
    (information / "entry_points.txt").write_text("\n".join(entry_point_lines(project)) + "\n")
    for wheel in wheels:
        shutil.unpack_archive(wheel, folder, "zip")
    return folder
