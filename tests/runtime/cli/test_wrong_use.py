"""Wrong uses of the command line: each names the cause and a way out.

Exit code 2 is a wrong command line, found before anything is read; 1 is a wrong input.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weft.runtime.cli.main import main

COMMAND_LINE: list[tuple[str, str]] = [
    ("chekc transformer-base", "No such command 'chekc'. Did you mean 'check'"),
    ("tain demo", "Did you mean 'train'"),
    ("check", "name a spec or a run"),
    ("check --explain T03 --strict", "it takes no specs, and no other option but --json"),
    ("check transformer-base --sett layers=2", "No such option"),
    ("check transformer-base --sett layers=2", "--set"),
    ("check transformer-base --set layers", "'layers' is not PATH=VALUE, such as layers=4"),
    ("check transformer-base --set =4", "'=4' is not PATH=VALUE"),
    ("show transformer-base transformer-tiny", "unexpected extra argument"),
    (
        "list blokcs",
        "'exporters', not 'blokcs'",
    ),
    ("blocks", "Missing argument 'BLOCK'"),
    ("draw transformer-base", "Missing option '--out'"),
    ("draw transformer-base -o x.svg --form fancy", "must be 'folded', 'typed' or 'expanded'"),
    ("diff transformer-base", "Missing argument 'OTHER'"),
    ("swap transformer-base decoder -o x.json", "Missing option '--use'"),
    ("swap transformer-base x --use y@1 -o x.json --expect 0", "must be at least 1, not '0'"),
    ("cost transformer-base --axes S", "'S' is not the size of an axis, such as S=40"),
    ("cost transformer-base --precision float64", "must be 'float32' or 'bfloat16'"),
    ("cost transformer-base --devices 8", "has an effect only with --project"),
    ("cost wmt14-en-de-base --project --measure", "has no effect with --project"),
    ("cost wmt14-en-de-base --project --speed fast", "must be a number, not 'fast'"),
    ("prepare demo --processes none", "must be a whole number, not 'none'"),
    ("train demo --profile-updates 3", "has an effect only with --profile"),
    ("train demo --profile --resume", "has no effect with --profile"),
    ("demo --updates 0", "must be at least 1, not '0'"),
    ("translate", "Missing argument 'CHECKPOINT'"),
    ("translate x --beam 0", "Invalid value for '--beam': it must be at least 1, not '0'"),
    ("translate x --beam two", "must be a whole number, not 'two'"),
    ("translate x --alpha -1", "must be at least 0, not '-1'"),
    ("translate x --alpha nan", "must be a finite number"),
    ("translate x --top-p 1.5", "must be at most 1, not '1.5'"),
    ("translate x --temperature 0", "must be at least 0.01, not '0'"),
    ("translate x --top-p 0", "must be greater than 0, not '0'"),
    ("translate x --penalty gmnt", "must be 'gnmt', 'length' or 'none', not 'gmnt'"),
    ("translate x --device tpu", "must be 'auto', 'cpu' or 'cuda'"),
    ("generate x --min-p 1", "must be less than 1, not '1'"),
    ("score x --source a", "Missing option '--target'"),
    ("evaluate x --source a", "needs both --source and --target"),
    ("evaluate-parser x --each --json", "Invalid value for '--each': it has no effect with --json"),
    ("parse x --pretty --json", "cannot be combined with --json"),
    ("trees x --form lisp", "must be 'line', 'pretty'"),
    ("prune x --heads encoder.0.f -o y", "is not a path and heads, such as encoder.0.f:0,3"),
    ("import tf folder", "must be 'hf', not 'tf'"),
    (
        "export x --to tflite -o y",
        "no target 'tflite'; known: ctranslate2, huggingface, onnx, peft",
    ),
    ("export x --to onnx -o y --quantization int8", "has no effect with --to onnx"),
    ("serve x --port 70000", "must be at most 65535, not '70000'"),
    ("serve x --max-texts 0", "Invalid value for '--max-texts': it must be at least 1"),
]


@pytest.mark.integration
@pytest.mark.parametrize(("line", "said"), COMMAND_LINE, ids=[line for line, _ in COMMAND_LINE])
def test_a_wrong_command_line_exits_2(
    line: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the option, and gives what to write; nothing is printed on stdout."""
    monkeypatch.setenv("COLUMNS", "200")

    assert main(line.split()) == 2

    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.out == ""
    assert "Input should" not in printed.err


