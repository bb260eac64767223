"""The `weft` command: help texts, exit codes, and errors that name the place."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.cli.main import main, parser
from weft.runtime.train.run import Run

Capture = pytest.CaptureFixture[str]


def command_names() -> list[str]:
    """Return the names of all commands."""
    actions = [a for a in parser()._actions if a.dest == "command"]
    return list(actions[0].choices or ())


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_help_with_an_example(name: str, capsys: Capture) -> None:
    """`--help` exits 0 and shows an example."""
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])

    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert f"example:\n  weft {name}" in text
    assert "exit codes" in text


def test_a_wrong_command_exits_2(capsys: Capture) -> None:
    """Exit code 2 means a wrong command line, 1 a wrong input."""
    with pytest.raises(SystemExit) as caught:
        main(["chekc"])

    assert caught.value.code == 2
    assert "invalid choice" in capsys.readouterr().err


def test_check_says_that_a_shipped_spec_is_sound(capsys: Capture) -> None:
    """63,082,496 parameters: the paper's base model with a vocabulary of 37000, biases included."""
    assert main(["check", "transformer-base"]) == 0
    assert "63,082,496 parameters" in capsys.readouterr().out


def test_check_prints_every_mistake_and_exits_1(tmp_path: Path, capsys: Capture) -> None:
    """Each finding has a suggestion, and a count follows."""
    spec = {
        "format": 2,
        "name": "bad",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 4]"},
        "outputs": {"y": "b.y"},
        "nodes": {
            "a": {"use": "liner@1", "in": {"x": "x"}, "params": {"d_out": 3}},
            "b": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_uot": 3, "d_out": 2}},
            "c": {"use": "dropout@1", "in": {"x": "b.y"}, "params": {"dropout": 0.5}},
        },
    }
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(spec))

    assert main(["check", str(path)]) == 1

    text = capsys.readouterr().err
    assert "did you mean 'linear@1'?" in text
    assert "did you mean 'd_out'?" in text
    assert f"{path}#/nodes/b/params/d_uot" in text
    assert "mistakes found" in text


def test_check_json_is_for_editors(tmp_path: Path, capsys: Capture) -> None:
    """Findings are printed as data, and the exit code is 1."""
    path = tmp_path / "bad.json"
    path.write_text('{"format": 2, "name": "x", "axes": {}, "inputs": {}, "nodes": {}}')

    code = main(["check", str(path), "--json"])

    assert code == 1
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert findings[0]["problem"] == "key 'outputs' is missing"


def test_a_missing_file_is_an_input_error(capsys: Capture) -> None:
    """A misspelled shipped name gives a suggestion."""
    assert main(["show", "transformer-bass"]) == 1
    assert "did you mean 'transformer-base'?" in capsys.readouterr().err


def test_expand_gives_a_spec_that_checks(tmp_path: Path, capsys: Capture) -> None:
    """The full form is itself a spec, and expanding it again changes nothing."""
    assert main(["expand", "transformer-tiny", "--set", "layers=2"]) == 0
    first = capsys.readouterr().out
    path = tmp_path / "full.json"
    path.write_text(first)

    assert main(["check", str(path)]) == 0
    capsys.readouterr()
    assert main(["expand", str(path)]) == 0
    assert capsys.readouterr().out == first


def test_blocks_lists_and_describes(capsys: Capture) -> None:
    """The list has one line per block; one block shows ports, params and source."""
    assert main(["blocks"]) == 0
    assert "attention@1" in capsys.readouterr().out
    assert main(["blocks", "attention"]) == 0
    text = capsys.readouterr().out
    assert "mask[b s]?" in text
    assert "Vaswani et al. 2017" in text
    assert main(["blocks", "atention"]) == 1
    assert "did you mean 'attention@1'?" in capsys.readouterr().err


