"""Tests of the training of objectives: frozen parts, teachers, starts, the best, resuming."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.context import Result
from weft.runtime.train.history import read
from weft.runtime.train.trainer import Trainer
from weft.specs.findings import InputError, SpecError

from .conftest import (
    DECODER,
    MASKED,
    MODEL,
    R_DROP,
    READ,
    SMALL,
    Writer,
    equal,
    pairs_objective,
    weights,
)

pytestmark = pytest.mark.integration

TEXT = {"columns": {"text": "src"}, "params": {"model": {"spec": "gpt2", "params": DECODER}}}
"""Settings of a run with one column of text."""
DISTILLED = pairs_objective(
    {
        "teacher": {"use": "=teacher", "frozen": True, "in": READ},
        "divergence": {
            "use": "kl_divergence@1",
            "in": {"logits": "model.logits", "target": "teacher.logits", "mask": "target_mask.y"},
        },
    },
    {
        "translation": "cross_entropy.loss",
        "divergence": "divergence.loss",
        "nll": "cross_entropy.nll",
    },
    params={
        "model": {"spec": "transformer-tiny"},
        "teacher": {"spec": "transformer-tiny"},
        "source_vocab": 40,
        "vocab": 40,
    },
)
"""Distillation from a frozen teacher."""


class Stopper(api.Silent):
    """Stops a run at an update with SIGINT, like Ctrl-C."""

    def __init__(self, at: int) -> None:
        """Store the update."""
        self.at = at

    def validated(self, update: int, values: Any) -> None:  # noqa: ARG002
        """Send SIGINT at the first validation past the chosen update."""
        if update >= self.at:
            os.kill(os.getpid(), signal.SIGINT)


class Messages(api.Silent):
    """Collects the lines of the log."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        """Store the line."""
        self.lines.append(text)


def resumed(file: Path, folder: Path) -> tuple[Result, Result]:
    """Return the results of an undisturbed run, and of one stopped at update 6 and resumed."""
    straight = api.train(file, out=folder / "straight")
    first = api.train(file, out=folder / "halves", listener=Stopper(6))
    assert not first.finished
    assert first.state.update == 6
    return straight, api.train(file, out=folder / "halves", resume=True)


@pytest.mark.parametrize("name", ["masked", "r-drop"])
def test_a_resumed_run_ends_with_the_same_bits(
    objective_run: Writer, tmp_path: Path, name: str
) -> None:
    """Noise, and the dropout of two passes of one model, are functions of seed and update."""
    file = objective_run(MASKED, **TEXT) if name == "masked" else objective_run(R_DROP)

    straight, again = resumed(file, tmp_path)

    assert equal(weights(straight.checkpoint), weights(again.checkpoint))  # type: ignore[arg-type]
    assert equal(weights(straight.averaged), weights(again.averaged))  # type: ignore[arg-type]
    values = [
        [{k: v for k, v in e.items() if "seconds" not in k and k not in SPEEDS} for e in events]
        for events in (read(tmp_path / each) for each in ("straight", "halves"))
    ]
    assert values[0][-2:] == values[1][-2:]


SPEEDS = ("tokens_per_second", "data_wait_share")


def test_both_passes_of_r_drop_differ_and_are_reported(
    objective_run: Writer, tmp_path: Path
) -> None:
    """Each pass draws its own dropout; their divergence is positive, and every loss has a name."""
    api.train(objective_run(R_DROP), out=tmp_path / "run")

    last = [e for e in read(tmp_path / "run") if e["type"] == "train"][-1]
    assert last["again"] != pytest.approx(last["first"], abs=1e-9)
    assert last["divergence"] > 0
    valid = [e for e in read(tmp_path / "run") if e["type"] == "valid"][-1]
    # Without dropout both passes are one.
    assert valid["again"] == pytest.approx(valid["first"], rel=1e-6)
    assert valid["divergence"] == pytest.approx(0.0, abs=1e-6)


def test_a_moving_average_is_what_a_run_leaves_behind(
    objective_run: Writer, tmp_path: Path
) -> None:
    """Of the raw weights after each of three updates, computed from their checkpoints."""
    settings = {"every": 1, "keep": 3, "average": 0, "ema": 0.5}
    overrides = {"updates": 3, "checkpoint": settings}
    result = api.train(objective_run("translation"), out=tmp_path / "run", overrides=overrides)

    raw = [weights(tmp_path / f"run/checkpoints/{n:06d}") for n in (1, 2, 3)]
    mean = weights(result.averaged)  # type: ignore[arg-type]
    assert mean
    for name, found in mean.items():
        one, two, three = (each[f"model.{name}"] for each in raw)
        torch.testing.assert_close(found, one / 4 + two / 4 + three / 2)
        assert not torch.equal(found, three)


def test_frozen_parts_keep_their_weights_and_have_no_optimizer_state(
    objective_run: Writer, tmp_path: Path
) -> None:
    """A selection freezes; everything else trains."""
    file = objective_run("translation", freeze=["model.encoder.*"])
    messages = Messages()
    result = api.train(file, out=tmp_path / "run", listener=messages)
    untrained = api.train(
        file,
        out=tmp_path / "untrained",
        overrides={"schedule.peak": 1e-30, "updates": 1, "checkpoint.average": 0},
    )

    after, before = weights(result.checkpoint), weights(untrained.checkpoint)  # type: ignore[arg-type]
    same = {name for name in after if torch.equal(after[name], before[name])}
    frozen = {name for name in after if name.startswith("model.encoder.")}
    assert frozen
    assert same == frozen
    moments = open_checkpoint(result.checkpoint or "").optimizer()
    assert {key.rpartition(".")[0] for key in moments} == after.keys() - frozen
    trained = sum(after[name].numel() for name in after.keys() - frozen)
    message = f"frozen: {len(frozen)} weights; {trained:,} parameters train"
    assert message in messages.lines


def test_weights_that_the_spec_freezes_never_train(objective_run: Writer, tmp_path: Path) -> None:
    """Not in a training that starts from the checkpoint of another either."""
    rules = [
        {"select": "encoder.*.self_attention", "frozen": True},
        {"select": "encoder.*.feed_forward", "weights": "bias", "constant": 0.25, "frozen": True},
    ]
    model = {**MODEL, "patch": [{"select": "/", "set": {"init": rules}}]}
    file = objective_run("translation", params={"model": model})
    first = api.train(file, out=tmp_path / "first")
    again = api.train(file, out=tmp_path / "again", overrides={"start": str(first.averaged)})
    before, after = weights(first.checkpoint), weights(again.checkpoint)  # type: ignore[arg-type]

    same = {name for name in after if torch.equal(after[name], before[name])}
    paths = [name for name in after if name.startswith("model.encoder.")]
    frozen = {name for name in paths if "self_attention" in name or name.endswith(".bias")}
    frozen -= {name for name in paths if "feed_forward.norm" in name and "bias" not in name}
    assert same == frozen
    biases = [name for name in frozen if "feed_forward" in name]
    assert biases
    assert all(torch.equal(after[name], torch.full_like(after[name], 0.25)) for name in biases)
    moments = open_checkpoint(again.checkpoint or "").optimizer()
    assert {key.rpartition(".")[0] for key in moments} == after.keys() - frozen


def test_a_teacher_from_a_checkpoint_keeps_its_weights_and_does_not_drop(
    objective_run: Writer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`{"checkpoint": FOLDER}` fills the node; the teacher stays in evaluation mode."""
    first = api.train(objective_run("translation"), out=tmp_path / "teacher")
    assert first.averaged is not None
    params = {"model": MODEL, "teacher": {"checkpoint": str(first.averaged)}}
    modes = []
    update = Trainer._update

    def watched(self: Trainer, micro_batches: Any) -> Any:
        teacher = self.model.get_submodule("teacher")
        modes.append((self.model.training, any(m.training for m in teacher.modules())))
        return update(self, micro_batches)

    monkeypatch.setattr(Trainer, "_update", watched)
    result = api.train(objective_run(DISTILLED, params=params), out=tmp_path / "student")

    assert set(modes) == {(True, False)}
    whole = weights(result.checkpoint)  # type: ignore[arg-type]
    teacher = {k.removeprefix("teacher."): v for k, v in whole.items() if k.startswith("teacher.")}
    assert equal(teacher, weights(first.averaged))
    moments = open_checkpoint(result.checkpoint or "").optimizer()
    assert not [key for key in moments if key.startswith("teacher.")]
    assert result.averaged is not None
    assert weights(result.averaged).keys() == weights(first.averaged).keys()
    events = [e for e in read(tmp_path / "student") if e["type"] == "valid"]
    assert events[-1]["divergence"] < events[0]["divergence"]


