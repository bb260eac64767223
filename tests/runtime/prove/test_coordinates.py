"""The coordinate check: values keep their size with muP, and grow without."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
import weft
from weft.graphs.passes.widths import growth
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.runtime.train.recipe.optimize import scale_weights
from weft.specs.findings import InputError
from weft.specs.load import load

BASE = {"d_model": 32, "heads": 1, "d_ff": 64}
SMALL = {"vocab": 50, "layers": 1}


def test_initial_weights_are_scaled_to_the_base() -> None:
    """The root of the inputs, or the inputs; zeros, gains and the base itself stay the same."""
    wide, base = (
        graph_of(load("transformer-untied", {**SMALL, "d_model": size, "heads": size // 32}))
        for size in (128, 32)
    )
    model, narrow, twin = build(wide, seed=1), build(base, seed=1), build(base, seed=1)

    scale_weights(model, narrow, growth(wide, base))
    scale_weights(twin, narrow, growth(base, base))

    for path, times in (("head.weight", 4), ("encoder.0.self_attention.f.query.weight", 2)):
        size = model.get_parameter(path).std() * times
        torch.testing.assert_close(size, narrow.get_parameter(path).std(), rtol=1e-3, atol=0)
    assert torch.equal(model.get_parameter("encoder.0.self_attention.norm.weight"), torch.ones(128))
    assert all(map(torch.equal, twin.parameters(), narrow.parameters()))


@pytest.mark.slow
@pytest.mark.parametrize("standard", [False, True])
def test_values_keep_their_size_with_mup_alone(standard: bool) -> None:
    """A language model of 8 times the width; equal rates make values grow with it."""
    report = weft.coordinates("llama", BASE, overrides=SMALL, standard=standard)

    assert report.passed != standard
    assert [params["d_model"] for params in report.widths] == [32, 64, 128, 256]
    assert (report.steepest.exponent > 0.4) == standard


@pytest.mark.slow
def test_the_command_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """With a row for each block; the exit code is 1 if values grow."""
    options = ["--set", "vocab=50", "--set", "layers=1", "--standard", "--json"]

    code = main(["prove", "llama", "--coordinates", "d_model=32,heads=1,d_ff=64", *options])

    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == 1
    assert not report["passed"]
    assert "decoder.*.feed_forward.f.outer" in {value["node"] for value in report["values"]}


@pytest.mark.parametrize(
    ("text", "problem"),
    [("d_model", "no param with a size"), ("d_model=0", "no param with a size")],
)
def test_widths_without_a_size_are_refused(
    text: str, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They name params with their smallest values."""
    assert main(["prove", "llama", "--coordinates", text]) == 2
    assert problem in capsys.readouterr().err


def test_no_widths_are_refused() -> None:
    """Nothing would grow."""
    with pytest.raises(InputError, match="no param grows"):
        weft.coordinates("llama", {})
