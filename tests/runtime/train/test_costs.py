"""Estimates of tokens, FLOPs and hours, compared with calculations by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from weft.runtime.cli.main import main
from weft.runtime.train.costs import FILL, project
from weft.runtime.train.objective import Objective
from weft.runtime.train.run import Run


def test_hours_are_tokens_over_speed(toy_run: Callable[..., Run]) -> None:
    """12 updates of 4 batches of 200 tokens a side, at 100 tokens/s; one layer by hand."""
    run = toy_run()
    found = project(run, Objective.of(run, "toy").graph, {"S": 3, "T": 5})
    tokens = 12 * 4 * 200 * 2 * FILL
    width, wide, words = 16, 32, 40
    sides = sum(8 * n * width**2 + 4 * n**2 * width + 4 * n * width * wide for n in (3, 5))
    cross = 4 * (3 + 5) * width**2 + 4 * 3 * 5 * width
    head = 2 * 5 * width * words

    assert found.tokens == pytest.approx(tokens)
    assert found.seconds(100) == pytest.approx(tokens / 100)
    assert found.flops_per_token == pytest.approx(3 * (sides + cross + head) / 8)
    assert found.flops == pytest.approx(tokens * found.flops_per_token)
    # At an MFU of 0.5 with a peak of 1e9 FLOP/s on two devices.
    assert found.speed(1e9, 0.5, 2) == pytest.approx(1e9 / found.flops_per_token)


def test_the_command_prints_hours(capsys: pytest.CaptureFixture[str]) -> None:
    """At a given speed and at MFU values of a given peak FLOP/s, as text and as JSON."""
    ask = [
        "cost",
        "wmt14-en-de-base",
        "--project",
        "--speed",
        "140000",
        "--devices",
        "8",
        "--peak",
        "700",
    ]

    assert main([*ask, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["tokens_per_update"] == pytest.approx(50_400)
    assert printed["rows"][0]["hours"] == pytest.approx(10.0)
    assert len(printed["rows"]) == 6
    assert main(ask) == 0
    text = capsys.readouterr().out
    assert "63,082,496 parameters, 100,000 updates of 50,400 tokens" in text
    assert "10.0          80.0" in text


@pytest.mark.parametrize(
    "wrong",
    [["--speed", "0"], ["--devices", "0"], ["--peak", "-1"]],
)
def test_values_that_are_not_positive_are_refused(
    wrong: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """They are wrong on the command line, and nothing is divided by them."""
    assert main(["cost", "wmt14-en-de-base", "--project", *wrong]) == 2
    assert f"Invalid value for '{wrong[0]}': it must be" in capsys.readouterr().err


def test_a_projection_is_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Options for specs and missing files raise."""
    assert main(["cost", "wmt14-en-de-base", "--project", "--measure"]) == 2
    assert "'--measure': it has no effect with --project" in capsys.readouterr().err
    assert main(["cost", "wmt14-en-de-base", "--devices", "8"]) == 2
    assert "'--devices': it has an effect only with --project" in capsys.readouterr().err
    assert main(["cost", str(tmp_path / "no.json"), "--project"]) == 1
