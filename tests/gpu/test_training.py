"""GPU tests of whole trainings; most also run on the CPU, where they check the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch.nn import functional as F
from weft.blocks.kernels.losses import fused_linear_cross_entropy as fused
from weft.runtime.checkpoint.checkpoint import read_tensors
from weft.runtime.train.history import read

Maker = Callable[..., Any]
CPU = pytest.param("cpu", marks=pytest.mark.slow)
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
WIDTH, WORDS, PAD = 32, 5003, 0
"""More words than the kernel of the loss reads at a time, and no multiple of it."""


def trained(run: Any, out: Path) -> tuple[Any, list[float]]:
    """Train; return the result and the reported losses per target token."""
    result = weft.train(run, out=out)
    return result, [event["nll"] for event in read(out) if "nll" in event]


@pytest.mark.usefixtures("own_compiler")
@pytest.mark.parametrize("device", [CPU, CUDA])
def test_a_training_learns_and_its_checkpoint_opens(
    device: str, toy_run: Maker, tmp_path: Path
) -> None:
    """Kernels, compile mode and precision as `auto` chooses them, with pinned batches on a GPU."""
    run = toy_run(device=device, precision="auto", kernels={}, updates=30)

    result, losses = trained(run, tmp_path / "run")

    assert result.finished
    assert losses[-1] < 0.9 * losses[0]
    assert result.averaged is not None
    weights = read_tensors(result.averaged / "weights.safetensors")
    assert all(weight.isfinite().all() for weight in weights.values())
    for place in {device, "cpu"}:
        model = weft.open(result.averaged, device=place)
        assert len(model.translate(["sun moon tree", "bird"])) == 2


@pytest.mark.parametrize("device", [CPU, CUDA])
def test_float16_with_loss_scaling_follows_float32(
    device: str, toy_run: Maker, tmp_path: Path
) -> None:
    """Gradients are scaled, and divided by the same scale before they are used."""
    losses = {}
    for precision in ("float16", "float32"):
        run = toy_run(device=device, precision=precision, compile="eager")
        _, losses[precision] = trained(run, tmp_path / precision)

    assert losses["float16"] == pytest.approx(losses["float32"], rel=1e-2)
    assert losses["float16"] != losses["float32"]
    state = json.loads((tmp_path / "float16/checkpoints/000012/state.json").read_text())
    assert state["loss_scale"]["scale"] * 2 ** state["skipped"] == 65536.0
    assert state["skipped"] < 6


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_two_deterministic_runs_are_equal_to_the_bit(
    precision: str, device: str, toy_run: Maker, tmp_path: Path
) -> None:
    """With dropout, and on a GPU with the fused kernels of attention and of the loss."""
    run = toy_run(device=device, precision=precision, deterministic=True, kernels={})
    paths = [tmp_path / name for name in ("first", "second")]

    losses = [trained(run, path)[1] for path in paths]

    first, second = (read_tensors(p / "checkpoints/000012/weights.safetensors") for p in paths)
    assert losses[0] == losses[1]
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize(
    ("device", "normalizer"),
    [("cpu", "torch"), pytest.param("cuda", "triton", marks=pytest.mark.gpu)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_the_fused_loss_is_that_of_all_logits(
    biased: bool, dtype: torch.dtype, device: str, normalizer: Any, monkeypatch: Any
) -> None:
    """In several chunks, with padding, against torch's loss in float32; twice the same bits."""
    monkeypatch.setattr(fused, "CHUNK", 5 * WORDS)
    generator = torch.Generator().manual_seed(3)
    shapes = [(3, 7, WIDTH), (WORDS, WIDTH), (WORDS,)][: 2 + biased]
    drawn = [torch.randn(*shape, generator=generator).to(device) for shape in shapes]
    drawn = [(0.5 * one).requires_grad_() for one in drawn]
    target = torch.randint(1, WORDS, (3, 7), generator=generator)
    target[0, :2] = torch.tensor([PAD, WORDS - 1])
    target = target.to(device)
    half = dtype != torch.float32

    def computed() -> list[torch.Tensor]:
        with torch.autocast(device, dtype if half else torch.bfloat16, enabled=half):
            loss, nll = fused.fused_linear_cross_entropy(
                fused.LinearOutput(*drawn),
                target,
                target != PAD,
                smoothing=0.1,
                spread="vocabulary",
                normalizer=normalizer,
            )
        return [loss, nll, *torch.autograd.grad(loss, drawn)]

    def plain(epsilon: float) -> torch.Tensor:
        logits = F.linear(*drawn).flatten(0, -2)
        return F.cross_entropy(
            logits, target.flatten(), ignore_index=PAD, label_smoothing=epsilon, reduction="sum"
        )

    found, again, loss = computed(), computed(), plain(0.1)
    expected = [loss, plain(0.0), *torch.autograd.grad(loss, drawn)]
    close = {"rtol": 2e-2, "atol": 2e-2} if half else {"rtol": 1e-4, "atol": 1e-5}
    for one, same, right in zip(found, again, expected, strict=True):
        torch.testing.assert_close(one.float(), right, **close)
        assert torch.equal(one, same)
