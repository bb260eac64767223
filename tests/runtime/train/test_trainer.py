"""Tests of the training loop: resuming, checkpoints, early stopping."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from weft.runtime import api
from weft.runtime.checkpoint import manifest
from weft.runtime.checkpoint.checkpoint import open_checkpoint, read_tensors
from weft.runtime.data.table import Batch
from weft.runtime.train import trainer as trainer_module
from weft.runtime.train.context import Result
from weft.runtime.train.device import RunDevice
from weft.runtime.train.distributed.sampler import stream_micro_batches
from weft.runtime.train.engine import Engine
from weft.runtime.train.history import History, read
from weft.runtime.train.retention import checkpoints
from weft.runtime.train.run import Run
from weft.runtime.train.trainer import Trainer
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration

Maker = Callable[..., Run]


def same_bits(a: Path, b: Path) -> bool:
    """Return whether two checkpoints have bitwise the same weights."""
    left, right = (read_tensors(path / "weights.safetensors") for path in (a, b))
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


class Stopper:
    """A listener that stops the run at some update with SIGINT, like Ctrl-C."""

    def __init__(self, at: int) -> None:
        """Store the update."""
        self.at = at

    def log(self, text: str) -> None:
        """Ignore the line."""

    def validated(self, update: int, values: Any) -> None:  # noqa: ARG002
        """Send SIGINT at the first validation past the chosen update."""
        if update >= self.at:
            os.kill(os.getpid(), signal.SIGINT)

    def progress(self, progress: Any) -> None:
        """Ignore the progress."""


@pytest.fixture(scope="module")
def begun_run(toy_run_module: Maker) -> Run:
    """Return a run of four updates."""
    return toy_run_module(updates=4)


@pytest.fixture(scope="module")
def _begun(begun_run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of four updates."""
    folder = tmp_path_factory.mktemp("begun") / "run"
    api.train(begun_run, out=folder)
    return folder


@pytest.fixture
def begun(_begun: Path, tmp_path: Path) -> Path:
    """Return a copy of the folder of a run of four updates."""
    return shutil.copytree(_begun, tmp_path / "run")


def test_interrupted_and_resumed_ends_with_the_same_bits(
    toy_run: Maker, toy_trained: Result, tmp_path: Path
) -> None:
    """Data order and dropout are functions of the seed, so stopping changes nothing."""
    run, straight = toy_run(), toy_trained

    first = api.train(run, out=tmp_path / "halves", listener=Stopper(6))
    second = api.train(run, out=tmp_path / "halves", resume=True)

    assert not first.finished
    assert first.reason == "SIGINT"
    assert first.state.update == 6
    assert second.finished
    assert straight.averaged is not None
    assert second.averaged is not None
    assert same_bits(straight.averaged, second.averaged)
    losses = [
        [(e["update"], e["loss"]) for e in read(folder) if "loss" in e]
        for folder in (straight.averaged.parent, tmp_path / "halves")
    ]
    assert losses[0][-1] == losses[1][-1]


def test_a_folder_with_a_run_is_not_overwritten(begun_run: Run, begun: Path) -> None:
    """Without --resume an existing run is not changed."""
    with pytest.raises(InputError, match="already holds a run"):
        api.train(begun_run, out=begun)


def test_resuming_warns_about_changed_settings(begun_run: Run, begun: Path) -> None:
    """A changed setting is allowed, but logged as a warning."""
    messages: list[str] = []

    class LogListener(api.Silent):
        def log(self, text: str) -> None:
            messages.append(text)

    more = begun_run.model_copy(update={"updates": 6, "seed": 5})
    api.train(more, out=begun, resume=True, listener=LogListener())

    assert "warning: settings differ from the start of the run: 'updates', 'seed'" in messages


def test_resuming_another_graph_is_refused_with_the_differences(
    begun_run: Run, begun: Path
) -> None:
    """Another graph is an error even if every weight has the same name and shape."""
    model = begun_run.params["model"]
    params = {"model": {**model, "params": {**model["params"], "relu_dropout": 0.2}}}
    other = begun_run.model_copy(update={"updates": 8, "params": params})

    with pytest.raises(InputError) as caught:
        api.train(other, out=begun, resume=True)

    assert caught.value.problem.splitlines() == [
        "the run was started with another graph",
        "      ~ model.encoder.*.feed_forward/f  dropout 0.0 -> 0.2",
        "      ~ model.decoder.*.feed_forward/f  dropout 0.0 -> 0.2",
    ]


