"""The `weft` command: help texts, exit codes, and errors that name the place."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import weft
from typer.main import get_command
from weft.blocks.entry_points import points_of
from weft.runtime.cli.common import terminal
from weft.runtime.cli.common.parameters import complete_specs
from weft.runtime.cli.main import COMMANDS, app, load_commands, main
from weft.runtime.decode.predictors.text import TextPredictor
from weft.runtime.train.run import Run
from weft.specs.form import FORMAT

Capture = pytest.CaptureFixture[str]


NAMES = load_commands()
TINY = "transformer-tiny"


def test_the_table_of_commands_is_complete() -> None:
    """A command that is missing there could be run only after another one of its module."""
    ours = {point.name for point in points_of("weft.commands")}
    assert {name for names in COMMANDS.values() for name in names} | ours == set(NAMES)
    homes = {str(entry.name): entry.callback for entry in app.registered_commands}
    for group in app.registered_groups:
        assert group.typer_instance is not None
        homes[str(group.name)] = group.typer_instance.registered_commands[0].callback
    registered = {
        name: str(function and function.__module__).removeprefix("weft.runtime.cli.")
        for name, function in homes.items()
        if name not in ours
    }
    assert registered == {name: module for module, names in COMMANDS.items() for name in names}


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help_with_an_example(
    name: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--help` exits 0, fits a terminal, shows an example, and every option has a text."""
    monkeypatch.setenv("COLUMNS", "80")

    assert main([name, "--help"]) == 0

    text = capsys.readouterr().out
    assert re.search(rf"Examples?:\s+weft {name}\b", text)
    assert "Exit codes" in text
    assert max(map(len, text.splitlines())) <= 80
    command = get_command(app).commands[name]  # type: ignore[attr-defined]
    for each in (command, *getattr(command, "commands", {}).values()):
        assert [o.name for o in each.params if not (o.help or "").endswith((".", "]"))] == []


def test_plain_weft_prints_its_help(capsys: Capture) -> None:
    """Without a command, the help is printed, with the commands in groups."""
    assert main([]) == 0

    text = capsys.readouterr().out
    assert all(f" {name} " in text for name in NAMES)
    assert all(group in text for group in ("Specs", "Training", "Decoding", "Checkpoints"))


