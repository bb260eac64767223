"""Table 1 of Vaswani et al. 2017: what our blocks cost is what the paper says they must."""

from __future__ import annotations

import re
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
import torch
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
    # Scores and weighted sums: 2 products of n x n and d, a product being 2 d operations;
    # four projections besides, which the paper leaves out.
    "self-attention": {"n^2 d": 4, "n d^2": 8},
    # Input and state, each with a matrix of d x d.
    "recurrent": {"n d^2": 4},
    "convolutional, contiguous": {"k n d^2": 2},
    "convolutional, dilated": {"k n d^2": 2},
    "convolutional, separable": {"k n d": 2, "n d^2": 2},
    # Blocks of r positions read three of them, itself and its neighbours; and the projections.
    "self-attention, restricted": {"r n d": 12, "n d^2": 8},
}


def steps_apart(n: int, reach: int) -> int:
    """Return in how many steps of a reach one end leads to the other."""
    return max(1, ceil((n - 1) / reach))


def power(base: int, least: int) -> int:
    """Return the smallest exponent with which a base is no less than a number."""
    exponent = 0
    while base**exponent < least:
        exponent += 1
    return exponent


def expected_path(name: str, at: Sizes) -> int:
    """Return the path length that the paper gives, its constant worked out."""
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
    """By the exponents of n, d, k and r, and with our factors."""
    layer = ROWS[name]

    assert operations(layer) == OPERATIONS[name]
    assert set(layer.paper[0].split(" + ")) <= set(OPERATIONS[name])


def test_a_window_that_is_a_mask_saves_nothing() -> None:
    """The scores beyond it are computed and thrown away: so this is not the row's block."""
    use = {"use": "attention@1", "params": {"heads": 1, "window": 16}}
    masked = replace(ROWS["self-attention, restricted"], use=lambda _, __: use)

    assert operations(masked) == OPERATIONS["self-attention"]


@EVERY
@pytest.mark.parametrize("n", [16, 50, 128])
def test_operations_in_a_row(name: str, n: int) -> None:
    """All at once, but for the recurrence, in which each position waits."""
    assert in_sequence(ROWS[name], Sizes(n=n)) == (n if name == "recurrent" else 1)


@EVERY
@pytest.mark.parametrize("at", [Sizes(n=16, k=2, r=4), Sizes(n=65, k=4, r=16), Sizes(n=128, k=5)])
def test_measured_paths_are_the_paper_s(name: str, at: Sizes) -> None:
    """A change travels as far a layer as the paper reckons, and no farther."""
    assert path_length(ROWS[name], at) == expected_path(name, at)


@pytest.mark.slow
@EVERY
def test_measured_paths_are_the_paper_s_for_long_sequences(name: str) -> None:
    """Nothing fades on the way."""
    at = Sizes(n=4096)

    assert path_length(ROWS[name], at) == expected_path(name, at)


@EVERY
def test_a_stack_of_so_many_layers_leads_through_and_one_less_does_not(name: str) -> None:
    """The way that layers are counted one by one is that of one spec with all of them."""
    at, layer = Sizes(n=12, k=3, r=3), ROWS[name]
    needed = layers_between_ends(layer, at)

    assert last_depends_on_first(layer, at, needed)
    assert needed == 1 or not last_depends_on_first(layer, at, needed - 1)


def last_depends_on_first(layer: LayerType, at: Sizes, layers: int) -> bool:
    """Say whether in a stack the last output depends on the first input."""
    nodes: dict[str, Any] = {}
    value = "x"
    for index in range(layers):
        nodes[f"layer_{index}"] = {"in": {"x": value}, **layer.use(at, index)}
        value = f"layer_{index}.y"
    spec = {
        "format": 2,
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


def test_what_never_arrives_is_said() -> None:
    """A kernel of one looks at no neighbour."""
    layer = replace(
        ROWS["convolutional, contiguous"],
        use=lambda sizes, _: {"use": "convolution@1", "params": {"d_out": sizes.d, "kernel": 1}},
    )

    with pytest.raises(ValueError, match="a change does not reach the other end within 8 layers"):
        layers_between_ends(layer, Sizes(n=8))


def test_the_table_says_it_all() -> None:
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


def test_the_page_of_results_says_what_is_found() -> None:
    """Its rows are those of today, and its path lengths too."""
    page = (Path(__file__).parents[2] / "docs" / "results.md").read_text(encoding="utf-8")
    at = Sizes(n=256)

    for name, layer in ROWS.items():
        [terms, lengths] = re.findall(rf"^\| {re.escape(name)} \|(.*)\|$", page, re.MULTILINE)
        found = " + ".join(f"{factor} {term}" for term, factor in operations(layer).items())
        assert terms.split(" | ")[0].strip() == found
        assert int(lengths.split(" | ")[2].replace(",", "")) == path_length(layer, at)
