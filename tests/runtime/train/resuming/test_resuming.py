"""Runs that are stopped, fail and go on."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
import torch
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.common.terminal import Reporter
from weft.runtime.cli.main import main
from weft.runtime.decode.predictors.text import TextPredictor
from weft.runtime.system.lock import locked
from weft.runtime.train.history import read
from weft.runtime.train.plan import load_run
from weft.runtime.train.recipe.optimizers import Sgd
from weft.runtime.train.retention import checkpoints
from weft.runtime.train.run import Run
from weft.runtime.train.trainer import enough_memory, too_large
from weft.specs.findings import InputError
from weft.specs.regular_files import DamagedError

from ...checkpoint.test_manifest import flip

Maker = Callable[..., Run]
Weights = Mapping[str, torch.Tensor]


class Log(api.Silent):
    """Keeps the log lines of a training."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        """Keep a line."""
        self.lines.append(text)


@pytest.fixture(scope="module")
def stopped(
    toy_run_module: Maker, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Run, Path, Weights]:
    """Return a run of 8 updates, its folder after 6 of them, and the weights after all."""
    run = toy_run_module(updates=6, checkpoint={"every": 2, "keep": 3, "average": 0})
    folder = tmp_path_factory.mktemp("stopped")
    api.train(run, out=folder / "run")
    longer = run.model_copy(update={"updates": 8})
    undisturbed = api.train(longer, out=folder / "other").checkpoint
    return longer, folder / "run", open_checkpoint(undisturbed or "").weights


@pytest.fixture
def begun(stopped: tuple[Run, Path, Weights], tmp_path: Path) -> tuple[Run, Path]:
    """Return a run of 8 updates that was stopped after 6, with checkpoints 2, 4 and 6."""
    run, folder, _ = stopped
    shutil.copytree(folder, tmp_path / "run", symlinks=True)
    return run, tmp_path / "run"


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and their contents."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.integration
@pytest.mark.parametrize("name", ["weights.safetensors", "optimizer.safetensors", "state.json"])
def test_a_damaged_newest_checkpoint_is_passed_over(
    name: str, begun: tuple[Run, Path], stopped: tuple[Run, Path, Weights]
) -> None:
    """The run continues from the one before, says so, and ends with the same bits."""
    run, folder = begun
    flip(folder / "checkpoints/000006" / name)
    log = Log()

    result = api.train(run, out=folder, resume=True, listener=log)

    assert [line for line in log.lines if "trying the checkpoint before it" in line]
    assert [line for line in log.lines if line.startswith("resuming after update 4")]
    assert (folder / "checkpoints/000006.damaged").is_dir()
    mine, other = open_checkpoint(result.checkpoint or "").weights, stopped[2]
    assert all(mine[key].equal(other[key]) for key in other)


@pytest.mark.integration
@pytest.mark.parametrize("name", ["spec.json", "state.json", "run.json", "weights.safetensors"])
def test_a_folder_in_place_of_a_file_is_damage(name: str, begun: tuple[Run, Path]) -> None:
    """The run continues from the checkpoint before, as after a flipped bit."""
    run, folder = begun
    (folder / "checkpoints/000006" / name).unlink()
    (folder / "checkpoints/000006" / name).mkdir()
    log = Log()

    api.train(run, out=folder, resume=True, listener=log)

    assert [line for line in log.lines if line.startswith("resuming after update 4")]


@pytest.mark.integration
def test_the_message_lists_every_damaged_checkpoint(begun: tuple[Run, Path]) -> None:
    """If no checkpoint is sound, nothing is trained."""
    run, folder = begun
    for path in checkpoints(folder)[-2:]:
        flip(path / "weights.safetensors")

    with pytest.raises(DamagedError) as caught:
        api.train(run, out=folder, resume=True)

    assert "000004" in caught.value.problem
    assert "000006" in caught.value.problem


@pytest.mark.integration
def test_two_checkpoints_can_be_resumed(begun: tuple[Run, Path]) -> None:
    """Older ones have lost their optimizer state; other folders beside them are ignored."""
    _, folder = begun
    (folder / "checkpoints/000004.bak").mkdir()

    assert [(p.name, open_checkpoint(p).can_resume) for p in checkpoints(folder)] == [
        ("000002", False),
        ("000004", True),
        ("000006", True),
    ]


@pytest.mark.integration
@pytest.mark.parametrize("resume", [False, True])
def test_a_request_that_does_not_fit_the_folder_writes_nothing(
    resume: bool, begun: tuple[Run, Path], toy_run: Maker, tmp_path: Path
) -> None:
    """A second run would replace the tokenizer and the corpus of the first one."""
    _, folder = begun
    out = tmp_path / "new" if resume else folder
    before = files_of(tmp_path)
    other = toy_run(updates=2, tokenizers={"tokenizer": {"type": "bpe", "vocab_size": 38}})

    with pytest.raises(InputError, match="nothing to resume" if resume else "already holds a run"):
        api.train(other, out=out, resume=resume)

    after = files_of(tmp_path)
    assert {name: after[name] for name in before} == before
    assert after.keys() == before.keys()


@pytest.mark.integration
def test_one_command_begins_and_continues(toy_run: Maker, tmp_path: Path) -> None:
    """With `auto`: at the first start, after a stop, and once the run is finished."""
    run = toy_run(updates=4, checkpoint={"every": 2, "keep": 3, "average": 0})
    (tmp_path / "run.json").write_text(run.model_dump_json(by_alias=True))
    words = ["train", str(tmp_path / "run.json"), "--out", str(tmp_path / "run")]
    assert main([*words, "--resume", "auto"]) == 0
    shutil.rmtree(tmp_path / "run/checkpoints/000004")
    log = Log()

    again = api.train(run, out=tmp_path / "run", resume="auto", listener=log)
    finished = main([*words, "--resume", "auto"])

    assert [line for line in log.lines if line.startswith("resuming after update 2")]
    assert (again.state.update, finished) == (4, 0)
    assert main([*words, "--resume"]) == main([*words, "--resume", "newest"]) == 0


@pytest.mark.integration
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 2}, "'seed'"),
        ({"schedule": {"peak": 0.1}, "batch": {"tokens": 100}}, "'batch', 'schedule'"),
    ],
)
def test_auto_refuses_the_folder_of_another_run(
    changes: dict[str, Any], named: str, begun: tuple[Run, Path], toy_run_module: Maker
) -> None:
    """A command that starts by itself must not mix two runs; nothing is written."""
    _, folder = begun
    saved = {"updates": 6, "checkpoint": {"every": 2, "keep": 3, "average": 0}}
    before = files_of(folder)

    with pytest.raises(InputError, match=f"belongs to another run: it has another {named}"):
        api.train(toy_run_module(**saved, **changes), out=folder, resume="auto")

    assert files_of(folder) == before


@pytest.mark.integration
def test_auto_does_not_begin_again_beside_damaged_checkpoints(begun: tuple[Run, Path]) -> None:
    """A job that is queued again would throw away what a person could still restore."""
    run, folder = begun
    for path in checkpoints(folder):
        path.rename(path.with_name(path.name + ".damaged"))

    with pytest.raises(InputError, match="a run whose checkpoints are damaged"):
        api.train(run, out=folder, resume="auto")


@pytest.mark.integration
def test_a_run_that_ends_before_its_newest_checkpoint_is_refused(
    begun: tuple[Run, Path],
) -> None:
    """No update would run, and the settings of the finished run would be replaced."""
    run, folder = begun
    before = files_of(folder)

    with pytest.raises(InputError, match="ends at update 4, but its newest checkpoint is of"):
        api.train(run.model_copy(update={"updates": 4}), out=folder, resume=True)

    assert files_of(folder) == before


@pytest.mark.integration
def test_other_training_data_give_a_warning(begun: tuple[Run, Path], tmp_path: Path) -> None:
    """A line edited in place: the tokenizer is the same here, but not the corpus."""
    run, folder = begun
    shutil.copytree(run.data.root, tmp_path / "data")
    moved = run.data.model_copy(update={"root": str(tmp_path / "data")})
    path = tmp_path / "data/train.src"
    first, second, *rest = path.read_text().splitlines()
    path.write_text("\n".join([second, first, *rest]) + "\n")
    log = Log()

    api.train(run.model_copy(update={"data": moved}), out=folder, resume=True, listener=log)

    assert [line for line in log.lines if "training data differ" in line]


@pytest.mark.integration
def test_another_optimizer_names_a_way_out(begun: tuple[Run, Path]) -> None:
    """The state of one optimizer means nothing to another."""
    run, folder = begun
    other = run.model_copy(update={"optimizer": Sgd()})

    with pytest.raises(InputError, match=r"optimizer 'adam'.*'sgd'.*\n.*\n.*restore 'optimizer'"):
        api.train(other, out=folder, resume=True)


@pytest.mark.integration
def test_one_process_at_a_time_uses_the_folder_of_a_run(tmp_path: Path) -> None:
    """The message names the process, and a lock whose process was killed is free."""
    code = (
        "import sys, time; from pathlib import Path; from weft.runtime.system.lock import locked\n"
        "with locked(Path(sys.argv[1])): print('locked', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"

    taken = pytest.raises(InputError, match=f"process {other.pid} on {os.uname().nodename}")
    with taken, locked(tmp_path):
        pass
    other.kill()
    other.wait()
    other.stdout.close()

    assert json.loads((tmp_path / ".owner.json").read_text())["pid"] == other.pid  # left behind
    with locked(tmp_path):
        assert json.loads((tmp_path / ".owner.json").read_text())["pid"] == os.getpid()


@pytest.mark.integration
def test_leftovers_of_a_killed_process_are_removed(begun: tuple[Run, Path]) -> None:
    """Unfinished checkpoints and half deleted ones would take disk space forever."""
    run, folder = begun
    left = ("checkpoints/.000005.partial", "checkpoints/.000002.old", ".best.partial")
    for name in left:
        (folder / name).mkdir()
        (folder / name / "weights.safetensors").write_bytes(b"half")

    api.train(run, out=folder, resume=True)

    assert [name for name in left if (folder / name).exists()] == []


@pytest.mark.integration
def test_a_replaced_folder_is_restored_before_leftovers_are_removed(
    begun: tuple[Run, Path],
) -> None:
    """A kill between the two renamings leaves the old one under its hidden name only."""
    run, folder = begun
    (folder / "best").rename(folder / ".best.old")

    class Stopping(api.Silent):
        def log(self, text: str) -> None:
            if text.startswith("resuming"):
                raise InputError("stopped before a validation writes another")

    with pytest.raises(InputError, match="stopped before"):
        api.train(run, out=folder, resume=True, listener=Stopping())

    assert open_checkpoint(folder / "best").weights


@pytest.mark.integration
def test_a_finished_run_deletes_its_old_checkpoints(begun: tuple[Run, Path]) -> None:
    """The process was killed after the last save, before it deleted the older checkpoints."""
    run, folder = begun
    saved = run.checkpoint.model_copy(update={"keep": 2, "average": 0})
    run = run.model_copy(update={"updates": 6, "checkpoint": saved})
    assert [path.name for path in checkpoints(folder)] == ["000002", "000004", "000006"]

    api.train(run, out=folder, resume=True)

    assert [path.name for path in checkpoints(folder)] == ["000004", "000006"]


hangs_up = pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")


class HangUp:
    """A listener whose terminal is closed at the first validation."""

    def log(self, text: str) -> None:
        """Ignore the line."""

    def validated(self, update: int, values: Any) -> None:  # noqa: ARG002
        """Send what a system sends to the programs of a terminal that is closed."""
        os.kill(os.getpid(), signal.SIGHUP)

    def progress(self, progress: Any) -> None:
        """Ignore the progress."""


@pytest.mark.integration
@hangs_up
def test_a_closed_terminal_stops_a_training_with_a_checkpoint(
    toy_run: Maker, tmp_path: Path
) -> None:
    """A handler that does nothing stands for the default, which would end the tests as well."""
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        result = api.train(toy_run(), out=tmp_path / "run", listener=HangUp())
    finally:
        signal.signal(signal.SIGHUP, before)

    assert (result.finished, result.reason) == (False, "SIGHUP")
    assert open_checkpoint(checkpoints(tmp_path / "run")[-1]).state["update"] == 6


@pytest.mark.integration
@hangs_up
def test_a_training_that_ignores_hangups_goes_on(toy_run: Maker, tmp_path: Path) -> None:
    """So nohup starts its program."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = api.train(toy_run(), out=tmp_path / "run", listener=HangUp())
    finally:
        signal.signal(signal.SIGHUP, before)

    assert result.finished


