"""The public names of `import weft`: one lazy table, which type checkers see too."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import weft

from .api_listing import listing

PUBLIC: Any = weft
"""The module, whose stub lists its names only as imports."""


def ran(code: str) -> str:
    """Return what code prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_type_checkers_see_the_names_that_python_sees() -> None:
    """The stub exports each name as itself, which Python's own parser confirms."""
    stub = ast.parse(Path(weft.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    names = [
        (alias.name, alias.asname)
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]

    assert all(name == public for name, public in names)
    assert PUBLIC.__all__ == sorted(["__version__", *(name for name, _ in names)])


def test_every_public_name_can_be_imported_and_is_documented() -> None:
    """Each has its one definition in the module of the table, with a docstring."""
    for name, home in PUBLIC._HOMES.items():
        found = getattr(weft, name)
        assert inspect.getdoc(found), name
        assert found.__module__ == f"weft{home}", name
    assert set(PUBLIC.__all__) <= set(dir(weft))


@pytest.mark.integration
def test_specs_are_loaded_checked_drawn_and_compared_without_torch(tmp_path: Path) -> None:
    """Nor do the types of specs, findings and blocks need it."""
    code = (
        "import sys, weft; sys.modules['torch'] = None;"
        "spec = weft.load('transformer-tiny', layers=1); weft.check(spec); repr(spec);"
        f"weft.draw(spec, {str(tmp_path / 'a.dot')!r});"
        "weft.diff(spec, 'transformer-tiny').render();"
        "weft.Spec, weft.Graph, weft.Finding, weft.BlockType, weft.Params, weft.Diff, weft.port;"
        "print(weft.__version__)"
    )

    assert ran(code) == importlib.metadata.version("weft")


def test_importing_weft_imports_nothing_else_of_it() -> None:
    """Every name is imported when it is first used."""
    code = "import sys, weft; print([m for m in sys.modules if m.startswith('weft.')])"

    assert ran(code) == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """As for any module."""
    with pytest.raises(AttributeError, match="module 'weft' has no attribute 'nothing'"):
        _ = weft.nothing


def test_the_tree_of_exceptions() -> None:
    """As `docs/api.md` shows it."""
    assert weft.WeftError.__mro__[1] is Exception
    assert weft.InputError.__mro__[1] is weft.WeftError
    assert weft.SpecError.__mro__[1] is weft.InputError


def test_the_listing_of_the_api_has_no_addresses() -> None:
    """`tests/test_golden.py` compares it with a stored text, so it is the same in every process."""
    text = "\n".join(listing())

    assert " at 0x" not in text
    assert "Spec.swap(self, select: 'str', use: 'str', /, **params: 'Any') -> 'Spec'" in text
