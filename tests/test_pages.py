"""The pages for beginners: their commands and examples run, on small files."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import weft
from weft.runtime.cli.main import main

DOCS = Path(__file__).parents[1] / "docs"
SHORT = ("--set", "updates=2", "--set", "evaluate.every=2", "--set", "threads=1")


def page(name: str) -> str:
    """Return the text of a page."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def commands(name: str, heading: str = "# ") -> list[list[str]]:
    """Return the first commands of a page below a heading, as words after `weft`."""
    [block] = re.findall(r"^```\n(.*?)^```", page(name).partition(heading)[2], re.S | re.M)[:1]
    written = (re.split(r"  +#", line)[0] for line in block.splitlines())
    return [shlex.split(line)[1:] for line in written if line.startswith("weft ")]


def run(words: list[str]) -> None:
    """Run a command; a training has two updates."""
    assert main([*words, *(SHORT if words[0] == "train" else ())]) == 0, words


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files that the pages name, which is the current one."""
    monkeypatch.chdir(tmp_path)
    numbers = [f"{a} {b}" for a in ("one", "two", "three", "four", "five") for b in range(10)]
    for name in ("train.en", "train.fr"):
        Path(name).write_text("".join(f"{number}\n" for number in numbers))
    for name, label in (("reviews", "{}"), ("more", "{} or more")):
        rows = [f"{number},{label.format(at % 2)}" for at, number in enumerate(numbers)]
        fields = "review,stars" if name == "reviews" else "text,label"
        Path(f"{name}.csv").write_text("\n".join([fields, *rows]) + "\n")
    return tmp_path


@pytest.mark.slow
def test_the_first_commands_train_a_translator(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """They are what a new user types first; the third one reads a line from a pipe."""
    for words in commands("own-files")[:2]:
        run(words)
    line = [sys.executable, "-m", "weft", "translate", "outputs/translation"]

    done = subprocess.run(line, input=b"one 2\n", capture_output=True, check=True, timeout=300)

    assert done.stdout.count(b"\n") == 1
    assert b"test: 2 rows" in capfdbinary.readouterr().err


@pytest.mark.slow
def test_the_python_example_trains_a_translator() -> None:
    """It is the same in Python."""
    [example] = re.findall(r"^```python\n(.*?)^```", page("own-files"), re.S | re.M)

    exec(compile(example, "own-files.md", "exec"), {})

    assert Path("outputs/translation/averaged").is_dir()


@pytest.mark.slow
def test_a_classifier_is_fine_tuned_with_new_classes() -> None:
    """The page's commands begin with the model of the other page's commands."""
    for words in commands("own-files", "name them:"):
        run(words)

    for words in commands("fine-tuning"):
        run(words)

    model = weft.open("outputs/more")
    assert model.predict([{"text": "one 2"}])[0] in ("0 or more", "1 or more")


@pytest.mark.slow
def test_lora_trains_beside_a_frozen_translator() -> None:
    """The matrices are merged at the end."""
    for words in commands("own-files")[:2]:
        run(words)
    Path("outputs/translation").rename("outputs/old")

    for words in commands("fine-tuning", "## LoRA"):
        run(words)

    assert weft.open("outputs/merged").translate(["one 2"])


@pytest.mark.integration
def test_a_run_names_a_reader_and_a_column_of_a_new_package(folder: Path) -> None:
    """The package is written by the page's command, and found as pip installs it."""
    for words in commands("own-reader"):
        run(words)
    package = folder / "word-count"
    about = package / "word_count-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: word-count\nVersion: 0.1.0\n")
    project = (package / "pyproject.toml").read_text()
    points = project.partition("[project.entry-points.")[2].partition("[tool")[0]
    lines = f"[{points}".replace("[project.entry-points.", "[").replace('"', "")
    (about / "entry_points.txt").write_text(lines)
    [written] = re.findall(r"^```json run.json\n(.*?)^```", page("own-reader"), re.S | re.M)
    Path("run.json").write_text(written)
    for name in ("train.txt", "valid.txt"):
        Path(name).write_text("a dog\nruns\n\nit rains\n")

    done = subprocess.run(
        [sys.executable, "-m", "weft", "check", "run.json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(package)},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("words: valid")
