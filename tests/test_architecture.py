"""Facts about the code as a whole: short files, one direction, a light start."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("specs", "graphs", "blocks", "runtime")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    """Return the import name of a source file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(("weft", *parts)).removesuffix(".__init__")


def imports_torch(*modules: str, among: tuple[str, ...] = ("torch", "numpy")) -> str:
    """Import modules in a fresh interpreter; return what of torch and numpy came with them."""
    code = f"import sys, {', '.join(modules)}; print(*{{*{among}}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_file_is_short_and_says_what_it_is() -> None:
    """At most 400 lines, and a first line that is a sentence."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}

    long = [name for name, text in texts.items() if text.count("\n") > 400]
    heads = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in texts.items()}
    silent = [name for name, head in heads.items() if not head.partition("\n")[0].endswith(".")]

    assert long == []
    assert silent == []


def test_reading_checking_and_drawing_need_no_torch() -> None:
    """`specs` and `graphs` start fast and run anywhere."""
    modules = [module_name(p) for p in SOURCES if p.relative_to(ROOT).parts[0] in FOLDERS[:2]]

    assert imports_torch(*modules) == ""


def test_importing_the_facade_needs_no_torch() -> None:
    """`import weft` costs next to nothing; torch comes with the first model."""
    assert imports_torch("weft") == ""


@pytest.mark.slow
def test_using_a_model_loads_nothing_that_trains_compiles_or_plots() -> None:
    """Each takes longer to load than all of weft."""
    slow = ("torch._dynamo", "torch.distributed.fsdp", "sympy", "matplotlib", "sacrebleu")

    assert imports_torch("weft.runtime.api", "weft.runtime.cli.decode.translate", among=slow) == ""


def test_every_folder_of_ours_is_packaged() -> None:
    """A folder missing in pyproject.toml works from a checkout and fails from a wheel."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["setuptools"]["packages"]

    assert {"weft", *(module_name(path.parent / "__init__.py") for path in SOURCES)} == set(
        packages
    )
