"""COMET: a trained metric that reads source, translation and reference, in a process of its own.

Source: Rei et al. 2020; Rei et al. 2022 (wmt22-comet-da).
"""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ...specs.findings import InputError
from ..data.columns.values import text_of
from .metric import Statistics, SumMetric, column_of, converted, ratio, refuse_other_length

PYTHON = "WEFT_COMET_PYTHON"
"""Environment variable with the Python of the environment that has unbabel-comet.

A run cannot name it: files run no programs."""
_WORKER = Path(__file__).with_name("comet_worker.py")
_ERRORS = 4000
"""Bytes at the end of the worker's messages that an error repeats."""


class Comet(SumMetric):
    """Mean score of a COMET model, about 0 to 1."""

    short: ClassVar[str] = "model"
    takes: ClassVar[tuple[str, ...]] = ("text",)
    reads: ClassVar[tuple[str, ...]] = ("source",)

    type: Literal["comet"] = "comet"
    model: str = Field(min_length=1)
    """Folder of a COMET model on this machine, with `checkpoints/model.ckpt` and `hparams.yaml`."""
    source: str = "source"
    """Column with the source texts."""
    batch: int = Field(default=16, ge=1, le=4096)
    """Translations that are scored together."""

    def references(self, rows: Sequence[Mapping[str, Any]], answers: str) -> list[Any]:
        """Return the source and the reference of each row."""
        sources = column_of(rows, self.source)
        return list(zip(sources, super().references(rows, answers), strict=True))

    def statistics(self, predictions: Sequence[Any], references: Sequence[Any]) -> Statistics:
        """Return the score of each translation, and 1.

        Raises:
            InputError: the model or unbabel-comet is missing, or a text is not scored.
        """
        refuse_other_length(predictions, references)
        texts = converted(predictions, text_of)
        sides = [converted([pair[side] for pair in references], text_of) for side in (0, 1)]
        names = ("mt", "src", "ref")
        rows = [dict(zip(names, row, strict=True)) for row in zip(texts, *sides, strict=True)]
        process, scores = _process(_python(), str(_checkpoint(self.model))), list[float]()
        for start in range(0, len(rows), self.batch):
            scores += process.scored(rows[start : start + self.batch])
        return np.stack((np.array(scores, np.float64), np.ones(len(scores))), 1)

    def value_of(self, total: NDArray[np.float64]) -> float:
        """Return the mean score."""
        return ratio(*total)

    def signature(self) -> str:
        """Return the name of the model and the version of unbabel-comet."""
        process = _process(_python(), str(_checkpoint(self.model)))
        return f"comet|model:{Path(self.model).resolve().name}|version:{process.version}"


def _python() -> str:
    """Return the Python that has unbabel-comet; by default the one that runs."""
    return os.environ.get(PYTHON) or sys.executable


def _checkpoint(model: str) -> Path:
    """Return the checkpoint in the folder of a model.

    Raises:
        InputError: there is none.
    """
    path = Path(model)
    if not (path / "hparams.yaml").is_file():
        raise InputError(
            "the folder has no 'hparams.yaml' of a COMET model",
            location=model,
            help="give the folder of a model on this machine, such as a snapshot of"
            " Unbabel/wmt22-comet-da; nothing is downloaded",
        )
    checkpoint = path / "checkpoints" / "model.ckpt"
    if not checkpoint.is_file():
        raise InputError(
            "the folder of a COMET model has no 'checkpoints/model.ckpt'",
            location=model,
            help="copy all files of the model",
        )
    return checkpoint.resolve()


_RUNNING: dict[tuple[str, str], _Process] = {}
"""Processes by their Python and their model."""


def _process(python: str, checkpoint: str) -> _Process:
    """Return the process that scores with a model, which is started once."""
    key = python, checkpoint
    if key not in _RUNNING:
        _RUNNING[key] = _Process(*key)
    return _RUNNING[key]


@atexit.register
def close() -> None:
    """End all processes; a later score starts one again."""
    while _RUNNING:
        _RUNNING.popitem()[1].close()


class _Process:
    """A process with a COMET model; it ends with this one, whose pipe it reads."""

    def __init__(self, python: str, checkpoint: str) -> None:
        """Start the process, and wait until it has opened the model.

        Raises:
            InputError: Python does not run, unbabel-comet is not installed, or the model is
                damaged.
        """
        self._checkpoint, self._lock = checkpoint, threading.Lock()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            self._worker = subprocess.Popen(
                # Isolated: the folder of the program has modules with names of the library.
                [python, "-I", str(_WORKER), checkpoint],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                encoding="utf-8",
            )
        except OSError as error:
            self._errors.close()
            raise InputError(
                f"'{python}' does not run: {error.strerror}",
                location=PYTHON,
                help="set it to the Python of an environment with unbabel-comet",
            ) from error
        self._inputs, self._outputs = self._worker.stdin, self._worker.stdout
        self.version = str(self._answer()["version"])

    def scored(self, rows: Sequence[Mapping[str, str]]) -> list[float]:
        """Return the scores of rows with `src`, `mt` and `ref`.

        Raises:
            InputError: they are not scored.
        """
        with self._lock:
            try:
                print(json.dumps(rows), file=self._inputs, flush=True)
            except OSError:
                self._refuse("the process of unbabel-comet ended")
            scores: Any = self._answer().get("scores")
        if not isinstance(scores, list) or len(scores) != len(rows):
            self._refuse(f"unbabel-comet gave no score for each of {len(rows)} translations")
        if not np.isfinite(scores).all():
            self._refuse("a score is not finite")
        return [float(score) for score in scores]

    def close(self) -> None:
        """End the process."""
        self._worker.kill()
        with suppress(OSError):  # what it has not read is lost
            self._worker.communicate()
        self._errors.close()

    def _answer(self) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            InputError: there is none, or it is an error.
        """
        try:
            answer = json.loads(next(iter(self._outputs or ()), ""))
        except ValueError:
            answer = {"error": "the process of unbabel-comet ended"}
        if "error" in answer:
            self._refuse(str(answer["error"]))
        return dict(answer)

    def _refuse(self, problem: str) -> None:
        """Raise an error with the last messages of the process, which is not used again."""
        self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, self._errors.tell() - _ERRORS))
        last = self._errors.read().decode(errors="replace").strip().splitlines()
        self.close()
        for key in [key for key, process in _RUNNING.items() if process is self]:
            del _RUNNING[key]
        missing = "No module named" in problem
        raise InputError(
            f"COMET does not score: {problem}"
            + (f" ({last[-1]})" if last and not missing and last[-1] not in problem else ""),
            location=PYTHON if missing else self._checkpoint,
            help=f"set the environment variable {PYTHON} to the Python of an environment with"
            " unbabel-comet"
            if missing
            else "check the files of the model, and that its encoder (pretrained_model in"
            " hparams.yaml) is on this machine",
        )
