"""Correct specs of unusual architectures: neither an error nor a warning, and they run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import weft
from weft.specs.reader import read_file

SPECS = sorted((Path(__file__).parent / "unusual").glob("*.json"))
SAMPLE = (
    "active-memory",
    "early-exits",
    "grouped-child",
    "hierarchical",
    "imported-tower",
    "multi-source",
    "shared-stacks",
    "u-net",
)
"""Names of the specs that the fast tests run, too."""


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_an_unusual_spec_has_no_finding(path: Path) -> None:
    """A false alarm would teach users to ignore findings; `check` returns warnings, too."""
    assert weft.check(path) == []


def test_there_are_many_and_each_says_what_it_is() -> None:
    """The name is that of the file, and few of them need an exception from a warning."""
    values = [read_file(path)[0] for path in SPECS]

    assert len(SPECS) >= 60
    assert [value["name"] for value in values] == [path.stem for path in SPECS]
    assert all(value["doc"].endswith(".") for value in values)
    assert [value["name"] for value in values if "allow" in value] == ["inverted-axes"]


def runs(path: Path) -> None:
    """Run a spec on random inputs, and check that all outputs are finite."""
    model = weft.build(path, seed=1).eval()
    inputs = weft.example_inputs(model)
    outputs = model(**inputs)
    for name, output in outputs.items():
        assert torch.isfinite(output).all(), name
        assert output.numel() > 0, name


@pytest.mark.integration
@pytest.mark.parametrize("name", SAMPLE)
def test_some_unusual_specs_run(name: str) -> None:
    """One forward pass of random inputs."""
    runs(Path(__file__).parent / "unusual" / f"{name}.json")


@pytest.mark.slow
@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_unusual_spec_runs(path: Path) -> None:
    """One forward pass of random inputs."""
    runs(path)
