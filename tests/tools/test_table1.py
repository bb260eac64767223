"""Table 1 of the paper, computed and printed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
from print_table1 import main
from table1 import (
    LAYERS,
    LayerType,
    Sizes,
    in_sequence,
    layers_between_ends,
    operations,
    path_length,
    table,
)
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

ROWS = {layer.name: layer for layer in LAYERS}
EVERY = pytest.mark.parametrize("name", ROWS)
OPERATIONS = {
    # Scores and weighted sums: n x n entries each, with 2 d operations per entry;
    # plus four projections, which the paper omits.
    "self-attention": {"n^2 d": 4, "n d^2": 8},
    # Input and state are each multiplied by a d x d matrix.
    "recurrent": {"n d^2": 4},
    "convolutional, contiguous": {"k n d^2": 2},
    "convolutional, dilated": {"k n d^2": 2},
    "convolutional, separable": {"k n d": 2, "n d^2": 2},
    # Blocks of r positions read three blocks, themselves and neighbors; plus projections.
    "self-attention, restricted": {"r n d": 12, "n d^2": 8},
}


def steps_apart(n: int, reach: int) -> int:
    """Return the number of steps of length `reach` from one end to the other."""
    return max(1, ceil((n - 1) / reach))


def power(base: int, least: int) -> int:
    """Return the smallest exponent with which `base` reaches `least`."""
    exponent = 0
    while base**exponent < least:
        exponent += 1
    return exponent


def expected_path(name: str, at: Sizes) -> int:
    """Return the path length given by the paper, with its constant."""
    return {
        "self-attention": 1,
        "recurrent": at.n,
        "convolutional, contiguous": steps_apart(at.n, at.k - 1),
        "convolutional, dilated": power(at.k, at.n),
        "convolutional, separable": steps_apart(at.n, at.k - 1),
        "self-attention, restricted": steps_apart(at.n, at.r),
    }[name]


@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_of_a_layer_are_the_paper_s(name: str) -> None:
    """The exponents of n, d, k and r match; the factors are those of the blocks."""
    layer = ROWS[name]

    assert operations(layer) == OPERATIONS[name]
    assert set(layer.paper[0].split(" + ")) <= set(OPERATIONS[name])


def test_a_window_given_as_a_mask_saves_no_operations() -> None:
    """Scores outside the window are still computed, so the table uses the sparse block."""
    mask = {"use": "window@1", "params": {"distance": 16}}
    use = {"use": "attention@1", "params": {"heads": 1}, "fill": {"mask": mask}}
    masked = replace(ROWS["self-attention, restricted"], use=lambda _, __: use)

    assert operations(masked) == OPERATIONS["self-attention"]


@EVERY
@pytest.mark.parametrize("n", [16, 50, 128])
def test_operations_in_a_row(name: str, n: int) -> None:
    """Only the recurrence has n sequential operations."""
    assert in_sequence(ROWS[name], Sizes(n=n)) == (n if name == "recurrent" else 1)


@EVERY
@pytest.mark.parametrize("at", [Sizes(n=16, k=2, r=4), Sizes(n=65, k=4, r=16), Sizes(n=128, k=5)])
def test_measured_paths_are_the_paper_s(name: str, at: Sizes) -> None:
    """A change moves exactly as far per layer as in the paper."""
    assert path_length(ROWS[name], at) == expected_path(name, at)


@pytest.mark.slow
@EVERY
def test_measured_paths_are_the_paper_s_for_long_sequences(name: str) -> None:
    """No change is lost on a long path."""
    at = Sizes(n=4096)

    assert path_length(ROWS[name], at) == expected_path(name, at)


@EVERY
def test_the_computed_number_of_layers_connects_all_positions(name: str) -> None:
    """Counting layers one by one equals one spec with all of the layers."""
    at, layer = Sizes(n=12, k=3, r=3), ROWS[name]
    needed = layers_between_ends(layer, at)

    assert last_depends_on_first(layer, at, needed)
    assert needed == 1 or not last_depends_on_first(layer, at, needed - 1)


def last_depends_on_first(layer: LayerType, at: Sizes, layers: int) -> bool:
    """Return whether the last output of a stack depends on the first input."""
    nodes: dict[str, Any] = {}
    value = "x"
    for index in range(layers):
        nodes[f"layer_{index}"] = {"in": {"x": value}, **layer.use(at, index)}
        value = f"layer_{index}.y"
    spec = {
        "format": 1,
        "name": "stack",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": f"f[B T {at.d}]"},
        "outputs": {"y": value},
        "nodes": nodes,
    }
    model = build(check(loaded(spec).form, registry())).double()
    x = torch.randn(1, at.n, at.d, dtype=torch.float64, requires_grad=True)
    model(x=x)["y"][0, -1].sum().backward()
    assert x.grad is not None
    return bool((x.grad[0, 0] != 0).any())


def test_a_network_that_never_connects_is_reported() -> None:
    """A kernel of size 1 reads no neighbor."""
    layer = replace(
        ROWS["convolutional, contiguous"],
        use=lambda sizes, _: {"use": "convolution@1", "params": {"d_out": sizes.d, "kernel": 1}},
    )

    with pytest.raises(ValueError, match="a change does not reach the other end within 8 layers"):
        layers_between_ends(layer, Sizes(n=8))


def test_the_table_has_a_row_for_each_layer_type() -> None:
    """One row for each layer type."""
    rows = table([16, 32])

    assert [row.name for row in rows] == list(ROWS)
    assert rows[0].operations_text() == "4 n^2 d + 8 n d^2"
    assert rows[1].as_json() == {
        "layer": "recurrent",
        "paper": {"operations": "n d^2", "sequential": "n", "path": "n"},
        "operations": {"n d^2": 4},
        "sequential": {"16": 16, "32": 32},
        "path": {"16": 16, "32": 32},
    }


def test_the_page_of_results_is_up_to_date() -> None:
    """Its rows and path lengths are up to date."""
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    at = Sizes(n=256)

    for name, layer in ROWS.items():
        [terms, lengths] = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", page, re.MULTILINE)
        found = " + ".join(f"{factor} {term}" for term, factor in operations(layer).items())
        assert terms.split(" | ")[0].strip() == found
        assert int(lengths.split(" | ")[2].replace(",", "")) == path_length(layer, at)


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
