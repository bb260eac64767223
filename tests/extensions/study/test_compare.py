"""The command `weft compare` on files of outputs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from weft.runtime.cli.main import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    """Write references, good and bad outputs of two seeds, into a folder."""
    rng = random.Random(0)
    lines = [rng.choices("abcdefgh", k=6) for _ in range(40)]
    (tmp_path / "ref").write_text("".join(" ".join(line) + "\n" for line in lines))
    for name, noise in (("good1", 0.1), ("good2", 0.1), ("bad1", 0.6), ("bad2", 0.6)):
        made = [[w if rng.random() > noise else "x" for w in line] for line in lines]
        (tmp_path / name).write_text("".join(" ".join(line) + "\n" for line in made))
    return tmp_path


def words(outputs: Path, first: str, second: str, *more: str) -> list[str]:
    """Return the words of a command line."""
    sides = [",".join(str(outputs / one) for one in text.split(",")) for text in (first, second)]
    return ["compare", *sides, "--reference", str(outputs / "ref"), *more]


@pytest.mark.integration
def test_one_seed_and_several_are_compared(outputs: Path, capsys: Capture) -> None:
    """The verdict is about B; the test depends on the number of seeds."""
    assert main(words(outputs, "good1", "bad1", "--metric", "chrf", "--metric", "wer")) == 0
    text = capsys.readouterr().out
    assert text.count("B is worse") == 2
    assert "approximate randomization over 40 examples" in text

    assert main(words(outputs, "bad1,bad2", "good1,good2", "--metric", "chrf", "--json")) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert found["verdict"] == "better"
    assert found["test"].startswith("t test over 2 and 2 seeds")
    assert found["low"] < found["difference"] < found["high"]


@pytest.mark.integration
@pytest.mark.parametrize(("first", "second"), [("good1", "good1"), ("good1,good2", "good2,good1")])
def test_equal_outputs_are_called_so(
    first: str, second: str, outputs: Path, capsys: Capture
) -> None:
    """There is no difference to test, and none that would have been detected."""
    assert main(words(outputs, first, second)) == 0

    score, said = capsys.readouterr().out.splitlines()
    assert score.startswith("bleu: A ")
    assert said == "  A and B have the same predictions"
    assert main(words(outputs, "good1", "good1", "--json")) == 0
    [found] = json.loads(capsys.readouterr().out)
    assert (found["difference"], found["detectable"]) == (0.0, None)


@pytest.mark.integration
def test_a_seed_given_twice_is_not_another(outputs: Path, capsys: Capture) -> None:
    """Both systems have the first seed, and one has it twice."""
    assert main(words(outputs, "good1,good1", "good1,good2")) == 0

    assert "same predictions" not in capsys.readouterr().out


def test_wrong_uses_are_refused(outputs: Path, capsys: Capture) -> None:
    """Without references, with other numbers of lines, and with a metric of losses."""
    assert main(["compare", str(outputs / "good1"), str(outputs / "bad1")]) == 2
    (outputs / "short").write_text("a\n")
    assert main(words(outputs, "good1", "short")) == 1
    assert main(words(outputs, "good1", "bad1", "--metric", "nll")) == 1
    assert "cannot be computed from outputs" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [("--test", "valid"), ("--data-root", "x"), ("--device", "cpu"), ("--precision", "float32")],
)
def test_options_of_checkpoints_are_refused_for_files(
    option: str, value: str, outputs: Path, capsys: Capture
) -> None:
    """No model is opened, so they would be ignored."""
    assert main(words(outputs, "good1", "bad1", option, value)) == 2
    assert f"'{option}': it has no effect on files of outputs" in capsys.readouterr().err


def test_a_system_that_does_not_exist_is_named(outputs: Path, capsys: Capture) -> None:
    """It is not taken for a checkpoint beside a file."""
    assert main(words(outputs, "good1", "nowhere")) == 1
    said = capsys.readouterr().err
    assert "does not exist" in said
    assert str(outputs / "nowhere") in said
