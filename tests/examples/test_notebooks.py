"""The notebooks of the tutorials run from a fresh folder, each in less than 30 seconds."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ROOT / "examples" / "notebooks"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    """A cell that raises, or a notebook that takes longer than its limit, fails."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, resources=resources).execute()


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    """The site runs it; stored outputs would be those of some older version."""
    cells = json.loads(path.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_opens_in_colab_and_installs_the_package_there(path: Path) -> None:
    """The badge leads to this file of the repository; the first code names its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    repository = project["urls"]["Repository"]
    about, install = ("".join(cell["source"]) for cell in json.loads(path.read_text())["cells"][:2])

    file = path.relative_to(ROOT).as_posix()
    address = f"{repository.removeprefix('https://')}/blob/main/{file}"
    assert (
        f"](https://colab.research.google.com/{address.replace('github.com', 'github')})" in about
    )
    [(extras, source)] = re.findall(r'%pip install --quiet "weft(\S*) @ git\+(\S+)"', install)
    assert source == repository
    assert {*re.findall(r"\w+", extras)} <= {*project["optional-dependencies"]}
