"""Tests of `weft check`: warnings, fixes of files, and explanations of codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.runtime.cli.main import main
from weft.runtime.spec.check import PAGE
from weft.specs.reader import SHIPPED, shipped_names

Capture = pytest.CaptureFixture[str]

WRONG = """{
  "format": 1,
  // labels for words
  "name": "mine",
  "params": {"d_model": 16, "vocab": 100, "layers": "2"},
  "axes": {"B": "batch", "T": "time"},
  "inputs": {"words": "ids:vocb[B T]"},
  "outputs": {"labels": "head.x"},
  "blocks": {
    "layer": {
      "inputs": {"x": "f[B T d_model]"},
      "outputs": {"x": "ff.y"},
      "nodes": {
        "att": {
          "use": "sublayer@1", "in": {"x": "x"},
          "fill": {"f": {"use": "atention@1", "params": {"hedas": 2},
            "fill": {"position": {"use": "rotary@1"}}}},
        },
        "ff": {
          "use": "sublayer@1", "in": {"x": "att.y"},
          "fill": {"f": {"use": "feed_forward@1", "parms": {"d_ff": "d_model"}}}
        }
      }
    }
  },
  "nodes": {
    "embed": {"use": "embedding@1", "in": {"ids": "words.y"}, "params": {"d_model": "=d_modle"}},
    "stack": {"repeat": "layers", "block": "layer", "carry": "x", "in": {"x": "embed.y"}},
    "head": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": "7"}}
  }
}
"""
RIGHT = (
    WRONG.replace('"layers": "2"', '"layers": 2')
    .replace("vocb", "vocab")
    .replace("head.x", "head.y")
    .replace("atention", "attention")
    .replace("hedas", "heads")
    .replace("parms", "params")
    .replace('"d_model"}}}', '"=d_model"}}}')
    .replace("words.y", "words")
    .replace("=d_modle", "=d_model")
    .replace('"repeat": "layers"', '"repeat": "=layers"')
    .replace('"carry": "x"', '"carry": ["x"]')
    .replace('"7"', "7")
)
"""The same text with twelve mistakes corrected."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a file with twelve mistakes that can only be corrected in one way."""
    path = tmp_path / "mine.json"
    path.write_text(WRONG, encoding="utf-8")
    return path


def test_fix_corrects_what_is_certain(file: Path, capsys: Capture) -> None:
    """Comments and formatting stay, and each correction is printed with its place."""
    assert main(["check", "--fix", str(file)]) == 0

    assert file.read_text(encoding="utf-8") == RIGHT
    printed = capsys.readouterr()
    assert "mine: valid" in printed.out
    lines = [line for line in printed.err.splitlines() if line.startswith("fixed")]
    assert len(lines) == 12
    column = WRONG.splitlines()[15].index('"hedas"') + 1
    text = f"fixed {file}:16:{column}: attention@1 has no param 'hedas'; renamed to 'heads'"
    assert text in lines
    assert main(["check", "--fix", str(file)]) == 0
    assert capsys.readouterr().err == ""


def test_without_fix_the_file_stays(file: Path, capsys: Capture) -> None:
    """And `--json` has every correction as a JSON Patch."""
    assert main(["check", str(file), "--json"]) == 1

    assert file.read_text(encoding="utf-8") == WRONG
    findings = json.loads(capsys.readouterr().out)["findings"]
    fixes = {each["pointer"]: each["fix"] for each in findings}
    assert fixes["/inputs/words"] == {
        "certain": True,
        "patch": [{"op": "replace", "path": "/inputs/words", "value": "ids:vocab[B T]"}],
    }


def test_fix_leaves_what_may_have_been_meant_otherwise(tmp_path: Path, capsys: Capture) -> None:
    """A param that nothing reads may be superfluous, or its reader may be missing."""
    path = tmp_path / "mine.json"
    text = RIGHT.replace('"vocab": 100', '"vocab": 100, "width": 5')
    path.write_text(text, encoding="utf-8")

    assert main(["check", "--fix", str(path)]) == 1

    assert path.read_text(encoding="utf-8") == text
    assert "W08" in capsys.readouterr().err


def test_fix_corrects_a_child_but_not_its_parent(tmp_path: Path, capsys: Capture) -> None:
    """A key in a patch contains the path to it."""
    parent = json.loads((SHIPPED / "models/transformer-tiny.json").read_text(encoding="utf-8"))
    parent["name"] = "parent"
    (tmp_path / "parent.json").write_text(json.dumps(parent))
    patch = {"select": "**[use=sublayer@1]", "set": {"params.order": "prre"}}
    child = {"format": 1, "name": "child", "extends": "parent", "params": {"layrs": 3}}
    path = tmp_path / "child.json"
    path.write_text(json.dumps({**child, "patch": [patch]}))

    assert main(["check", "--fix", str(path), "-q"]) == 0

    value = json.loads(path.read_text())
    assert value["params"] == {"layers": 3}
    assert value["patch"][0]["set"] == {"params.order": "pre"}
    assert "D06" not in capsys.readouterr().err  # --quiet


def test_fix_corrects_a_run(tmp_path: Path) -> None:
    """A misspelled key is found before the files are looked for."""
    path = tmp_path / "run.json"
    text = shipped_names("runs")["multi30k-en-de"].read_text(encoding="utf-8")
    value: dict[str, Any] = json.loads(text)
    value["evalute"] = value.pop("evaluate")
    path.write_text(json.dumps(value, indent=2))

    main(["check", "--fix", str(path)])

    made = json.loads(path.read_text())
    assert made == json.loads(text)


@pytest.mark.parametrize("name", ["transformer-base", "-"])
def test_only_files_of_the_user_are_fixed(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a shipped spec nor the standard input."""
    import io  # noqa: PLC0415

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(WRONG.encode())))

    assert main(["check", "--fix", name]) == 1
    assert "cannot be fixed" in capsys.readouterr().err


def test_warnings_are_printed_and_change_the_exit_code_on_demand(
    tmp_path: Path, capsys: Capture
) -> None:
    """With `--strict`; a finding says whether it is a warning."""
    path = tmp_path / "mine.json"
    position = ',\n            "fill": {"position": {"use": "rotary@1"}}'
    path.write_text(RIGHT.replace(position, ""), encoding="utf-8")

    assert main(["check", str(path)]) == 0
    printed = capsys.readouterr()
    assert "warning[D03]" in printed.err
    assert "mine: valid" in printed.out
    assert main(["check", str(path), "--strict", "--json"]) == 1
    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["level"], finding["line"]) == ("warning", 16)
    assert [each.code for each in weft.check(path).warnings] == ["D03"]
    assert weft.check(path).errors == []
    path.write_text(path.read_text().replace('"name"', '"allow": ["D03"],\n  "name"'))
    assert main(["check", str(path), "--strict"]) == 0


def test_explain_prints_the_paragraph_of_a_code(capsys: Capture) -> None:
    """As it stands in the documentation."""
    assert main(["check", "--explain", "t03"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "T03"
    text = PAGE.read_text(encoding="utf-8")
    assert "\n".join(lines[1:]) in text
    assert main(["check", "--explain", "T99"]) == 1
    assert "no finding has the code 'T99'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--explain", "T03", "transformer-base"], []])
def test_check_needs_specs_or_a_code(words: list[str], capsys: Capture) -> None:
    """A wrong command line."""
    assert main(["check", *words]) == 2
    assert "SPEC" in capsys.readouterr().err or words
