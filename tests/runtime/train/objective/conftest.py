"""Runs of objectives that train within a second, on the toy corpus of reversed sentences."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.runtime.checkpoint.checkpoint import read_tensors

from ...conftest import write_toy

SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
"""Params of a small transformer."""
DECODER = {"d_model": 16, "heads": 2, "layers": 1, "dropout": 0.1, "attention_dropout": 0.0}
"""Params of a small decoder."""
MODEL = {"spec": "transformer-tiny", "params": SMALL}
DEFINED = {
    "cross_entropy": {
        "use": "cross_entropy@1",
        "in": {"logits": "model.logits", "labels": "target", "mask": "target_mask.y"},
    }
}
INPUTS = {"source": "ids:source_vocab[B S]", "target": "ids:vocab[B T]"}
READ = {"source": "source", "source_mask": "source_mask.y", "target": "shifted.y"}
"""Wires of the inputs of a translation model."""


def pairs_objective(nodes: dict[str, Any], outputs: dict[str, str], **more: Any) -> dict[str, Any]:
    """Return an objective on pairs of sentences, with the model of translation."""
    return {
        "format": 1,
        "name": "toy-objective",
        "doc": "An objective of the tests.",
        "params": {"model": {"spec": "transformer-tiny"}, "source_vocab": 40, "vocab": 40},
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": INPUTS,
        "nodes": {
            "source_mask": {"use": "not_padding@1", "in": {"ids": "source"}},
            "target_mask": {"use": "not_padding@1", "in": {"ids": "target"}},
            "shifted": {"use": "shift@1", "in": {"x": "target"}},
            "model": {"use": "=model", "in": READ},
            **DEFINED,
            **nodes,
        },
        "outputs": outputs,
        "deploy": "model",
        **more,
    }


SECOND = {
    "again": {"share": "model", "in": READ},
    "cross_entropy_again": {
        "use": "cross_entropy@1",
        "in": {"logits": "again.logits", "labels": "target", "mask": "target_mask.y"},
    },
    "divergence": {
        "use": "kl_divergence@1",
        "params": {"direction": "symmetric"},
        "in": {"logits": "model.logits", "target": "again.logits", "mask": "target_mask.y"},
    },
}
"""A second pass with other dropout, and the divergence of both (Liang et al. 2021)."""
R_DROP = pairs_objective(
    SECOND,
    {
        "first": "cross_entropy.loss",
        "again": "cross_entropy_again.loss",
        "divergence": "divergence.loss",
        "nll": "cross_entropy.nll",
    },
    losses={"divergence": 0.5},
)
"""R-Drop: cross-entropy of two passes, and the divergence between them."""
TWO_LOSSES = pairs_objective(
    {
        "source_labels": {"use": "shift@1", "in": {"x": "source"}},
        "reader": {
            "use": "=reader",
            "in": {"tokens": "source_labels.y"},
        },
        "reading": {
            "use": "cross_entropy@1",
            "in": {"logits": "reader.logits", "labels": "source", "mask": "source_mask.y"},
        },
    },
    {
        "translation": "cross_entropy.loss",
        "reading": "reading.loss",
        "nll": "cross_entropy.nll",
        "reading_nll": "reading.nll",
    },
    losses={"reading": 0.25},
    params={
        "model": {"spec": "transformer-tiny"},
        "reader": {"spec": "gpt2"},
        "source_vocab": 40,
        "vocab": 40,
    },
)
"""Translation, and a language model of the source, whose sentences have other lengths."""
MASKED = {
    "format": 1,
    "name": "masked-toy",
    "doc": "A masked language model.",
    "params": {"model": {"spec": "gpt2"}, "vocab": 40},
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"text": "ids:vocab[B T]"},
    "nodes": {
        "noise": {"use": "mask_tokens@1", "params": {"rate": 0.4}, "in": {"ids": "text"}},
        "model": {"use": "=model", "in": {"tokens": "noise.y"}},
        "cross_entropy": {
            "use": "cross_entropy@1",
            "in": {"logits": "model.logits", "labels": "text", "mask": "noise.selected"},
        },
    },
    "outputs": {"loss": "cross_entropy.loss", "nll": "cross_entropy.nll"},
    "deploy": "model",
}
"""A masked language model, whose number of items is that of the tokens drawn."""

Writer = Callable[..., Path]


def write_run(folder: Path, objective: str | dict[str, Any], **changes: Any) -> Path:
    """Write a corpus, an objective and a run of it; return the run's file.

    Args:
        folder: where they are written.
        objective: a shipped name, or an objective.
        changes: replace top-level keys of the run; `columns` takes the place of both texts.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in (("train", 200), ("valid", 20)):
        write_toy(folder, lines, len(name), name)
    if not isinstance(objective, str):
        (folder / "objective.json").write_text(json.dumps(objective))
        objective = "objective.json"
    columns = changes.pop("columns", {"source": "src", "target": "tgt"})
    run = {
        "format": 1,
        "name": "toy",
        "objective": objective,
        "params": {"model": MODEL},
        "data": {
            "root": str(folder),
            "columns": {name: {"type": "text", "tokenizer": "text"} for name in columns},
            **{
                split: {"lines": {name: [f"{split}.{end}"] for name, end in columns.items()}}
                for split in ("train", "valid")
            },
        },
        "tokenizers": {"text": {"type": "bpe", "vocab_size": 40}},
        "batch": {"tokens": 200},
        "accumulate": 2,
        "updates": 12,
        "schedule": {"peak": 0.003},
        "evaluate": {"every": 6, "best": "nll", "samples": 0},
        "checkpoint": {"every": 4, "keep": 3, "average": 2},
        "trackers": [],
        "threads": 1,
        "precision": "float32",
    }
    path = folder / "run.json"
    path.write_text(json.dumps({**run, **changes}))
    return path


@pytest.fixture
def objective_run(tmp_path: Path) -> Writer:
    """Return `write_run` for a folder of the test."""

    def write(objective: str | dict[str, Any], **changes: Any) -> Path:
        return write_run(tmp_path / "toy", objective, **changes)

    return write


def weights(folder: Path) -> dict[str, Tensor]:
    """Return the weights of a checkpoint."""
    return read_tensors(folder / "weights.safetensors")


def equal(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    """Return whether two sets of tensors have the same names and bits."""
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)
