"""The README: its Python example runs, and it shows the finding that is printed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from weft.examples.spelled_numbers import write_corpus
from weft.runtime.cli.main import main

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the README's code blocks of a language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    return [text for named, text in found if named == language]


@pytest.mark.integration
def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs unchanged, on a small corpus of the kind that `make demo` writes."""
    if shutil.which("dot") is None:
        pytest.skip("the example draws, which needs graphviz's dot")
    write_corpus(tmp_path / "outputs/demo/corpus", train=1500, valid=20, test=20, seed=1)
    monkeypatch.chdir(tmp_path)
    [example] = blocks("python")

    exec(compile(example, "README.md", "exec"), {})

    assert (tmp_path / "outputs/tiny.svg").read_text().startswith("<?xml")
    assert (tmp_path / "outputs/quick/averaged/weights.safetensors").is_file()


def test_the_finding_shown_is_the_finding_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The README's finding equals the printed one except for the folder."""
    [shown] = [block for block in blocks("text") if "E05" in block]

    assert main(["check", "transformer-base", "--set", "heads=7"]) == 1

    printed = capsys.readouterr().err
    for line in shown.strip().splitlines():
        assert line.replace("  --> ", "") in printed