def test_the_version_is_printed(capsys: Capture) -> None:
    """It is the version of the installed distribution."""
    assert main(["--version"]) == 0

    assert capsys.readouterr().out == f"weft {version('weft')}\n"


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("weft tr", {"train", "translate", "trees"}),
        ("weft translate --be", {"--beam"}),
        ("weft translate x --penalty g", {"gnmt"}),
        ("weft check transformer-ti", {"transformer-tiny"}),
        ("weft train multi30k-en", {"multi30k-en-de"}),
        ("weft blocks layer", {"layer_norm@1"}),
        ("weft list v", {"variants"}),
    ],
)
def test_the_shell_completes_commands_options_and_names(
    line: str, completed: set[str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What bash asks for when the user presses the tab key."""
    monkeypatch.setenv("_WEFT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split()) - 1))

    main([])

    assert set(capsys.readouterr().out.split()) == completed


def test_a_path_is_completed_like_a_name(tmp_path: Path) -> None:
    """Folders get a slash; other files and hidden files are left out."""
    (tmp_path / "models").mkdir()
    for name in ("mine.json", "mine.txt", ".mine.json"):
        (tmp_path / name).write_text("{}")

    found = complete_specs(f"{tmp_path}/m")

    assert found == [f"{tmp_path}/mine.json", f"{tmp_path}/models/"]


def test_weft_lists_what_it_ships(capsys: Capture) -> None:
    """Each kind alone, or all of them; JSON maps names to descriptions."""
    assert main(["list", "blocks", "--json"]) == 0
    blocks = json.loads(capsys.readouterr().out)["blocks"]
    assert blocks["layer_norm@1"]
    assert main(["list", "runs"]) == 0
    assert "multi30k-en-de" in capsys.readouterr().out
    assert main(["list"]) == 0
    text = capsys.readouterr().out
    assert [line for line in text.splitlines() if line.endswith(":")] == [
        "specs:",
        "variants:",
        "pretrained:",
        "objectives:",
        "runs:",
        "studies:",
        "imports:",
        "blocks:",
        "columns:",
        "readers:",
        "metrics:",
        "predictors:",
        "optimizers:",
        "trackers:",
        "exporters:",
    ]
    assert all(line.split(None, 1)[1:] for line in text.splitlines() if line.startswith("  "))


def test_several_specs_are_checked_at_once(tmp_path: Path, capsys: Capture) -> None:
    """The exit code is 1 if any is wrong, and the others are checked too."""
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{")

    assert main(["check", str(wrong), "transformer-tiny"]) == 1

    printed = capsys.readouterr()
    assert "transformer-tiny: valid" in printed.out
    assert f"{wrong}:1:2" in printed.err


def test_a_spec_is_checked_from_standard_input(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An editor checks text that is not saved; parents are those of the current folder."""
    parent = {"format": 1, "name": "wide", "extends": "transformer-tiny", "params": {"d_ff": 512}}
    (tmp_path / "wide.json").write_text(json.dumps(parent))
    monkeypatch.chdir(tmp_path)
    child = {"format": 1, "name": "mine", "extends": "wide", "params": {"layer": 2}}

    class Stdin:
        buffer = io.BytesIO(json.dumps(child).encode())

    monkeypatch.setattr(sys, "stdin", Stdin())
    assert main(["check", "-", "--json"]) == 1

    [finding] = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["source"], finding["pointer"]) == ("<stdin>", "/params/layer")


@pytest.mark.parametrize("name", ["nowhere.json", "."])
def test_check_prints_json_in_every_case(name: str, capsys: Capture) -> None:
    """Also if there is nothing to check; the others are still checked."""
    assert main(["check", name, "transformer-tiny", "--json"]) == 1

    missing, sound = json.loads(capsys.readouterr().out)
    assert missing["spec"] == name
    assert missing["findings"][0]["problem"]
    assert sound["findings"] == []


def test_errors_have_color_on_a_terminal_only(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR stands for a terminal here; NO_COLOR turns colors off there."""
    broken = ["check", "transformer-base", "--set", "heads=7"]
    assert main(broken) == 1
    plain = capsys.readouterr().err
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert main(broken) == 1
    colored = capsys.readouterr().err
    monkeypatch.setenv("NO_COLOR", "1")
    assert main(broken) == 1

    assert "\x1b[" not in plain
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == plain
    assert "\x1b[1;31merror" in colored
    assert "\x1b[1;31m" not in capsys.readouterr().err


def test_verbose_shows_where_an_error_arose(capsys: Capture) -> None:
    """Without `-v`, there is no traceback."""
    assert main(["show", "transformer-bass"]) == 1
    assert "Traceback" not in capsys.readouterr().err
    assert main(["show", "transformer-bass", "-v"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("quiet", [False, True])
def test_quiet_prints_no_notices(quiet: bool, tmp_path: Path, capsys: Capture) -> None:
    """`check --fix` reports what it changes on stderr, unless the user asks for quiet."""
    path = tmp_path / "child.json"
    value = {"format": FORMAT, "extends": "transformer-tiny", "name": "child", "parms": {}}
    path.write_text(json.dumps(value))

    assert main(["check", str(path), "--fix", *["-q"] * quiet]) == 0

    assert ("fixed" in capsys.readouterr().err) == (not quiet)


def test_quiet_holds_for_one_command(capsys: Capture) -> None:
    """A command after another in the same process, as in a notebook, prints its notices."""
    assert main(["check", "transformer-tiny", "--quiet"]) == 0
    terminal.notice("prepared")

    assert capsys.readouterr().err == "prepared\n"


def test_verbose_holds_for_one_command() -> None:
    """Log messages of a notebook are not printed because of an earlier command."""
    before = logging.getLogger().level, logging.getLogger().handlers[:]
    assert main(["check", "transformer-tiny", "--verbose"]) == 0

    assert (logging.getLogger().level, logging.getLogger().handlers[:]) == before


def test_check_says_that_a_shipped_spec_is_sound(capsys: Capture) -> None:
    """63,082,496 parameters: the paper's base model with a vocabulary of 37000, biases included."""
    assert main(["check", "transformer-base"]) == 0
    assert "63,082,496 parameters" in capsys.readouterr().out


def test_check_prints_every_mistake_and_exits_1(tmp_path: Path, capsys: Capture) -> None:
    """Each finding has a suggestion, and a count follows."""
    spec = {
        "format": 1,
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
    assert f"{path}:1:" in text
    assert "#/nodes/b/params/d_uot" in text
    assert "mistakes found" in text


def test_check_json_is_for_editors(tmp_path: Path, capsys: Capture) -> None:
    """Findings are printed as data, and the exit code is 1."""
    path = tmp_path / "bad.json"
    path.write_text('{"format": 1, "name": "x", "axes": {}, "inputs": {}, "nodes": {}}')

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


def test_blocks_lists_the_weights_of_the_example(capsys: Capture) -> None:
    """By the names that lines of a table have: three maps of 8 features of the example."""
    assert main(["blocks", "layer_norm", "--json"]) == 0
    norm = json.loads(capsys.readouterr().out)
    assert main(["blocks", "lstm"]) == 0

    assert norm["weights"] == {"weight": [8], "bias": [8]}
    assert re.search(r"^weights of the example\n", capsys.readouterr().out, re.MULTILINE)


def test_blocks_describes_a_block(capsys: Capture) -> None:
    """A block shows ports, params and source; a misspelled name gives a suggestion."""
    assert main(["blocks", "attention"]) == 0
    text = capsys.readouterr().out
    assert "mask[b s]?" in text
    assert "Vaswani et al. 2017" in text
    assert main(["blocks", "atention"]) == 1
    assert "did you mean 'attention@1'?" in capsys.readouterr().err


def test_a_run_is_drawn_with_its_own_sizes(tmp_path: Path) -> None:
    """The run has 3 layers and a vocabulary of 600; the spec alone has other sizes."""
    out = tmp_path / "model.dot"

    assert main(["draw", "demo", "-o", str(out), "--node", "model"]) == 0

    text = out.read_text(encoding="utf-8")
    assert "to 600" in text
    assert text.count("× 3<") == 2
    graph = weft.load("transformer-tiny", layers=3, d_ff=512, vocab=600).graph()
    assert f"{graph.parameters() / 1e6:.1f}M parameters" in text


@pytest.mark.integration
def test_spec_commands_load_no_torch() -> None:
    """What reads and draws specs starts fast without torch, and so does the help."""
    lines = ["check transformer-base", "show transformer-tiny", "expand transformer-big"]
    lines += ["cost transformer-tiny", "blocks linear", "list", "--help", "schema run"]
    code = (
        "import sys; from weft.runtime.cli.main import main; "
        f"codes = [main(line.split()) for line in {lines}]; "
        "sys.exit('torch' in sys.modules or any(codes))"
    )

    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False)

    assert done.returncode == 0


@pytest.mark.integration
def test_the_version_is_printed_without_commands() -> None:
    """Scripts ask for it often."""
    code = (
        "import sys; from weft.runtime.cli.main import main; code = main(['--version']); "
        "sys.exit(code or any(name.startswith('weft.extensions') for name in sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)

    assert done.returncode == 0
    assert done.stdout.startswith(b"weft ")


@pytest.mark.integration
def test_a_signal_before_the_first_report_is_answered_without_curves(
    toy_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing to draw yet, and a signal is answered at once."""
    run, out = tmp_path / "toy.json", tmp_path / "out"
    watch = {"every": 2, "metrics": ["chrf"], "best": "nll"}
    run.write_text(json.dumps(toy_run(evaluate=watch).model_dump(mode="json")))

    def stopped(predictor: object, rows: Sequence[object]) -> list[str]:
        del predictor
        os.kill(os.getpid(), signal.SIGTERM)
        return [""] * len(rows)

    monkeypatch.setattr(TextPredictor, "predict", stopped)

    assert main(["train", str(run), "--out", str(out)]) == 128 + signal.SIGTERM
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["000002"]
    assert not (out / "curves.png").exists()


@pytest.mark.integration
def test_trains_evaluates_averages_and_translates(
    toy_run: Callable[..., Run],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The main commands in order, on a toy run; every reported file exists."""
    run = tmp_path / "toy.json"
    watch = {"every": 4, "metrics": ["bleu", "perplexity"], "best": "nll"}
    run.write_text(json.dumps(toy_run(evaluate=watch).model_dump(mode="json")))
    out = tmp_path / "out"

    assert main(["train", str(run), "--out", str(out), "--set", "updates=8"]) == 0
    printed = capsys.readouterr().err
    assert "all 8 updates done" in printed
    assert (out / "curves.png").is_file()

    assert main(["evaluate", str(out / "averaged"), "--json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert report["rows"] == 10
    assert set(report["scores"]) == {"bleu", "loss", "nll", "perplexity"}
    assert report["scores"]["perplexity"] == pytest.approx(math.exp(report["scores"]["nll"]))

    pair = [str(out / "checkpoints" / name) for name in ("000004", "000008")]
    assert main(["average", *pair, "-o", str(tmp_path / "mean")]) == 0
    capsys.readouterr()

    class Stdin:
        buffer = io.BytesIO(b"sun moon\n\n\xff\xfe\ntree")

    monkeypatch.setattr(sys, "stdin", Stdin())
    code = "translate"
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))
    assert main([code, str(tmp_path / "mean")]) == 1
    written = sys.stdout.buffer.getvalue().decode()  # type: ignore[attr-defined]
    assert written.count("\n") == 4
    assert written.split("\n")[1:3] == ["", ""]
    assert "--> standard input:3" in capsys.readouterr().err


@pytest.mark.integration
@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"updats": 3}, "did you mean 'updates'?"),
        ({"optimizer": {"beta": 3}}, "did you mean 'betas'?"),
        ({"schedule": {"peaks": 3}}, "did you mean 'peak'?"),
        ({"format": 4}, "unknown format 4"),
        ({"objective": "../../etc/passwd.json"}, "'weft list objectives' lists those that ship"),
        ({"objective": "mine.jsn"}, "did you mean 'mine'?"),
        ({"objective": "translaton"}, "did you mean 'translation'?"),
        ({"params": {"label_smoothin": 0.1}}, "did you mean 'label_smoothing'?"),
        ({"params": {"model": {"spec": "../../passwd.json"}}}, "unknown spec '../../passwd.json'"),
        ({"params": {"model": {"spec": "transformer-tinny"}}}, "did you mean 'transformer-tiny'?"),
        ({"params": {"model": {"spec": TINY, "params": {"layer": 2}}}}, "did you mean 'layers'?"),
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
    (tmp_path / "mine.json").write_text("{}")

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


@pytest.mark.integration
def test_closed_streams_are_no_traceback(tmp_path: Path) -> None:
    """`weft schema >&- 2>&-` of a shell: Python then has no such streams."""
    code = (
        "import sys; sys.stdin = sys.stdout = sys.stderr = None\n"
        "from weft.runtime.cli.main import main\n"
        "sys.exit(main(['check', 'transformer-tiny']) + main(['schema', '-o', sys.argv[1]]))"
    )

    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "s.json")], check=False)

    assert done.returncode == 0
    assert (tmp_path / "s.json").is_file()
