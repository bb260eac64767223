"""docs/write-a-block.md: its files form a package whose block specs can use."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "write-a-block.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^```\w+ (\S+)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
PACKAGE = [name for name in FILES if name.startswith("token_shift/")]


def write(folder: Path) -> Path:
    """Write the files of the page into a folder."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def run(folder: Path, installed: Path, *arguments: str) -> str:
    """Run Python in a folder, with a folder of installed packages on its path."""
    paths = os.pathsep.join([str(installed), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_the_files_of_a_package() -> None:
    """Each file of the package has about twenty lines, docstrings aside."""
    assert set(FILES) == {
        "token_shift/block.py",
        "token_shift/module.py",
        "pyproject.toml",
        "shifted.json",
        "test_token_shift.py",
    }
    for name in PACKAGE:
        lines = [line.strip() for line in FILES[name].splitlines()]
        assert len([line for line in lines if line and not line.startswith('"""')]) <= 21


@pytest.mark.integration
def test_an_installed_package_brings_its_block(tmp_path: Path) -> None:
    """Write the package's files next to its metadata and entry point, as pip does."""
    write(tmp_path)
    about = tmp_path / "token_shift-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: token-shift\nVersion: 0.1.0\n")
    [entry] = re.findall(r"^token_shift = .*$", FILES["pyproject.toml"], re.MULTILINE)
    (about / "entry_points.txt").write_text(f"[weft.blocks]\n{entry}\n".replace('"', ""))

    described = run(tmp_path, tmp_path, "-m", "weft", "blocks", "token_shift")

    assert "Peng et al. 2023" in described
    assert "f[b t d_model]" in described


@pytest.mark.slow
def test_pip_installs_it(tmp_path: Path) -> None:
    """The package is installed from its pyproject.toml, without a network."""
    pytest.importorskip("setuptools")
    source, installed = write(tmp_path / "source"), tmp_path / "installed"
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--no-cache-dir"]

    run(
        tmp_path,
        installed,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(installed),
        str(source),
    )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("shifted.json", "test_token_shift.py"):
        (elsewhere / name).write_text(FILES[name], encoding="utf-8")

    run(elsewhere, installed, "test_token_shift.py")
