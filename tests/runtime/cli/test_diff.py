"""`weft diff`: text, JSON and pictures; a difference is not an error."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from weft.runtime.cli.main import main

pytestmark = pytest.mark.integration

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def shallow(tmp_path: Path) -> str:
    """Return a variant of transformer-base with two layers."""
    path = tmp_path / "shallow.json"
    spec = {
        "format": 1,
        "extends": "transformer-base",
        "name": "shallow",
        "params": {"layers": 2},
    }
    path.write_text(json.dumps(spec))
    return str(path)


def test_a_difference_is_printed_and_exits_0(shallow: str, capsys: Capture) -> None:
    """The text has names, a line per change and sizes; no colors outside a terminal."""
    assert main(["diff", "transformer-base", shallow]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == [
        "transformer-base -> shallow",
        "",
        "~ encoder  copies 6 -> 2",
        "~ decoder  copies 6 -> 2",
    ]
    assert lines[5] == "parameters 63,082,496 -> 33,656,832 (-46.6 %)"


def test_a_terminal_shows_colors(
    shallow: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed lines are yellow; unchanged lines have no color."""
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")

    assert main(["diff", "transformer-base", shallow]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "\x1b[33m~ encoder  copies 6 -> 2\x1b[0m"
    assert lines[0] == "transformer-base -> shallow"


def test_json_says_whether_they_are_equal(shallow: str, capsys: Capture) -> None:
    """Scripts read `equal`; the exit code is 0 in both cases."""
    assert main(["diff", "transformer-base", shallow, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["equal"] is False

    assert main(["diff", shallow, shallow, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["equal"] is True
    assert found["changes"] == []


def test_a_picture_is_drawn_in_addition_to_the_text(
    shallow: str, tmp_path: Path, capsys: Capture
) -> None:
    """A .dot file needs no graphviz."""
    out = tmp_path / "d.dot"

    assert main(["diff", "transformer-base", shallow, "-o", str(out)]) == 0

    assert out.read_text().startswith("digraph")
    assert f"drawn      {out}" in capsys.readouterr().out


def test_a_spec_that_is_not_sound_exits_1(shallow: str, tmp_path: Path, capsys: Capture) -> None:
    """Its findings are printed as by `weft check`."""
    bad = tmp_path / "bad.json"
    bad.write_text(Path(shallow).read_text().replace('"layers": 2', '"heads": 7'))

    assert main(["diff", "transformer-base", str(bad)]) == 1
    assert "E05" in capsys.readouterr().err


def test_comparing_needs_no_torch(shallow: str) -> None:
    """The command starts as fast as `weft check`."""
    code = (
        "import sys; from weft.runtime.cli.main import main; "
        f"main(['diff', 'transformer-base', {shallow!r}]); sys.exit('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
