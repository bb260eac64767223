"""A run that trains within a second: sentences of a toy language, reversed word by word."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.train.context import Result
from weft.runtime.train.run import Run

from .small_graphs import graph, inputs, spec
from .toy_treebank import tree_run, tree_run_module

__all__ = [
    "graph",
    "inputs",
    "spec",
    "toy_checkpoint",
    "toy_run",
    "toy_run_module",
    "toy_trained",
    "tree_run",
    "tree_run_module",
]

SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
SPLITS = ("train", "valid", "test")
WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")


def write_toy(folder: Path, lines: int, seed: int, name: str) -> None:
    """Write lines of two to five words, and the same lines with the words in reverse."""
    rng = random.Random(seed)
    rows = [rng.choices(WORDS, k=rng.randint(2, 5)) for _ in range(lines)]
    (folder / f"{name}.src").write_text("".join(" ".join(row) + "\n" for row in rows))
    (folder / f"{name}.tgt").write_text("".join(" ".join(row[::-1]) + "\n" for row in rows))


@pytest.fixture
def toy_run(tmp_path: Path) -> Callable[..., Run]:
    """Return a factory of small runs: the spec and params of the model, and top-level keys."""
    return _maker(tmp_path / "data")


@pytest.fixture(scope="module")
def toy_run_module(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """Return the same factory with module scope, so that tests may share a trained model."""
    return _maker(tmp_path_factory.mktemp("toy") / "data")


@pytest.fixture(scope="session")
def toy_trained(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Return the result of a complete run of twelve updates, for tests that only read it."""
    base = tmp_path_factory.mktemp("trained")
    return api.train(_maker(base / "data")(), out=base / "run")


@pytest.fixture(scope="session")
def toy_checkpoint(toy_trained: Result) -> Path:
    """Return the averaged checkpoint, whose output depends on its input."""
    assert toy_trained.averaged is not None
    return toy_trained.averaged


def _maker(data: Path) -> Callable[..., Run]:
    """Write a corpus into a new folder; return a factory of runs on it."""
    data.mkdir()
    for name, lines in (("train", 200), ("valid", 20), ("test", 10)):
        write_toy(data, lines, len(name), name)

    def make(
        spec: str = "transformer-tiny", params: Mapping[str, Any] = SMALL, **changes: Any
    ) -> Run:
        lines = {n: {"lines": {"source": [f"{n}.src"], "target": [f"{n}.tgt"]}} for n in SPLITS}
        text = {"type": "text", "tokenizer": "tokenizer"}
        value: dict[str, Any] = {
            "format": 1,
            "name": "toy",
            "objective": "translation",
            "params": {"model": {"spec": spec, "params": dict(params)}},
            "data": {
                "root": str(data),
                "columns": {"source": text, "target": text},
                "train": lines["train"],
                "valid": lines["valid"],
                "test": {"toy": lines["test"]},
            },
            "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": 40}},
            "batch": {"tokens": 200},
            "updates": 12,
            "schedule": {"peak": 0.003},
            "evaluate": {"every": 6, "best": "nll", "metrics": ["perplexity"], "samples": 0},
            "checkpoint": {"every": 4, "keep": 3, "average": 2},
            "predict": {"type": "beam", "beam": 2, "max_extra": 4},
            "answers": "target",
            "trackers": [],
            "threads": 1,
            "precision": "float32",
        }
        if "evaluate" in changes:
            changes["evaluate"] = {"samples": 0, **changes["evaluate"]}
        return Run.model_validate({**value, **changes})

    return make