def test_keeps_the_newest_and_averages_them(toy_trained: Result) -> None:
    """All three checkpoints are kept; the average is the mean of the last two, by hand."""
    assert toy_trained.averaged is not None
    folder = toy_trained.averaged.parent

    kept = checkpoints(folder)
    assert [path.name for path in kept] == ["000004", "000008", "000012"]
    mean = read_tensors(toy_trained.averaged / "weights.safetensors")
    last = [read_tensors(path / "weights.safetensors") for path in kept[-2:]]
    for name, tensor in mean.items():
        first, second = (each[f"model.{name}"] for each in last)
        torch.testing.assert_close(tensor, (first + second) / 2)
    assert not (kept[0] / "optimizer.safetensors").exists()
    assert (kept[-1] / "optimizer.safetensors").exists()


def test_a_sharded_checkpoint_equals_an_unsharded_one(toy_run: Maker, tmp_path: Path) -> None:
    """A sharded checkpoint has the same bits, can be resumed and contains no pickle."""
    runs = {
        name: toy_run(updates=4, checkpoint={"every": 2, "average": 2, "sharded": name == "parts"})
        for name in ("whole", "parts")
    }
    results = {name: api.train(run, out=tmp_path / name) for name, run in runs.items()}
    left, right = (open_checkpoint(results[name].checkpoint or "") for name in runs)

    assert all(torch.equal(left.weights[name], right.weights[name]) for name in left.weights)
    assert left.optimizer().keys() == right.optimizer().keys()
    names = [p.name for p in right.folder.rglob("*")]
    assert not [n for n in names if n.startswith(".") or n.endswith((".pt", ".pkl"))]
    assert same_bits(tmp_path / "whole/averaged", tmp_path / "parts/averaged")
    more = [
        api.train(run.model_copy(update={"updates": 6}), out=tmp_path / name, resume=True)
        for name, run in runs.items()
    ]
    assert same_bits(*(result.averaged for result in more if result.averaged))
    resumable = [path for path in checkpoints(tmp_path / "parts") if (path / "optimizer").exists()]
    assert [path.name for path in resumable] == ["000004", "000006"]


def test_a_loss_that_is_not_finite_stops_before_it_spoils(toy_run: Maker, tmp_path: Path) -> None:
    """With a huge rate the run stops, and its earlier checkpoint is complete and finite."""
    run = toy_run(
        updates=200,
        schedule={"peak": 1e30},
        checkpoint={"every": 1, "keep": 1, "average": 0},
    )

    with pytest.raises(InputError, match="not finite"):
        api.train(run, out=tmp_path / "run")

    weights = open_checkpoint(checkpoints(tmp_path / "run")[-1]).weights
    assert all(torch.isfinite(tensor).all() for tensor in weights.values())


