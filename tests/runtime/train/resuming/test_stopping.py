"""A training does not lose its run when its terminal, its log or the disk of its log goes."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.common.terminal import Reporter
from weft.runtime.cli.main import main
from weft.runtime.decode.predictors.text import TextPredictor
from weft.runtime.train.history import read
from weft.runtime.train.retention import checkpoints
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

pytestmark = pytest.mark.integration
Maker = Callable[..., Run]
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


@hangs_up
def test_a_training_that_ignores_hangups_goes_on(toy_run: Maker, tmp_path: Path) -> None:
    """So nohup starts its program."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = api.train(toy_run(), out=tmp_path / "run", listener=HangUp())
    finally:
        signal.signal(signal.SIGHUP, before)

    assert result.finished


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
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
