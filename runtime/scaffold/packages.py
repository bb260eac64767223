"""Packages of one part, and copies of specs, to edit: `weft new block` and `weft new spec`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from string import Template

from ...specs.files import write_beside
from ...specs.findings import InputError, SpecError, did_you_mean
from ...specs.layout import laid_out
from ...specs.load import inlined, load
from ..spec.check import analysed
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


def new_spec(parent: str | Path, *, name: str = "", out: str | Path | None = None) -> Path:
    """Write a copy of a spec, in one file, with its params and formulas.

    What it extends is written out, and so are the specs that its params hold.

    Args:
        parent: a path, or a shipped name such as `transformer-base`.
        name: name of the copy; default: `my-NAME`.
        out: the file to write; default: `NAME.json`.

    Raises:
        InputError: there is no such spec, or the file exists.
        SpecError: the spec has mistakes.
    """
    loaded = load(parent)
    graph, findings = analysed(loaded)
    if graph is None:
        raise SpecError(findings)
    value = loaded.value()
    name = name or f"my-{value['name']}"
    path = Path(out or f"{name}.json")
    refuse_old(path)
    value |= {"name": name}
    if "params" in value:
        value["params"] = {
            key: inlined(param, loaded.source) for key, param in value["params"].items()
        }
    text = laid_out(json.dumps(value, ensure_ascii=False))
    write_beside(path, text.encode(), "spec")
    return path
