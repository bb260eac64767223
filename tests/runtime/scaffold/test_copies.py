"""`weft new spec` and `weft new block|column|metric`: copies and packages to edit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import weft
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.cli.main import main
from weft.runtime.scaffold.packages import ENTRY_POINTS
from weft.specs.findings import InputError


@pytest.mark.parametrize("parent", ["transformer-tiny", "transformer-prenorm", "classification"])
def test_a_copy_is_the_same_graph(parent: str, tmp_path: Path) -> None:
    """A spec, a variant, and an objective that holds a model."""
    path = weft.new_spec(parent, name=parent, out=tmp_path / "copy.json")

    assert fingerprint(weft.load(path).graph()) == fingerprint(weft.load(parent).graph())


def test_a_copy_keeps_its_params(tmp_path: Path) -> None:
    """The width of a copy can be changed, and what follows from it changes too."""
    path = weft.new_spec("transformer-prenorm", out=tmp_path / "copy.json")

    wide = weft.load(path, d_model=64, heads=4).graph()

    assert wide.weights()["source_embedding.weight"][1] == 64


def test_a_copy_overwrites_nothing(tmp_path: Path) -> None:
    """The file may be the user's work."""
    (tmp_path / "copy.json").write_text("mine")

    with pytest.raises(InputError, match="not overwritten"):
        weft.new_spec("transformer-tiny", out=tmp_path / "copy.json")


@pytest.mark.integration
@pytest.mark.parametrize("kind", ENTRY_POINTS)
def test_the_test_of_a_new_package_passes(kind: str, tmp_path: Path) -> None:
    """It runs in the new folder, as the command prints."""
    folder = weft.new_package(kind, f"my-{kind}", out=tmp_path / "package")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.integration
def test_an_installed_new_package_is_found_by_name(tmp_path: Path) -> None:
    """Its entry points are written as pip writes them."""
    folder = weft.new_package("block", "my-part", out=tmp_path / "package")
    project = (folder / "pyproject.toml").read_text()
    about = folder / "my_part-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: my-part\nVersion: 0.1.0\n")
    points = project.partition("[project.entry-points.")[2].partition("[tool")[0]
    (about / "entry_points.txt").write_text(f"[{points}".replace('"', ""))

    done = subprocess.run(
        [sys.executable, "-m", "weft", "check", "example.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("example: valid")


@pytest.mark.parametrize("name", ["My Block", "../up", "a;b", "1st", "x" * 3 + "\n"])
def test_a_name_that_python_cannot_import_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would become names of files, of classes and of entry points."""
    monkeypatch.chdir(tmp_path)

    assert main(["new", "block", "--", name]) == 1

    assert list(tmp_path.iterdir()) == []
