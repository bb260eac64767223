"""Passes, dropout and the scale of losses in a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.graphs.passes.pipeline import NAMES
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.checkpoint.state import RunState
from weft.runtime.train.device import RunDevice, choose
from weft.runtime.train.engine import LossScaling
from weft.runtime.train.history import read
from weft.runtime.train.passes import Dropouts
from weft.runtime.train.plan import plan_run, settings_of_run
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

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


SPECS = {
    "every row of a residual path": {"use": "sublayer@1", "params": {"drop_path": 0.5}},
    "the weights of attention": {
        "use": "sublayer@1",
        "fill": {"f": {"use": "attention@1", "params": {"heads": 2, "dropout": 0.5}}},
    },
    "a layer inside a block": {
        "use": "sublayer@1",
        "fill": {"f": {"use": "feed_forward@1", "params": {"d_ff": 8, "dropout": 0.5}}},
    },
    "a node": {"use": "dropout@1", "params": {"dropout": 0.5}},
}


@pytest.mark.parametrize("node", SPECS.values(), ids=SPECS.keys())
def test_dropout_is_switched_off_and_on_again(tmp_path: Path, node: dict[str, object]) -> None:
    """Off, two passes in training are equal; on again, they differ."""
    fill = {"fill": {"f": {"use": "linear@1", "params": {"d_out": 8}}}}
    node = {**(fill if node["use"] == "sublayer@1" else {}), **node, "in": {"x": "x"}}
    value = {
        "format": 1,
        "name": "drops",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "drops.y"},
        "nodes": {"drops": node},
    }
    path = tmp_path / "drops.json"
    path.write_text(json.dumps(value), encoding="utf-8")
    model = weft.build(path).train()
    x = torch.randn(8, 6, 8)
    dropouts = Dropouts(model, weft.load(path).graph())

    dropouts.set(0.0)
    assert model(x=x)["y"].equal(model(x=x)["y"])

    dropouts.set(1.0)
    assert not model(x=x)["y"].equal(model(x=x)["y"])


HALF = RunDevice(torch.device("cpu"), torch.float16, reason="a test")


def updated(scaling: LossScaling, weight: torch.nn.Parameter, optimizer: Any) -> float:
    """Run one update of a loss whose gradient for the weight is 1; return the counted norm."""
    with HALF.autocast():
        loss = (torch.ones(1, 1) @ weight).sum()
    scaling.scaled(loss).backward()
    scaling.unscale(optimizer)
    assert weight.grad is not None
    norm = scaling.counted(weight.grad.norm())
    scaling.step(optimizer)
    optimizer.zero_grad()
    return float(norm)


@pytest.mark.parametrize("fused", [False, True])
def test_an_overflow_skips_the_update_and_halves_the_scale(fused: bool) -> None:
    """65,536 is above the largest float16, 65,504; 32,768 is not."""
    weight = torch.nn.Parameter(torch.ones(1, 1))
    optimizer = torch.optim.SGD([weight], lr=0.25, fused=fused)
    scaling = LossScaling(HALF, RunState())

    first = updated(scaling, weight, optimizer)
    assert (first, weight.item()) == (0.0, 1.0)
    assert scaling.report() == {"loss_scale": 32768.0, "skipped_updates": 1}

    second = updated(scaling, weight, optimizer)
    assert (second, weight.item()) == (1.0, 0.75)
    assert scaling.report() == {"loss_scale": 32768.0, "skipped_updates": 1}


def test_gradients_that_overflow_at_every_scale_stop_the_run() -> None:
    """Without this the run would skip all its updates."""
    state = RunState(loss_scale={**torch.amp.GradScaler("cpu").state_dict(), "scale": 1e-5})

    with pytest.raises(InputError, match="overflow float16 at every scale") as seen:
        LossScaling(HALF, state).refuse_too_small()
    assert seen.value.location == "/precision"


@pytest.mark.integration
def test_a_float16_run_follows_the_float32_run_and_resumes_to_the_bit(
    toy_run: Callable[..., Run], tmp_path: Path
) -> None:
    """The scale is part of a checkpoint: in float16 other scales round to other gradients."""

    def trained(name: str, updates: int, *, precision: str = "float16") -> list[float]:
        folder = tmp_path / name
        run = toy_run(updates=updates, precision=precision, checkpoint={"every": 3})
        api.train(run, out=folder, resume=folder.exists())
        return [event["nll"] for event in read(folder) if "nll" in event]

    straight, reference = trained("straight", 6), trained("reference", 6, precision="float32")
    trained("halves", 3)
    trained("halves", 6)

    assert straight == pytest.approx(reference, rel=3e-3)
    assert straight != reference
    states = []
    for name in ("straight", "halves"):
        folder = tmp_path / name / "checkpoints/000006"
        states.append(json.loads((folder / "state.json").read_text()))
    assert states[0]["loss_scale"] == states[1]["loss_scale"]
    assert states[0]["skipped"] == states[1]["skipped"]
    assert states[0]["loss_scale"]["scale"] * 2 ** states[0]["skipped"] == 65536.0
    assert (
        len(
            {
                (tmp_path / n / "checkpoints/000006/weights.safetensors").read_bytes()
                for n in ("straight", "halves")
            }
        )
        == 1
    )


def test_auto_uses_float16_where_a_gpu_has_only_that(
    toy_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compute capability 7.5 has fast float16 and no bfloat16; 6.1 has neither."""
    capability = (7, 5)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    run = toy_run().model_copy(update={"device": "auto", "precision": "auto"})

    assert choose(run).dtype == torch.float16
    capability = (6, 1)
    assert choose(run).dtype == torch.float32