def test_spec_commands_load_no_torch() -> None:
    """Checking, showing and drawing to DOT start fast without torch."""
    code = (
        "import sys; from weft.runtime.cli.main import main; "
        "codes = [main(['check', 'transformer-base']), main(['show', 'transformer-tiny']), "
        "main(['expand', 'transformer-big']), main(['blocks', 'linear'])]; "
        "sys.exit('torch' in sys.modules or any(codes))"
    )

    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)

    assert done.returncode == 0


def test_trains_evaluates_averages_and_translates(
    toy_run: Callable[..., Run],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The main commands in order, on a toy run; every reported file exists."""
    run = tmp_path / "toy.json"
    run.write_text(json.dumps(toy_run().model_dump(mode="json")))
    out = tmp_path / "out"

    assert main(["train", str(run), "--out", str(out), "--set", "updates=8"]) == 0
    printed = capsys.readouterr().err
    assert "all 8 updates done" in printed
    assert (out / "curves.png").is_file()

    assert main(["evaluate", str(out / "averaged"), "--json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["lines"] == 10
    assert set(report["scores"]) == {"bleu", "bleu_lc", "chrf"}
    assert report["perplexity"] > 1

    pair = [str(out / "checkpoints" / name) for name in ("000004", "000008")]
    assert main(["average", *pair, "-o", str(tmp_path / "mean")]) == 0
    capsys.readouterr()

    class Stdin:
        buffer = io.BytesIO(b"sun moon\n\n\xff\xfe\ntree")

    monkeypatch.setattr(sys, "stdin", Stdin())
    code = "translate"
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert main([code, str(tmp_path / "mean")]) == 0
    written = sys.stdout.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert written.count("\n") == 4
    assert written.split("\n")[1:3] == ["", ""]
    assert "line 3: not UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"updats": 3}, "did you mean 'updates'?"),
        ({"optimizer": {"beta": 3}}, "did you mean 'betas'?"),
        ({"schedule": {"type": "noam", "warmpu": 3}}, "did you mean 'warmup'?"),
        ({"format": 3}, "unknown format 3"),
        ({"spec": "../../etc/passwd.json"}, "is outside the run's folder"),
        ({"spec": "transformer-tinny"}, "did you mean 'transformer-tiny'?"),
        ({"params": {"layer": 2}}, "did you mean 'layers'?"),
    ],
)
def test_a_wrong_run_says_where_and_what(
    change: dict[str, Any],
    words: str,
    toy_run: Callable[..., Run],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """The exit code is 1, the message has place and fix, and no partial folder is left."""
    run = tmp_path / "toy.json"
    run.write_text(json.dumps({**toy_run().model_dump(mode="json"), **change}))

    assert main(["train", str(run), "--out", str(tmp_path / "out")]) == 1

    assert words in capsys.readouterr().err
    assert not (tmp_path / "out" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda d: (d / "train.tgt").unlink(), "train.tgt"),
        (lambda d: (d / "train.tgt").write_text("sun\n"), "200"),
        (lambda d: (d / "train.src").write_bytes(b"\xff\n" * 200), "train.src:1"),
    ],
)
def test_bad_text_names_file_and_line(
    edit: Callable[[Path], Any],
    words: str,
    toy_run: Callable[..., Run],
    tmp_path: Path,
    capsys: Capture,
) -> None:
    """Missing files, unequal lengths and invalid UTF-8 are reported."""
    run = tmp_path / "toy.json"
    run.write_text(json.dumps(toy_run().model_dump(mode="json")))
    edit(tmp_path / "data")

    assert main(["prepare", str(run), "--out", str(tmp_path / "out")]) == 1

    assert words in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named(
    toy_run: Callable[..., Run], tmp_path: Path, capsys: Capture
) -> None:
    """The error is a message without a traceback."""
    run = tmp_path / "toy.json"
    run.write_text(json.dumps(toy_run().model_dump(mode="json")))

    for command in ("prepare", "train"):
        assert main([command, str(run), "--out", str(run / "out")]) == 1
        printed = capsys.readouterr().err
        assert "error: cannot read or write it: Not a directory" in printed
        assert str(run) in printed
