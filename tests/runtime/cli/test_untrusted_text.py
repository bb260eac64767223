"""What a command prints of a stranger's spec commands no terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.cli.main import main

HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \u202e txt"
COMMANDS = (
    ("expand",),
    ("expand", "--provenance"),
    ("show",),
    ("show", "--json"),
    ("check",),
    ("cost",),
)


def spec() -> dict[str, Any]:
    """Return a valid spec whose descriptions have control characters."""
    return {
        "format": 1,
        "name": "hostile",
        "doc": HOSTILE,
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "nodes": {"a": {"use": "layer_norm@1", "in": {"x": "x"}, "doc": HOSTILE}},
        "outputs": {"y": "a.y"},
    }


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_that_is_printed_commands_a_terminal(
    command: tuple[str, ...],
    broken: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither the result nor the findings, also if the output is piped into a pager."""
    hostile = {f"a{HOSTILE}": {"use": "layer_norm@1", "in": {"x": "x"}}}
    wrong = {f"key{HOSTILE}": HOSTILE, "nodes": {**spec()["nodes"], **hostile}} if broken else {}
    text = json.dumps({**spec(), **wrong})
    path = tmp_path / "spec.json"
    path.write_text(text, encoding="utf-8")

    assert main([command[0], str(path), *command[1:]]) == broken

    printed = "".join(capsys.readouterr())
    assert printed
    assert {c for c in printed if not c.isprintable()} <= {"\n", "\t"}


def test_an_expanded_spec_is_the_same_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its control characters are written as JSON writes them."""
    (tmp_path / "spec.json").write_text(json.dumps(spec()))

    assert main(["expand", str(tmp_path / "spec.json")]) == 0

    assert json.loads(capsys.readouterr().out)["doc"] == HOSTILE


def test_a_path_with_control_characters_is_shown_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of a file in a stranger's folder."""
    assert main(["check", str(tmp_path / f"{HOSTILE}.json")]) == 1

    printed = "".join(capsys.readouterr())
    assert {c for c in printed if not c.isprintable()} <= {"\n", "\t"}