def test_a_resumed_student_has_the_weights_of_its_teacher(
    objective_run: Writer, tmp_path: Path
) -> None:
    """The teacher is in the checkpoint of the training, so that resuming needs no other."""
    first = api.train(objective_run("translation"), out=tmp_path / "teacher")
    params = {"model": MODEL, "teacher": {"checkpoint": str(first.averaged)}}

    straight, again = resumed(objective_run(DISTILLED, params=params), tmp_path)

    assert equal(weights(straight.checkpoint), weights(again.checkpoint))  # type: ignore[arg-type]


def test_a_run_starts_from_a_deployed_model_or_from_an_objective(
    objective_run: Writer, tmp_path: Path
) -> None:
    """Both fill the model of another objective."""
    first = api.train(objective_run("translation"), out=tmp_path / "first")
    model = weights(first.averaged)  # type: ignore[arg-type]
    still = {"schedule": {"peak": 1e-30}, "updates": 1}
    still["checkpoint"] = {"average": 0}
    inside = {k.removeprefix("model."): v for k, v in weights(first.checkpoint).items()}  # type: ignore[arg-type]

    for name, folder, expected in (
        ("deployed", first.averaged, model),
        ("objective", first.checkpoint, inside),
    ):
        messages = Messages()
        file = objective_run(R_DROP, start=str(folder), **still)
        result = api.train(file, out=tmp_path / name, listener=messages)
        found = {k.removeprefix("model."): v for k, v in weights(result.checkpoint).items()}  # type: ignore[arg-type]
        assert equal(found, expected)
        assert any(line.startswith("starting from") for line in messages.lines)


