"""The script that prints table 1: text, JSON, and a plot."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from print_table1 import main

if TYPE_CHECKING:
    from pathlib import Path


def test_table_1_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The text has the computed and the printed entries."""
    main(["--longest", "64"])

    printed = capsys.readouterr().out
    [first] = [line for line in printed.splitlines() if "n d^2" in line and "recurrent" in line]
    assert first.split() == [
        "recurrent",
        "4",
        "n",
        "d^2",
        "O(n",
        "d^2)",
        "64",
        "O(n)",
        "64",
        "O(n)",
    ]
    assert "16  32  64" in printed


def test_table_1_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One row for each layer type."""
    main(["--longest", "16", "--json"])

    printed = json.loads(capsys.readouterr().out)
    assert printed["rows"][0]["operations"] == {"n^2 d": 4, "n d^2": 8}


@pytest.mark.integration
def test_a_plot_is_written(tmp_path: Path) -> None:
    """The plot is a PNG; the text is printed too."""
    out = tmp_path / "table1.png"

    main(["--longest", "32", "-o", str(out)])

    assert out.read_bytes().startswith(b"\x89PNG")


def test_too_short_a_length_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Paths are measured from 16 positions."""
    with pytest.raises(SystemExit):
        main(["--longest", "8"])

    assert "give 16 or more" in capsys.readouterr().err
