"""Rules for the code base: short files, one import direction, fast imports."""

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
    """Import modules in a fresh interpreter; return which modules of `among` were loaded."""
    code = f"import sys, {', '.join(modules)}; print(*{{*{among}}} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_every_file_is_short_and_has_a_docstring() -> None:
    """A file has at most 400 lines and a docstring whose first line ends in a full stop."""
    texts = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in SOURCES}

    long = [name for name, text in texts.items() if text.count("\n") > 400]
    heads = {name: ast.get_docstring(ast.parse(text)) or "" for name, text in texts.items()}
    silent = [name for name, head in heads.items() if not head.partition("\n")[0].endswith(".")]

    assert long == []
    assert silent == []


def test_reading_checking_and_drawing_need_no_torch() -> None:
    """`specs` and `graphs` import quickly and run without torch."""
    modules = [module_name(p) for p in SOURCES if p.relative_to(ROOT).parts[0] in FOLDERS[:2]]

    assert imports_torch(*modules) == ""


def test_importing_the_public_api_needs_no_torch() -> None:
    """`import weft` is fast; torch is imported with the first model."""
    assert imports_torch("weft") == ""


@pytest.mark.slow
def test_using_a_model_loads_no_code_for_training_compiling_or_plotting() -> None:
    """Each of these modules takes longer to load than all of weft."""
    slow = ("torch._dynamo", "torch.distributed.fsdp", "sympy", "matplotlib", "sacrebleu")

    assert imports_torch("weft.runtime.api", "weft.runtime.cli.decode.translate", among=slow) == ""


def test_every_folder_of_ours_is_packaged() -> None:
    """A folder that is missing in pyproject.toml works in a checkout but not in a wheel."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        packages = tomllib.load(file)["tool"]["setuptools"]["packages"]

    assert {"weft", *(module_name(path.parent / "__init__.py") for path in SOURCES)} == set(
        packages
    )