@pytest.mark.parametrize(
    ("device", "waits"),
    [
        ("cpu", False),
        pytest.param("cpu", True, id="as an accelerator"),
        pytest.param("cuda", True, marks=pytest.mark.gpu),
    ],
)
def test_a_gradient_that_is_not_finite_is_never_saved(
    device: str, waits: bool, toy_run: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss stays finite; on an accelerator, values are read only before reports and saves."""
    monkeypatch.setattr(RunDevice, "waits_for_values", waits)
    update = Trainer._update

    def overflowing(self: Trainer, micro_batches: Any) -> Any:
        weight = next(self.model.parameters())
        hook = weight.register_hook(lambda gradient: gradient * torch.inf)
        try:
            return update(self, micro_batches)
        finally:
            hook.remove()

    def poisoned(self: Trainer, micro_batches: Any) -> Any:
        return (overflowing if self.state.update == 6 else update)(self, micro_batches)

    monkeypatch.setattr(Trainer, "_update", poisoned)
    run = toy_run(device=device, updates=9, checkpoint={"every": 3}, evaluate={"every": 9})

    with pytest.raises(InputError, match=r"not finite .*checkpoint is .*000006"):
        api.train(run, out=tmp_path / "run")

    saved = [open_checkpoint(path).weights for path in checkpoints(tmp_path / "run")]
    assert len(saved) == 2
    assert all(torch.isfinite(t).all() for weights in saved for t in weights.values())
    assert not (tmp_path / "run/best").exists()


def test_accumulating_equals_a_larger_batch(toy_run: Maker, tmp_path: Path) -> None:
    """Two half batches in one update give the update of the complete batch."""
    calm = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0}
    one = toy_run(
        updates=1,
        params=calm,
        batch={"tokens": 40_000, "max_sentences": 200},
        evaluate={"every": 9, "best": "nll"},
        # A large eps makes the update follow the gradient's size, not its sign.
        optimizer={"eps": 1.0},
        schedule={"peak": 1.0},
    )
    two = one.model_copy(
        update={"batch": one.batch.model_copy(update={"max_sentences": 100}), "accumulate": 2}
    )

    results = [api.train(r, out=tmp_path / name) for r, name in ((one, "one"), (two, "two"))]

    a, b = (read_tensors(r.checkpoint / "weights.safetensors") for r in results if r.checkpoint)
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_unpadded_training_equals_padded_training(toy_run: Maker, tmp_path: Path) -> None:
    """Without dropout the curves are equal, and unpadding is logged; `auto` depends on the data."""
    calm = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.0}
    logs: dict[str, list[str]] = {}
    curves = {}
    runs: dict[str, tuple[dict[str, Any], int]] = {
        "padded": ({"without": ["unpad"]}, 200),
        "unpadded": ({"padding": "unpadded"}, 200),
        "auto": ({}, 4000),
    }
    for name, (setting, batch) in runs.items():
        messages = logs.setdefault(name, [])

        class LogListener(api.Silent):
            def log(self, text: str, messages: list[str] = messages) -> None:
                messages.append(text)

        run = toy_run(**setting, params=calm, batch={"tokens": batch})
        api.train(run, out=tmp_path / name, listener=LogListener())
        curves[name] = [event["nll"] for event in read(tmp_path / name) if "nll" in event]

    assert curves["unpadded"] == pytest.approx(curves["padded"], abs=1e-5)
    said = "unpad: S and T of model; padded for "
    assert [any(t.startswith(said) for t in logs[n]) for n in logs] == [False, True, True]


def test_batches_for_a_gpu_are_pinned_ahead_of_time_and_copied_without_waiting(
    toy_run: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU, with a substitute for pinned memory: the losses do not change."""
    pinned: dict[int, str] = {}
    copied = []
    to = Batch.to

    def pin_memory(value: torch.Tensor) -> torch.Tensor:
        there = value.clone()
        pinned[id(there)] = threading.current_thread().name
        kept.append(there)
        return there

    def copy(self: Batch, device: Any, *, non_blocking: bool = False) -> Batch:
        copied.append((all(id(one) in pinned for one in self.inputs.values()), non_blocking))
        return to(self, device, non_blocking=non_blocking)

    def stream(*given: Any, pin: bool, **named: Any) -> Any:
        assert not pin  # the device is the CPU
        return stream_micro_batches(*given, **named, pin=True)

    kept: list[torch.Tensor] = []
    run = toy_run(updates=4, accumulate=2)
    api.train(run, out=tmp_path / "plain")
    monkeypatch.setattr(torch.Tensor, "pin_memory", pin_memory)
    monkeypatch.setattr(Batch, "to", copy)
    monkeypatch.setattr(trainer_module, "stream_micro_batches", stream)

    api.train(run, out=tmp_path / "pinned")

    assert set(pinned.values()) == {"prefetch"}
    assert copied.count((True, True)) == run.updates * run.accumulate
    assert (True, False) not in copied
    assert same_bits(*(tmp_path / n / "checkpoints/000004" for n in ("plain", "pinned")))


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_only_batches_for_a_gpu_are_pinned(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pinned memory needs CUDA, and a copy on the CPU would gain nothing."""
    seen: list[bool] = []
    monkeypatch.setattr(
        trainer_module, "stream_micro_batches", lambda *_, pin, **__: seen.append(pin)
    )
    trainer: Any = MagicMock()
    trainer.context.placement.device = torch.device(kind)

    Trainer._stream_micro_batches(trainer)

    assert seen == [kind == "cuda"]


def test_too_little_memory_names_the_settings_that_need_less(
    toy_run: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of the tokens and twice the batches; the run can be resumed."""
    run = toy_run(updates=4, checkpoint={"every": 2}, batch={"tokens": 60}, accumulate=2)
    plain, updates = Engine.loss, 3 * run.accumulate

    def loss(self: Engine, batch: Any) -> Any:
        nonlocal updates
        updates -= 1
        if updates < run.accumulate:
            raise torch.OutOfMemoryError
        return plain(self, batch)

    monkeypatch.setattr(Engine, "loss", loss)

    with pytest.raises(InputError, match=r"too small for update 3; continue from .*000002") as seen:
        api.train(run, out=tmp_path / "run")
    assert "'batch.tokens' to 30 and 'accumulate' to 4" in seen.value.help
    assert "activation_checkpointing" in seen.value.help


def test_too_little_memory_for_the_measurement_of_compile_names_the_settings_too(
    toy_run: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU it runs the first forward and backward pass, before the first update."""

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(trainer_module, "compile_model", full)

    with pytest.raises(InputError, match="too small for update 1") as seen:
        api.train(toy_run(), out=tmp_path / "run")
    assert "'batch.tokens' to 100 and 'accumulate' to 8" in seen.value.help


def test_auxiliary_losses_are_weighted_and_logged(toy_run: Maker, tmp_path: Path) -> None:
    """Without smoothing the loss is the nll plus the weighted auxiliary losses of the layers."""
    small = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "experts": 4}
    run = toy_run(spec="moe-transformer", params=small, updates=3)
    params = {**run.params, "label_smoothing": 0.0}
    balance = {}
    for weight in (0.0, 0.5):
        out = tmp_path / str(weight)
        api.train(run.model_copy(update={"params": params, "auxiliary": weight}), out=out)
        [event_] = [event for event in read(out) if event["type"] == "train"]
        assert event_["loss"] == pytest.approx(
            event_["nll"] + weight * event_["auxiliary"], rel=1e-5
        )
        balance[weight] = event_["auxiliary"]

    # One mixture of experts per stack; the loss of each is at least about 1.
    assert 1.9 < balance[0.0] < 8.0
    assert balance[0.5] != balance[0.0]


def test_a_run_older_than_a_setting_resumes_without_a_warning(begun_run: Run, begun: Path) -> None:
    """A checkpoint without `auxiliary` counts as trained with the default."""
    newest = checkpoints(begun)[-1] / "run.json"
    written = json.loads(newest.read_text())
    del written["auxiliary"]
    newest.write_text(json.dumps(written))
    manifest.write(newest.parent)
    messages: list[str] = []

    class LogListener(api.Silent):
        def log(self, text: str) -> None:
            messages.append(text)

    api.train(begun_run, out=begun, resume=True, listener=LogListener())

    assert not [text for text in messages if text.startswith("warning")]


@pytest.mark.slow
def test_late_dropout_starts_at_its_update(toy_run: Maker, tmp_path: Path) -> None:
    """The run equals one without dropout until its piece begins, then one with it, also resumed."""
    base = toy_run(updates=3, checkpoint={"every": 3, "keep": 3, "average": 2})
    model = base.params["model"]

    def params(dropout: float) -> dict[str, Any]:
        return {"model": {**model, "params": {**model["params"], "dropout": dropout}}}

    calm = base.model_copy(update={"params": params(0.0)})
    late_run = {"params": params(0.5), "dropout": [{"over": 3}, {"from": 1}], "updates": 6}
    longer = Run.model_validate({**base.model_dump(by_alias=True), **late_run})
    late = tmp_path / "late.json"
    late.write_text(json.dumps(longer.model_dump(mode="json", by_alias=True)))

    plain = api.train(calm, out=tmp_path / "0")
    three = api.train(late, out=tmp_path / "1", overrides={"updates": 3})
    six = api.train(longer, out=tmp_path / "2")
    resumed = api.train(longer, out=tmp_path / "1", resume=True)
    without = api.train(calm.model_copy(update={"updates": 6}), out=tmp_path / "0", resume=True)

    def weights(result: Any) -> Path:
        return Path(result.checkpoint)

    assert same_bits(tmp_path / "0/checkpoints/000003", tmp_path / "1/checkpoints/000003")
    assert plain.finished
    assert three.finished
    assert same_bits(weights(six), weights(resumed))
    assert not same_bits(weights(six), weights(without))


def test_patience_ends_a_run_that_gets_no_better(toy_run: Maker, tmp_path: Path) -> None:
    """With a tiny learning rate the first validation stays the best, so the patience runs out."""
    run = toy_run(
        updates=50,
        schedule={"peak": 0.5},
        evaluate={"every": 2, "best": "nll", "patience": 2},
    )

    result = api.train(run, out=tmp_path / "run")

    assert result.state.update < 50
    assert "no improvement for 2 validations" in result.reason


def test_best_is_the_validation_with_the_lowest_nll(toy_run: Maker, tmp_path: Path) -> None:
    """`best` has the weights of the update with the best value in the history."""
    api.train(toy_run(evaluate={"every": 3, "best": "nll"}), out=tmp_path / "run")

    events = [e for e in read(tmp_path / "run") if e["type"] == "valid"]
    lowest = min(events, key=lambda e: e["nll"])
    assert open_checkpoint(tmp_path / "run/best").state["best_update"] == lowest["update"]


def test_learns_a_toy_language(toy_run: Maker, tmp_path: Path) -> None:
    """The loss falls below three quarters, so the sign of the gradient is right."""
    run = toy_run(updates=30, schedule={"peak": 0.01})
    result = api.train(run, out=tmp_path / "run")

    losses = [e["nll"] for e in read(tmp_path / "run") if e["type"] == "train"]
    assert result.finished
    assert losses[-1] < 0.75 * losses[0]


def test_history_drops_events_after_the_checkpoint(tmp_path: Path) -> None:
    """Events after the checkpoint are dropped, because the resumed run writes them again."""
    history = History(tmp_path, update=0)
    for update in (1, 2, 3):
        history.write(type="train", update=update, loss=1.0)
    history.close()
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"type": "train", "upd')

    History(tmp_path, update=2).close()

    assert [event["update"] for event in read(tmp_path)] == [1, 2]


@pytest.mark.slow
def test_killed_at_random_moments_ends_with_the_same_bits(toy_run: Maker, tmp_path: Path) -> None:
    """After SIGKILL the run resumes from the newest checkpoint and ends with the same bits.

    Each kill comes at a random moment after the run has saved a further checkpoint, so that it hits
    updates and saving on machines of any speed.
    """
    run = toy_run(updates=40, checkpoint={"every": 5, "keep": 3, "average": 2})
    straight = api.train(run, out=tmp_path / "straight")
    file, killed = tmp_path / "run.json", tmp_path / "killed"
    file.write_text(json.dumps(run.model_dump(mode="json")))
    command = [sys.executable, "-m", "weft", "train", str(file), "--out", str(killed)]
    moments, kills = random.Random(7), 0

    while not (killed / "averaged").is_dir():
        before = checkpoints(killed)[-1:]
        process = subprocess.Popen(
            [*command, *(["--resume"] if before else [])], stderr=subprocess.DEVNULL
        )
        while process.poll() is None and checkpoints(killed)[-1:] == before:
            time.sleep(0.01)
        try:
            process.wait(moments.uniform(0.0, 0.5))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            kills += 1
        assert process.wait() in {0, -signal.SIGKILL}
    subprocess.run([*command, "--resume"], stderr=subprocess.DEVNULL, check=True)

    assert kills > 0
    assert straight.averaged is not None
    assert same_bits(straight.averaged, killed / "averaged")