def test_a_run_starts_only_from_a_model_of_the_same_tokens(
    objective_run: Writer, tmp_path: Path
) -> None:
    """The tokenizer of the text must be that of the checkpoint."""
    first = api.train(objective_run(MASKED, **TEXT), out=tmp_path / "first")
    tokenizers = {"text": {"type": "bpe", "vocab_size": 38}}
    file = objective_run(MASKED, start=str(first.averaged), tokenizers=tokenizers, **TEXT)

    with pytest.raises((InputError, SpecError), match="has another 'vocab_size'"):
        api.train(file, out=tmp_path / "second")


def test_classes_are_part_of_a_checkpoint(objective_run: Writer, tmp_path: Path) -> None:
    """A run with a column of classes resumes; one without starts from it, as its text is equal."""
    file = objective_run(MASKED, **TEXT)
    run = json.loads(file.read_text())
    kinds = {"train": 200, "valid": 20}
    for name, count in kinds.items():
        (file.parent / f"{name}.kind").write_text("short\nlong\n" * (count // 2))
        run["data"][name]["lines"]["kind"] = [f"{name}.kind"]
    run["data"]["columns"]["kind"] = {"type": "class"}
    file.write_text(json.dumps(run))

    straight, again = resumed(file, tmp_path)

    assert equal(weights(straight.checkpoint), weights(again.checkpoint))  # type: ignore[arg-type]
    assert again.averaged is not None
    files = open_checkpoint(again.averaged).tokenizers
    assert json.loads(files["kind.classes.json"]) == ["long", "short"]
    plain = objective_run(MASKED, start=str(again.averaged), **TEXT)
    messages = Messages()
    api.train(plain, out=tmp_path / "plain", listener=messages)
    assert any(line.startswith("starting from") for line in messages.lines)


@pytest.mark.parametrize("best", ["nll", "bleu"])
def test_the_best_is_chosen_in_the_direction_of_its_metric(
    objective_run: Writer, tmp_path: Path, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nll: the lowest; bleu: the highest. The values are made up; patience stops the run."""
    values = iter([3.0, 2.0, 4.0, 1.0, 5.0, 6.0, 7.0, 8.0])
    monkeypatch.setattr(
        "weft.runtime.train.context.validator",
        lambda *_: lambda *_: {"nll": 1.0, best: next(values)},
    )
    file = objective_run(
        "translation",
        evaluate={"every": 1, "best": best, "patience": 3},
        checkpoint={"average": 0},
        **({"predict": {"type": "beam", "beam": 1}, "answers": "target"} if best == "bleu" else {}),
        updates=8,
    )
    result = api.train(file, out=tmp_path / "run")

    expected = {"nll": (4, 7, 1.0), "bleu": (8, 8, 8.0)}[best]
    assert (result.state.best_update, result.state.update) == expected[:2]
    assert open_checkpoint(tmp_path / "run/best").state["update"] == expected[0]
    assert abs(result.state.best or 0.0) == expected[2]


def test_a_loss_by_name_can_select_the_best(objective_run: Writer, tmp_path: Path) -> None:
    """`loss:NAME` is the mean of that loss on the validation data."""
    file = objective_run(R_DROP, evaluate={"every": 6, "best": "loss:again"})

    result = api.train(file, out=tmp_path / "run")

    events = [e for e in read(tmp_path / "run") if e["type"] == "valid"]
    assert result.state.best == -min(event["again"] for event in events)


def test_activation_checkpointing_changes_no_bit(objective_run: Writer, tmp_path: Path) -> None:
    """Two passes of one model are computed again with the dropout of each."""
    plain = api.train(objective_run(R_DROP), out=tmp_path / "plain")
    again = api.train(
        objective_run(R_DROP, activation_checkpointing=["model.encoder.*", "model.decoder.*"]),
        out=tmp_path / "again",
    )

    assert equal(weights(plain.checkpoint), weights(again.checkpoint))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of Dynamo and Inductor, about themselves
def test_a_compiled_run_has_the_same_losses(objective_run: Writer, tmp_path: Path) -> None:
    """The layers of a model in an objective are compiled; only rounding differs."""
    still = {"model": {"spec": "transformer-tiny", "params": {**SMALL, "dropout": 0.0}}}
    losses = {}
    for mode in ("eager", "layers"):
        result = api.train(
            objective_run(R_DROP, params=still, compile=mode, updates=10), out=tmp_path / mode
        )
        assert result.state.compiled == mode
        events = read(tmp_path / mode)
        losses[mode] = [event["loss"] for event in events]

    assert losses["layers"] == pytest.approx(losses["eager"], abs=1e-4)
