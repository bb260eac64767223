"""`weft cost`: output, plot and errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.flops import default_sizes
from weft.graphs.cost.table import cost_table
from weft.runtime.cli.cost import render
from weft.runtime.cli.main import main
from weft.specs.load import load


def test_costs_are_printed_by_node(capsys: pytest.CaptureFixture[str]) -> None:
    """The table has the requested sizes, and totals at the end."""
    assert main(["cost", "transformer-base", "--axes", "S=40,T=40", "--axes", "B=2"]) == 0

    printed = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in printed.splitlines() if line}
    # Two sentences of 40 tokens; a multiply-add for each of 512 x 37000 weights.
    assert rows["head"][2] == f"{2 * 2 * 40 * 512 * 37_000:,}"
    assert rows["total"][1] == "63,082,496"
    assert rows["sizes"][1:] == ["B=2", "S=40", "T=40,", "float32"]


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has all printed values and the requested settings."""
    assert (
        main(["cost", "transformer-base", "--set", "layers=1", "--precision", "bfloat16", "--json"])
        == 0
    )

    printed = json.loads(capsys.readouterr().out)
    assert printed["precision"] == "bfloat16"
    assert printed["cache"]["decoder.*.self_attention"] == 32 * 2 * 512 * 2
    assert printed["cache_bytes"] == sum(printed["cache"].values())
    assert printed["parameters"] == sum(node["parameters"] for node in printed["nodes"])


def test_a_spec_that_does_not_decode(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no decoding state, and the footer says why."""
    spec = {
        "format": 1,
        "name": "tagger",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"words": "ids:9[B T]"},
        "outputs": {"y": "embedding.y"},
        "nodes": {
            "embedding": {"use": "embedding@1", "in": {"ids": "words"}, "params": {"d_model": 8}}
        },
    }
    path = tmp_path / "tagger.json"
    path.write_text(json.dumps(spec))

    assert main(["cost", str(path)]) == 0
    assert "decoding     none: the spec names no axis in 'step'" in capsys.readouterr().out


def test_blocks_of_unknown_state_are_named() -> None:
    """The total does not contain their state."""
    graph = check(load("transformer-tiny").form, registry())
    table = cost_table(graph, default_sizes(graph))

    assert "; without that of mine@1" in render(table, {}, "float32", "T", ["mine@1"])
    assert "without that of" not in render(table, {}, "float32", "T")


@pytest.mark.integration
def test_a_plot_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The plot is a PNG; the text is printed too."""
    out = tmp_path / "pictures" / "cost.png"

    assert main(["cost", "transformer-tiny", "-o", str(out)]) == 0
    assert out.read_bytes().startswith(b"\x89PNG")
    assert list(out.parent.iterdir()) == [out]
    assert str(out) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "problem", "help_"),
    [
        (["transformer-base", "--axes", "U=4"], "has no axis 'U'", "known: B, S, T"),
        (
            ["transformer-base", "-o", "x.jpg"],
            "cannot plot into a file that ends in '.jpg'",
            ".png",
        ),
    ],
)
def test_invalid_inputs_are_reported(
    arguments: list[str], problem: str, help_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message has a fix, and the exit code is 1."""
    assert main(["cost", *arguments]) == 1

    printed = capsys.readouterr().err
    assert problem in printed
    assert help_ in printed


@pytest.mark.parametrize(
    ("axes", "problem"),
    [
        ("S", "'S' is not the size of an axis, such as S=40"),
        ("S=0", "'0' is not a whole number from 1 to 1,000,000,000"),
        ("S=-3", "'-3' is not a whole number"),
        (f"S={10**40}", "is not a whole number"),
    ],
)
def test_a_size_that_is_no_size_is_a_wrong_command_line(
    axes: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 2, and the message names the option."""
    assert main(["cost", "transformer-base", "--axes", axes]) == 2

    printed = " ".join(capsys.readouterr().err.replace("\u2502", " ").split())
    assert "--axes" in printed
    assert problem in printed
