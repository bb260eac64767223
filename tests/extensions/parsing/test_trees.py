"""`weft trees` and `weft score-trees`: output, files and errors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from weft.runtime.cli.main import main

RAW = "( (S (NP-SBJ (DT the) (NN dog)) (VP (VBZ runs) (NP (-NONE- *)))))\n"


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return a treebank of two trees."""
    path = tmp_path / "bank.trees.gz"
    path.write_bytes(gzip.compress((RAW * 2).encode()))
    return path


def test_counts_of_a_treebank(bank: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --form, the command prints counts."""
    assert main(["trees", str(bank), "--clean"]) == 0

    assert capsys.readouterr().out.startswith("2 trees, 6 words, longest 3, deepest 2, 0 unary")


@pytest.mark.parametrize(
    ("form", "line"),
    [
        ("line", "(TOP (S (NP (DT the) (NN dog)) (VP (VBZ runs))))"),
        ("words", "the dog runs"),
        ("vinyals", "(S (NP XX XX )NP (VP XX )VP )S"),
        ("tensor2tensor", "S NP DT NN /NP VP VBZ /VP /S"),
        ("top_down", "(S (NP the dog ) (VP runs ) )"),
    ],
)
def test_trees_in_every_form(
    bank: Path, form: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each form prints one line per tree."""
    assert main(["trees", str(bank), "--clean", "--form", form]) == 0

    assert capsys.readouterr().out == (line + "\n") * 2


def test_words_are_written_as_in_the_treebank(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Treebanks differ in what they escape, so an unescaped word could not be written back."""
    bank = tmp_path / "bank.trees"
    bank.write_text("(S (-LRB- -LSB-) (-LRB- [) (CD 1\\/2) (CD 1/2) (NN f-LRB-x-RRB-))\n")

    assert main(["trees", str(bank), "--form", "words"]) == 0

    assert capsys.readouterr().out == "-LSB- [ 1\\/2 1/2 f-LRB-x-RRB-\n"


def test_malformed_trees_are_reported_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning has file, line and column; other trees are written; the exit code is 1."""
    bank, out = tmp_path / "bad.trees", tmp_path / "out"
    bank.write_text(RAW + "(NP (NN a b))\n" + RAW, encoding="utf-8")

    assert main(["trees", str(bank), "-o", str(out)]) == 1

    assert out.read_text(encoding="utf-8").count("\n") == 2
    printed = capsys.readouterr().err
    assert "bad.trees: line 2, column 5: tag 'NN' has 2 words" in printed
    assert "1 malformed" in printed


def test_a_report_as_evalb_lays_it_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The report has a header, rows, totals and two summaries."""
    gold, test = tmp_path / "gold", tmp_path / "test"
    gold.write_text("(S (NP (NN a)) (VP (VB b)))\n" * 2, encoding="utf-8")
    test.write_text("(S (NP (NN a)) (VB b))\n(S (NP (NN c)) (VB b))\n", encoding="utf-8")

    assert main(["score-trees", str(gold), str(test)]) == 0

    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert (
        lines[3] == "   1    2    0   66.67 100.00     2      3    2      0      2     2   100.00"
    )
    assert "Number of Error sentence  =      1" in lines
    assert "Bracketing FMeasure       =  80.00" in lines
    assert "line 2: 'c' instead of 'a'" in printed.err

    assert main(["score-trees", str(gold), str(test), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["all"]["f1"] == pytest.approx(80)
    assert found["errors"] == [{"line": 2, "problem": "'c' instead of 'a'"}]


def test_files_of_different_lengths_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise parses would be scored against the wrong sentences."""
    gold, test, out = tmp_path / "gold", tmp_path / "test", tmp_path / "out"
    gold.write_text("(S (NN a))\n" * 2, encoding="utf-8")
    test.write_text("(S (NN a))\n", encoding="utf-8")

    assert main(["score-trees", str(gold), str(test), "-o", str(out)]) == 1

    assert "1 parses for 2 gold trees" in capsys.readouterr().err
    assert not out.exists()


def test_malformed_gold_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the line and the command that puts each tree on one line."""
    gold = tmp_path / "gold"
    gold.write_text("(S (NN a))\n(S (NN a)\n", encoding="utf-8")

    assert main(["score-trees", str(gold), str(gold)]) == 1

    printed = capsys.readouterr().err
    assert "gold:2" in printed
    assert "never closed" in printed
