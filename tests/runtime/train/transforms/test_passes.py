"""Passes that a run leaves out: what it logs, its losses, and how it is resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from weft.graphs.passes.pipeline import NAMES
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.history import read
from weft.runtime.train.plan import plan_run, settings_of_run
from weft.runtime.train.run import Run

Maker = Callable[..., Run]
STILL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0}


class Lines(api.Silent):
    """A listener that keeps the lines of the log."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)

    def passes(self) -> set[str]:
        """Return the passes that said what they changed."""
        return {line.partition(":")[0] for line in self.lines} & set(NAMES["train"])


def trained(run: Run, folder: Path, **more: Any) -> tuple[Lines, list[float]]:
    """Train a run; return its log, and the losses of its updates and validations."""
    lines = Lines()
    api.train(run, out=folder, listener=lines, **more)
    return lines, [event["loss"] for event in read(folder) if "loss" in event]


def test_a_run_says_which_passes_it_leaves_out(toy_run: Maker) -> None:
    """The setting reaches the pipeline of training and that of `weft show`."""
    run = toy_run(without=["casts", "unpad"])

    assert settings_of_run(run, unpad=True).without == ("casts", "unpad")
    assert settings_of_run(toy_run(), unpad=True).without == ()


@pytest.mark.parametrize(
    ("changes", "product", "attention"),
    [
        ({}, None, None),
        ({"deterministic": True}, "torch", {"*": "fused"}),
        ({"deterministic": True, "kernels": {"attention": "plain"}}, "torch", {"*": "plain"}),
        ({"precision": "float16"}, None, {"*": "fused"}),
    ],
)
def test_kernels_that_are_not_measured_are_known_before_training(
    toy_run: Maker, changes: dict[str, Any], product: str | None, attention: dict[str, str] | None
) -> None:
    """`weft show` must not announce a measurement to a run that must not depend on one."""
    kernels = settings_of_run(toy_run(**{"kernels": {}, **changes}), unpad=True).kernels

    assert kernels is not None
    assert (kernels.product, kernels.attention) == (product, attention)


@pytest.mark.integration
def test_losses_are_those_with_all_passes(toy_run: Maker, tmp_path: Path) -> None:
    """In bfloat16 without dropout: of training, where passes act, and of validation.

    Rounded differently, since a fused loss is computed in float32; 1e-2 is two units of the
    last place of bfloat16, which has 8 bits.
    """
    settings: dict[str, Any] = {"params": STILL, "precision": "bfloat16", "updates": 4}
    whole = toy_run(**settings)
    none = toy_run(**settings, without=["unpad", "fuse", "kernels", "casts"])
    assert plan_run(none, "run.json").findings == []

    log, losses = trained(whole, tmp_path / "whole")
    plain_log, plain = trained(none, tmp_path / "plain")

    assert log.passes() >= {"fuse", "casts"}
    assert any(line.startswith("kernels: ") for line in log.lines)
    assert plain_log.passes() == set()
    assert not any(line.startswith("kernels: ") for line in plain_log.lines)
    assert "passes left out: unpad, fuse, kernels, casts" in plain_log.lines
    assert len(plain) == len(losses) > 1
    assert plain == pytest.approx(losses, rel=1e-2)


@pytest.mark.integration
def test_a_resumed_run_may_leave_out_other_passes(toy_run: Maker, tmp_path: Path) -> None:
    """The log warns; the checkpoint has the settings, and the kernels that were chosen before."""
    begun = toy_run(params=STILL, updates=4)
    trained(begun, tmp_path / "run")

    again = begun.model_copy(update={"updates": 8, "without": ("fuse", "kernels")})
    log, _ = trained(again, tmp_path / "run", resume=True)

    assert "warning: settings differ from the start of the run: 'updates', 'without'" in log.lines
    assert "fuse" not in log.passes()
    newest = open_checkpoint(tmp_path / "run/checkpoints/000008")
    assert newest.run["without"] == ["fuse", "kernels"]
    assert newest.state["kernels"] is not None
