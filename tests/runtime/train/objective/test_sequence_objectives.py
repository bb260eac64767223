"""Objectives of text pairs, texts and speech: each checks, draws and trains a tiny model."""

from __future__ import annotations

import json
import math
import random
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import weft
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run
from weft.specs.reader import shipped_names

from ...conftest import WORDS, write_toy

pytestmark = pytest.mark.integration

RATE = 16_000
LAYERS = {"d_model": 16, "heads": 2, "d_ff": 32, "dropout": 0.1}
PAIR: dict[str, Any] = {"spec": "transformer-tiny", "params": {**LAYERS, "layers": 1}}
BERT = {**LAYERS, "layers": 1, "max_length": 16}
BOTH, TARGET, TEXT, SOUND = "both", "both, no end", "text", "sound"
SPEECH = {"spec": "speech-ctc", "params": {**LAYERS, "layers": 1, "mels": 8, "vocab": "=vocab"}}
CASES: dict[str, tuple[str, dict[str, Any], list[str]]] = {
    "r-drop-translation": (BOTH, {"model": PAIR}, ["first", "second", "divergence"]),
    "word-dropout-translation": (BOTH, {"model": PAIR}, []),
    "small-data-translation": (BOTH, {"model": PAIR}, ["first", "second", "divergence"]),
    "distillation": (BOTH, {"model": PAIR, "teacher": PAIR}, ["labels", "imitation"]),
    "multi-task": (BOTH, {"model": PAIR}, ["translation", "language"]),
    "deep-supervision": (
        TEXT,
        {"model": {"spec": "gpt2-exits", "params": {**BERT, "layers": 3}}},
        ["last", "early", "middle"],
    ),
    "replaced-token-detection": (
        TEXT,
        {
            "model": {"spec": "electra", "params": BERT},
            "generator": {"spec": "electra-generator", "params": {**BERT, "d_embedding": 16}},
        },
        ["masked_language_model", "detection"],
    ),
    "contrastive": (
        BOTH,
        {"model": {"spec": "sentence-encoder", "params": {**BERT, "vocab": "=vocab"}}},
        [],
    ),
    "mask-predict": (
        TARGET,
        {
            "model": {
                "spec": "mask-predict",
                "params": {**PAIR["params"], "max_length": "=max_length"},
            },
            "max_length": 8,
        },
        ["words", "lengths"],
    ),
    "ctc": (SOUND, {"model": SPEECH}, []),
    "ctc-attention": (
        SOUND,
        {"model": SPEECH, "decoder": {"spec": "speech-decoder", "params": {**LAYERS, "layers": 1}}},
        ["ctc", "attention"],
    ),
}
"""Objective to its columns, its params, and its losses if there are several."""

Maker = Callable[..., Run]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with pairs of texts, and with tones that stand for words."""
    return write_pairs(tmp_path_factory.mktemp("data"))


def write_pairs(folder: Path) -> Path:
    """Write pairs of texts, and tones that stand for words; return the folder."""
    for name, lines in (("train", 120), ("valid", 16)):
        write_toy(folder, lines, len(name), name)
        write_tones(folder, lines // 4, name)
    return folder


def write_tones(folder: Path, rows: int, name: str) -> None:
    """Write texts of two or three words, and wav files with a tone for each word."""
    rng, lines = random.Random(len(name)), ["audio,text"]
    time = np.arange(RATE // 8) / RATE
    for row in range(rows):
        words = rng.choices(range(4), k=rng.randint(2, 3))
        tones = [
            0.5 * np.sin(2 * np.pi * 300 * 2**word * time) * np.hanning(len(time)) for word in words
        ]
        with wave.open(str(folder / f"{name}{row}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes((np.concatenate(tones) * 30_000).astype("<i2").tobytes())
        lines.append(f"{name}{row}.wav,{' '.join(WORDS[word] for word in words)}")
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")


def columns_and_splits(kind: str) -> dict[str, Any]:
    """Return the columns and splits of a kind of data."""
    text = {"type": "text", "tokenizer": "words"}
    if kind == SOUND:
        pytest.importorskip("soundfile")
        splits = {name: {"audio": {"files": [f"{name}.csv"]}} for name in ("train", "valid")}
        return {"columns": {"audio": {"type": "audio"}, "text": {**text, "end": False}}, **splits}
    if kind == TEXT:
        splits = {name: {"lines": {"text": [f"{name}.src"]}} for name in ("train", "valid")}
        return {"columns": {"text": text}, **splits}
    splits = {
        name: {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}
        for name in ("train", "valid")
    }
    target = {**text, "end": False} if kind == TARGET else text
    return {"columns": {"source": text, "target": target}, **splits}


def run_of(objective: str, data: Path, **changes: Any) -> Run:
    """Return a small run of an objective; keyword arguments replace top-level keys."""
    kind, params, _ = CASES[objective]
    value = {
        "format": 1,
        "name": objective,
        "objective": objective,
        "params": params,
        "data": {"root": str(data), **columns_and_splits(kind)},
        "tokenizers": {"words": {"type": "symbols"}},
        "batch": {"tokens": 200_000 if kind == SOUND else 250},
        "accumulate": 1,
        "updates": 12,
        "schedule": {"peak": 0.01},
        "evaluate": {"every": 6, "best": "loss"},
        "checkpoint": {"every": 6, "average": 2},
        "trackers": [],
        "precision": "float32",
        "compile": "eager",
        "threads": 1,
        **changes,
    }
    return Run.model_validate(value)


@pytest.mark.parametrize("name", CASES)
def test_trains_and_reports_each_loss_by_name(name: str, data: Path, tmp_path: Path) -> None:
    """The sum of the losses falls on both splits, and the best model opens."""
    slow = {"updates": 30} if name == "replaced-token-detection" else {}
    run = run_of(name, data, **slow)
    assert plan_run(run, "run.json").findings == []

    api.train(run, out=tmp_path)

    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    trained = [line for line in lines if line["type"] == "train"]
    valid = [line for line in lines if line["type"] == "valid"]
    assert trained[-1]["loss"] < trained[0]["loss"]
    assert valid[-1]["loss"] < valid[0]["loss"]
    for loss in CASES[name][2]:
        assert math.isfinite(trained[-1][loss])
        assert math.isfinite(valid[-1][loss])
    assert open_checkpoint(tmp_path / "best").graph.name == CASES[name][1]["model"]["spec"]


@pytest.mark.parametrize("name", CASES)
def test_the_shipped_objective_is_valid_and_draws(name: str, tmp_path: Path) -> None:
    """With its default model, as `weft check NAME` and `weft draw NAME` see it."""
    path = shipped_names("objectives")[name]

    assert weft.check(path) == []
    weft.draw(path, tmp_path / "picture.svg")

    picture = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert "model" in picture
