"""Extensions: what of the core they may import, and the surface that they import it from."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest
import weft.plugin

ROOT = Path(__file__).parents[1]
LISTED = (ROOT / "tests/core_modules.txt").read_text(encoding="utf-8").split()


def imported() -> set[str]:
    """Return the modules of the core that extensions import, without `weft.plugin`."""
    modules = set()
    for file in (ROOT / "extensions").rglob("*.py"):
        parts = file.relative_to(ROOT).with_suffix("").parts
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level:
                module = ".".join([*parts[: -node.level], *(node.module or "").split(".")])
                modules.add(module.strip("."))
    return {name for name in modules if not name.startswith("extensions")} - {"plugin", ""}


@pytest.mark.integration
def test_extensions_import_no_further_module_of_the_core() -> None:
    """A new need is a name of `plugin.pyi`; a module without importers leaves the list."""
    assert sorted(imported()) == LISTED


@pytest.mark.integration
@pytest.mark.parametrize("name", weft.plugin.__all__)
def test_every_name_for_extensions_is_documented(name: str) -> None:
    """By a docstring, or below its definition if it is a constant or an alias."""
    value, home = getattr(weft.plugin, name), weft.plugin._HOMES[name]
    source = (ROOT / (home.strip(".").replace(".", "/") + ".py")).read_text(encoding="utf-8")

    documented = re.search(rf'^{name}\b.*?= (?:.|\n)*?\n"""', source, re.MULTILINE)
    assert documented or inspect.getdoc(value)


def test_the_guide_lists_the_names_for_extensions() -> None:
    """Each in one group; a name that it lacks is public only by accident."""
    guide = (ROOT / "docs/write-an-extension.md").read_text(encoding="utf-8")
    section = guide.split("## What `weft.plugin` has\n")[1].split("\n## ")[0]
    rows = "".join(line for line in section.splitlines() if line.startswith("| "))

    assert sorted(re.findall(r"`(\w+)`", rows)) == weft.plugin.__all__


def test_wrong_names_are_refused() -> None:
    """As for any module; and the list of names is that of the module."""
    with pytest.raises(AttributeError, match="no attribute 'Colum'"):
        _ = weft.plugin.Colum  # type: ignore[attr-defined]
    assert {"Column", "command", "Exporter"} <= {*dir(weft.plugin)}
