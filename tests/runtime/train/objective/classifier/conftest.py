"""A tiny classifier of languages, from a file to a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

CLASSIFIER = {
    "format": 1,
    "name": "classifier",
    "params": {"vocab": 100, "classes": 2, "d_model": 16},
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"text": "ids:vocab[B T]", "mask": "mask[B T]"},
    "nodes": {
        "embedding": {
            "use": "embedding@1",
            "params": {"d_model": "=d_model"},
            "in": {"ids": "text"},
        },
        "pool": {"use": "pool@1", "in": {"x": "embedding.y", "mask": "mask"}},
        "head": {"use": "linear@1", "params": {"d_out": "=classes"}, "in": {"x": "pool.y"}},
    },
    "outputs": {"logits": "head.y"},
}
CLASSIFY = {
    "format": 1,
    "name": "classify",
    "params": {"model": {"spec": "classifier.json"}, "vocab": 100, "classes": 2},
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"text": "ids:vocab[B T]", "label": "label:classes[B]"},
    "nodes": {
        "mask": {"use": "not_padding@1", "in": {"ids": "text"}},
        "model": {
            "use": "=model",
            "in": {"text": "text", "mask": "mask.y"},
        },
        "cross_entropy": {
            "use": "cross_entropy@1",
            "in": {"logits": "model.logits", "classes": "label"},
        },
    },
    "outputs": {"loss": "cross_entropy.loss"},
    "deploy": "model",
}
RUN: dict[str, Any] = {
    "format": 1,
    "name": "languages",
    "objective": "classify.json",
    "data": {
        "root": ".",
        "columns": {"text": {"type": "text", "tokenizer": "pieces"}, "label": {"type": "class"}},
        "train": {"jsonl": {"files": ["train.jsonl"]}},
        "valid": {"jsonl": {"files": ["valid.jsonl"]}},
        "test": {"held-out": {"jsonl": {"files": ["valid.jsonl"]}}},
    },
    "tokenizers": {"pieces": {"type": "bpe", "vocab_size": 60}},
    "batch": {"tokens": 200},
    "accumulate": 1,
    "updates": 20,
    "schedule": {"peak": 0.05},
    "predict": "argmax",
    "answers": "label",
    "evaluate": {"every": 20, "metrics": ["accuracy"], "best": "accuracy"},
    "checkpoint": {"every": 10, "average": 2},
    "compile": "eager",
    "kernels": {"product": "torch", "attention": "plain"},
    "device": "cpu",
    "trackers": [],
    "threads": 1,
}
WORDS = {"en": "the dog runs and a cat sleeps", "de": "der hund rennt und eine katze ruht"}


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[..., Path]:
    """Write data, objective and run to a folder; keys of the run by dotted path may be changed."""

    def make(changes: dict[str, Any] | None = None, **objective: Any) -> Path:
        rows = []
        for number in range(40):
            label = ("en", "de")[number % 2]
            words = WORDS[label].split()
            text = " ".join(words[(number // 2 + at) % len(words)] for at in range(4))
            rows.append(json.dumps({"text": text, "label": label}) + "\n")
        (tmp_path / "train.jsonl").write_text("".join(rows))
        (tmp_path / "valid.jsonl").write_text("".join(rows[:10]))
        (tmp_path / "classifier.json").write_text(json.dumps(CLASSIFIER))
        (tmp_path / "classify.json").write_text(json.dumps({**CLASSIFY, **objective}))
        run = json.loads(json.dumps(RUN))
        run["data"]["root"] = str(tmp_path)
        for path, value in (changes or {}).items():
            *outer, last = path.split(".")
            at = run
            for key in outer:
                at = at.setdefault(key, {})
            at.pop(last, None) if value is ... else at.__setitem__(last, value)
        (tmp_path / "run.json").write_text(json.dumps(run))
        return tmp_path / "run.json"

    return make
