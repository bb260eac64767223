"""Packages of one part, to edit: `weft new block my-block` and `weft.new_package`."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from string import Template

from ...specs.findings import InputError, did_you_mean
from .runs import refuse_old

TEMPLATES = Path(__file__).parent / "packages"
ENTRY_POINTS = {
    "block": {"weft.blocks": '$snake = "$snake.block:$upper"'},
    "column": {
        "weft.columns": '$kebab = "$snake.settings:${camel}Settings"',
        "weft.readers": '$kebab = "$snake.settings:${camel}FilesSettings"',
    },
    "metric": {"weft.metrics": '$kebab = "$snake.metric:$camel"'},
}
"""Kind of part to the entry points of its package, by group."""
_PROJECT = """[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$kebab"
version = "0.1.0"
dependencies = ["weft"]

{points}
[tool.setuptools]
packages = ["$snake"]
"""
_NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")


def new_package(kind: str, name: str, *, out: str | Path | None = None) -> Path:
    """Write a package with a part of Weft, and a test of it that passes.

    After `pip install -e FOLDER`, specs and runs can name the part.

    Args:
        kind: `block`, `column` (with a reader) or `metric`.
        name: name of the package, such as `my-block`; the module is `my_block`.
        out: the new folder; default: the name.

    Raises:
        InputError: there is no such kind, the name is none, or the folder exists.
    """
    if kind not in ENTRY_POINTS:
        help_ = did_you_mean(kind, ENTRY_POINTS) or f"known: {', '.join(ENTRY_POINTS)}"
        raise InputError(f"no kind of package '{kind}'", location="kind", help=help_)
    if not _NAME.fullmatch(name):
        raise InputError(
            f"'{name:.80}' cannot be the name of a package",
            location="name",
            help="write small letters and digits, with '-' between words, such as my-part",
        )
    folder = Path(out or name)
    refuse_old(folder)
    words = re.split("[-_]", name)
    names = {
        "kebab": "-".join(words),
        "snake": "_".join(words),
        "upper": "_".join(words).upper(),
        "camel": "".join(word.capitalize() for word in words),
    }
    points = "".join(
        f'[project.entry-points."{group}"]\n{point}\n\n'
        for group, point in ENTRY_POINTS[kind].items()
    )
    module = names["snake"]
    files = {
        "pyproject.toml": _PROJECT.replace("{points}\n", points),
        f"{module}/__init__.py": '"""A package for Weft."""\n',
    }
    for template in sorted((TEMPLATES / kind).iterdir()):
        file = template.name.removesuffix(".txt")
        outside = {"test.py": f"test_{module}.py", "example.json": "example.json"}
        path = outside.get(file, f"{module}/{file}")
        files[path] = template.read_text(encoding="utf-8")
    try:
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(Template(text).substitute(names), encoding="utf-8")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder
