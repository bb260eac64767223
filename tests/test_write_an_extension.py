"""docs/write-an-extension.md: its files form packages whose parts every command can use."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "write-an-extension.md").read_text(encoding="utf-8")
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
    """Each file of the block has about twenty lines, docstrings aside."""
    assert {name for name in FILES if not name.startswith("word-count/")} == {
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


SENTENCES = "the sun is warm\nand the moon is cold\n\na river\n\nstones lie in the river\n"
COMMANDS = """
import contextlib, io, json
from weft.runtime.cli.main import main
def call(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*words])
    print(json.dumps([code, out.getvalue(), err.getvalue()]))
"""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed package of the page, its run, and data."""
    folder = write(tmp_path_factory.mktemp("stranger")) / "word-count"
    about = folder / "word_count-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: word-count\nVersion: 0.1.0\n")
    groups = tomllib.loads(FILES["word-count/pyproject.toml"])["project"]["entry-points"]
    lines = [
        line
        for group, points in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in points.items()))
    ]
    (about / "entry_points.txt").write_text("\n".join(lines))
    for name in ("train.txt", "valid.txt"):
        (folder / name).write_text(SENTENCES * 4)
    return folder


def called(folder: Path, *lines: str) -> list[tuple[int, str, str]]:
    """Return the exit code and the outputs of each command line, all called in one process."""
    calls = "\n".join(f"call(*{line.split()!r})" for line in lines)
    printed = run(folder, folder, "-c", COMMANDS + calls)
    return [tuple(json.loads(line)) for line in printed.splitlines()]


def test_the_package_needs_weft_and_its_plugin_alone() -> None:
    """Other modules of Weft may change in any release."""
    for name, text in FILES.items():
        for module in re.findall(r"^\s*(?:from|import) (weft\S*)", text, re.MULTILINE):
            assert module in ("weft", "weft.plugin"), name


@pytest.mark.integration
def test_what_a_package_adds_is_listed_checked_and_described(stranger: Path) -> None:
    """With its docstrings, in errors, and in the JSON Schema of runs."""
    wrong = json.loads(FILES["word-count/run.json"])
    wrong["data"]["columns"]["number"]["unti"] = 2
    wrong["data"]["valid"] = {"paragrahs": {"files": ["valid.txt"]}}
    (stranger / "wrong.json").write_text(json.dumps(wrong))

    listed, valid, refused, schema, counted, unknown = called(
        stranger,
        "list",
        "check run.json",
        "check wrong.json",
        "schema run",
        "count-words train.txt",
        "count-words none.txt",
    )

    for kind in ("words", "paragraphs", "rounded", "near", "npz", "signum"):
        assert re.search(rf"^  {kind} .*\(from word-count\)$", listed[1], re.MULTILINE), kind
    assert valid[0] == 0, valid[2]
    assert "words: valid; trains bert-regressor" in valid[1]
    assert refused[0] == 1
    assert "unknown key 'unti'" in refused[2]
    assert "did you mean 'paragraphs'?" in refused[2]
    assert "Number of words that count as 1." in schema[1]
    assert "Paragraphs of text files" in schema[1]
    assert counted[:2] == (0, "64 words\n")  # 4 times 4 + 5 + 2 + 5
    assert unknown[0] == 1
    assert "none.txt" in unknown[2]


@pytest.mark.integration
def test_a_run_trains_and_resumes_with_an_optimizer_of_a_package(stranger: Path) -> None:
    """Beside another one, with an option that changes; its options are checked as those of ours."""
    wrong = json.loads(FILES["word-count/run.json"])
    wrong["optimizer"]["groups"][0] |= {"momentun": 0.9}
    (stranger / "wrong-option.json").write_text(json.dumps(wrong))

    refused, straight, half, again = called(
        stranger,
        "check wrong-option.json",
        "train run.json --out straight --set updates=4",
        "train run.json --out halves --set updates=4 --set checkpoint.every=2 --set trackers=[]",
        "show run.json",
    )

    assert "unknown key 'momentun'" in refused[2]
    assert "did you mean 'momentum'?" in refused[2]
    assert straight[0] == half[0] == 0, straight[2]
    assert "**[dim=2]: signum (weight_decay 0, momentum changes)" in again[1]
    shutil.rmtree(stranger / "halves/checkpoints/000004")
    [resumed] = called(stranger, "train run.json --out halves --set updates=4 --resume")
    assert resumed[0] == 0, resumed[2]
    files = [stranger / name / "checkpoints/000004" for name in ("straight", "halves")]
    for name in ("weights.safetensors", "optimizer.safetensors"):
        assert (files[0] / name).read_bytes() == (files[1] / name).read_bytes()
    assert b".mean" in (files[0] / "optimizer.safetensors").read_bytes()


@pytest.mark.integration
def test_a_run_trains_predicts_and_exports_with_a_package(stranger: Path) -> None:
    """Its column and reader, its metric and predictor, and its target in turn."""
    text = stranger / "rows.jsonl"
    text.write_text(json.dumps({"text": "a river"}) + "\n")

    trained, predicted, exported, unknown, idle = called(
        stranger,
        "train run.json --out out",
        "predict out/averaged rows.jsonl -o answers.jsonl",
        "export out/averaged --to npz -o arrays --compressed",
        "export out/averaged --to npz -o other --quantization int8",
        "export out/averaged --to onnx -o other --compressed",
    )

    assert trained[0] == 0, trained[2]
    assert '"near"' in (stranger / "out/metrics.jsonl").read_text()
    assert predicted[0] == 0, predicted[2]
    answer = (stranger / "answers.jsonl").read_text()
    assert re.fullmatch(r"\D*-?\d+\D*", answer), answer  # a whole number
    assert exported[0] == 0, exported[2]
    with np.load(stranger / "arrays/weights.npz") as arrays:
        assert arrays.files
    assert unknown[0] == idle[0] == 2
    assert "it has no effect with --to onnx, only with" in idle[2]