@pytest.mark.integration
@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGHUP", marks=pytest.mark.slow)])
def test_a_signal_ends_a_prediction_at_once_and_the_resumed_run_validates(
    name: str, toy_run: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prediction would never end; weights, history and best score are those without a stop."""
    number = getattr(signal, name, None)
    if number is None:
        pytest.skip("the system has no such signal")
    measures = {"every": 6, "best": "chrf", "metrics": ["chrf"], "samples": 0}
    run = toy_run(evaluate=measures, checkpoint={"every": 5, "keep": 3, "average": 0})
    before = signal.signal(number, signal.SIG_DFL)

    def endless(predictor: TextPredictor, rows: Any) -> Any:
        os.kill(os.getpid(), number)
        time.sleep(600)
        raise AssertionError((predictor, rows))

    try:
        monkeypatch.setattr(TextPredictor, "predict", endless)
        stopped = api.train(run, out=tmp_path / "run")
    finally:
        signal.signal(number, before)
        monkeypatch.undo()
    saved = open_checkpoint(checkpoints(tmp_path / "run")[-1]).state

    result = api.train(run, out=tmp_path / "run", resume=True)
    straight = api.train(run, out=tmp_path / "straight")

    assert (stopped.finished, stopped.reason) == (False, name)
    assert (saved["update"], saved["validation_due"], saved["best"]) == (6, True, None)
    mine, other = (open_checkpoint(r.checkpoint or "") for r in (result, straight))
    assert all(mine.weights[key].equal(other.weights[key]) for key in other.weights)
    for key in ("best", "best_update", "stale", "valid", "validation_due"):
        assert mine.state[key] == other.state[key]
    first, second = (
        [(e["update"], e["nll"], e["chrf"]) for e in read(r.folder) if e["type"] == "valid"]
        for r in (result, straight)
    )
    assert first == second


@pytest.mark.integration
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_log_that_cannot_be_written_does_not_end_a_training(
    toy_run: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither its lines of progress nor what other libraries print."""
    monkeypatch.setattr(Reporter, "validated", lambda *_: sys.stdout.write("a library\n"))
    (tmp_path / "run.json").write_text(toy_run().model_dump_json(by_alias=True))
    words = ["train", str(tmp_path / "run.json"), "--out", str(tmp_path / "out")]

    # Not in a fixture: pytest's own streams are in place again when the test begins.
    with (
        Path("/dev/full").open("w", 1) as full,
        Path("/dev/full").open("w", 1) as log,
        redirect_stdout(full),
        redirect_stderr(log),
    ):
        code = main(words)

    assert code == 0
    assert json.loads((tmp_path / "out/averaged/state.json").read_text())["update"] == 12


@pytest.mark.integration
@pytest.mark.skipif(sys.platform == "win32", reason="names of files are Unicode")
def test_a_folder_that_is_not_utf_8_is_refused_before_training(
    toy_run: Maker, tmp_path: Path
) -> None:
    """Safetensors opens no file in it, so every checkpoint would be lost."""
    folder = tmp_path / os.fsdecode(b"run-\xff")

    with pytest.raises(InputError, match="the path is not UTF-8") as caught:
        api.train(toy_run(), out=folder)

    assert not folder.exists()
    str(caught.value).encode()


def context_of(name: str, changes: dict[str, Any], folder: Path) -> Any:
    """Return what the errors read of the context of a shipped run on a GPU."""
    context = MagicMock(folder=folder)
    context.run, _ = load_run(name, changes)
    context.placement.device = torch.device("cuda")
    return context


@pytest.mark.parametrize(
    ("name", "changes", "help_"),
    [
        (
            "multi30k-en-de",
            {"batch.tokens": 1000, "accumulate": 3},
            (
                "set 'batch.tokens' to 500 and 'accumulate' to 6, which keeps the tokens of an"
                " update, or set 'activation_checkpointing'"
            ),
        ),
        (
            "multi30k-en-de",
            {"batch.max_sentences": 30},
            (
                "set 'batch.tokens' to 1050, 'batch.max_sentences' to 15 and 'accumulate' to 2,"
                " which keeps the tokens of an update, or set 'activation_checkpointing'"
            ),
        ),
        (
            "image-classification-digits",
            {},
            (
                "set 'batch.max_sentences' to 32 and 'accumulate' to 2, which keeps the rows of an"
                " update, or set 'activation_checkpointing'"
            ),
        ),
        # Texts have up to 250 tokens and an end token, which a batch of half the size cannot have.
        ("multi30k-en-de", {"batch.tokens": 500}, "set 'activation_checkpointing'"),
        (
            "image-classification-digits",
            {"batch.max_sentences": 1},
            "set 'activation_checkpointing'",
        ),
        (
            "image-classification-digits",
            {"batch.max_sentences": 1, "activation_checkpointing": "model.layer.*"},
            "train a smaller model",
        ),
    ],
)
def test_advice_on_memory_names_settings_that_the_run_may_have(
    name: str, changes: dict[str, Any], help_: str, tmp_path: Path
) -> None:
    """Rows of images have no tokens; a batch has room for the longest text, or for one row."""
    found = too_large(context_of(name, changes, tmp_path), 7)

    assert found.problem == "the memory of cuda is too small for update 8"
    assert found.help == help_


@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("multi30k-en-de", ", or give the predictor a smaller 'beam'"),
        ("masked-language-model-multi30k", ", or train a smaller model"),
    ],
)
def test_a_validation_that_does_not_fit_is_no_update(name: str, more: str, tmp_path: Path) -> None:
    """It follows an update that fitted; checkpointing would not help, as it has no backward."""
    context = context_of(name, {}, tmp_path)

    with (
        pytest.raises(InputError, match="too small for the validation after update 7") as caught,
        enough_memory(context, MagicMock(update=7), "validation"),
    ):
        raise torch.OutOfMemoryError
    assert caught.value.help.endswith(f"which keeps the tokens of an update{more}")
    assert "activation_checkpointing" not in caught.value.help


DRILL = Path(__file__).parents[4] / "benchmarks" / "save_drill.py"
UNPRIVILEGED = shutil.which("unshare") is not None and (
    subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")
@pytest.mark.parametrize(
    ("mode", "step"), [("kill", 37), ("full", 31), ("size", 1), ("outputs", 29), ("inodes", 5)]
)
def test_a_fault_at_a_file_operation_loses_nothing(mode: str, step: int, tmp_path: Path) -> None:
    """Every checkpoint is complete, and the continued run ends with the same bits.

    The drill itself tries every operation; here, every 29th to 37th one.
    """
    if mode == "inodes" and not UNPRIVILEGED:
        pytest.skip("user namespaces are not permitted")

    done = subprocess.run(
        [sys.executable, str(DRILL), "--mode", mode, "--step", str(step), "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
