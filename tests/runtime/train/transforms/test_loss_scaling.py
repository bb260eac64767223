"""Tests of training in float16: an overflow skips an update, and a resumed run keeps its scale."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime import api
from weft.runtime.checkpoint.state import State
from weft.runtime.train.device import Place, choose
from weft.runtime.train.history import read
from weft.runtime.train.loss_scaling import LossScaling
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

HALF = Place(torch.device("cpu"), torch.float16, reason="a test")


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
    scaling = LossScaling(HALF, State())

    first = updated(scaling, weight, optimizer)
    assert (first, weight.item()) == (0.0, 1.0)
    assert scaling.report() == {"loss_scale": 32768.0, "skipped_updates": 1}

    second = updated(scaling, weight, optimizer)
    assert (second, weight.item()) == (1.0, 0.75)
    assert scaling.report() == {"loss_scale": 32768.0, "skipped_updates": 1}


def test_gradients_that_overflow_at_every_scale_stop_the_run() -> None:
    """Without this the run would skip all its updates."""
    state = State(loss_scale={**torch.amp.GradScaler("cpu").state_dict(), "scale": 1e-5})

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