INPUTS: list[tuple[str, str, str]] = [
    ("check transformer-bas", "neither a file nor shipped", "did you mean 'transformer-base'?"),
    ("check {tmp}/none.json", "no such file", "did you mean"),
    ("check {tmp}", "this is a folder", "give the path of a file in it"),
    ("check {tmp}/broken.json", "S01", "broken.json:1:14"),
    ("check transformer-base --set heads=7", "'d_model % heads == 0' does not hold", "change one"),
    ("check transformer-base --set head=7", "head", "did you mean 'heads'?"),
    ("check transformer-base --set layers=many", "not a whole number", "help: write"),
    ("blocks atention", "unknown block 'atention'", "did you mean 'attention@1'?"),
    ("draw transformer-tiny -o {tmp}/x.bmp", ".bmp", ".svg"),
    ("draw transformer-tiny -o {tmp}/x.dot --node encodr", "no node 'encodr'", "'encoder'?"),
    ("draw transformer-tiny -o {tmp}/x.dot --node head", "has no drawing", "encoder"),
    ("draw transformer-tiny -o {tmp}/x.dot --style paper --residuals", "no effect", "leave it out"),
    (
        "draw transformer-tiny -o {tmp}/x.dot --style paper --form typed",
        "no form 'typed'",
        "folded",
    ),
    ("swap transformer-tiny nothing --use gru@1 -o {tmp}/x.json", "nothing", "help:"),
    ("cost transformer-base --axes U=4", "has no axis 'U'", "known: B, S, T"),
    ("cost transformer-base --project", "neither a file nor shipped", "'weft list runs' lists"),
    ("train multi30k --out {tmp}/r", "neither a file nor shipped", "did you mean 'multi30k-en-de'"),
    ("train {tmp}/run.json --out {tmp}/r", "'updates' must be at least 1", "given  0"),
    ("train demo --out {tmp}/r --set updats=5", "updats", "did you mean 'updates'?"),
    ("translate {tmp}/nowhere", "nowhere", "-->"),
    ("translate {tmp}/ckpt", "ckpt", "-->"),
    ("import hf {tmp}/nowhere", "nowhere", "-->"),
    ("score-trees {tmp}/none {tmp}/none", "no file 'none'", "-->"),
]


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Return a folder with a broken spec, a run with a wrong value and an empty folder."""
    (tmp_path / "broken.json").write_text('{"format": 1,')
    (tmp_path / "nine.json").write_text("{}")
    (tmp_path / "ckpt").mkdir()
    run = {
        "format": 1,
        "name": "wrong",
        "objective": "translation",
        "params": {"model": {"spec": "transformer-tiny"}},
        "updates": 0,
        "data": {"train": {"lines": {"source": ["a"], "target": ["b"]}}},
    }
    (tmp_path / "run.json").write_text(json.dumps(run))
    return tmp_path


@pytest.mark.integration
@pytest.mark.parametrize(("line", "cause", "way_out"), INPUTS, ids=[line for line, _, _ in INPUTS])
def test_a_wrong_input_exits_1(
    line: str, cause: str, way_out: str, places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has cause and way out; nothing is written, and there is no traceback."""
    before = sorted(places.rglob("*"))

    assert main(line.format(tmp=places).split()) == 1

    printed = capsys.readouterr().err
    assert cause in printed
    assert way_out in printed
    assert "Traceback" not in printed
    assert "Input should" not in printed
    assert sorted(places.rglob("*")) == before
