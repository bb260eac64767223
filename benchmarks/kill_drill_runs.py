"""The runs that `kill_drill.py` kills: a toy corpus, and R-Drop on Multi30k."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")
SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
"""Params of the model."""
MUON = {
    "select": "**[dim=2]",
    "except": ["**[use=embedding@1]"],
    "type": "muon",
    "rate": 0.01,
    "momentum": [{"from": 0.85, "to": 0.95, "over": 0.5}],
}
"""The group of a second optimizer."""
EVERY = 2
"""Updates between checkpoints."""


def write_run(folder: Path, updates: int) -> Path:
    """Write a corpus that maps words to the reversed words, and a run file for it."""
    rng = random.Random(5)
    for name, lines in (("train", 200), ("valid", 20)):
        rows = [rng.choices(WORDS, k=rng.randint(2, 5)) for _ in range(lines)]
        (folder / f"{name}.src").write_text("".join(" ".join(row) + "\n" for row in rows))
        (folder / f"{name}.tgt").write_text("".join(" ".join(row[::-1]) + "\n" for row in rows))
    files = {
        name: {"lines": {"source": [f"{name}.src"], "target": [f"{name}.tgt"]}}
        for name in ("train", "valid")
    }
    columns = {side: {"type": "text", "tokenizer": "text"} for side in ("source", "target")}
    run = {
        "format": 1,
        "objective": "translation",
        "params": {"model": {"spec": "transformer-tiny", "params": SMALL}},
        "data": {"root": str(folder), "columns": columns, **files},
        "tokenizers": {"text": {"type": "bpe", "vocab_size": 40}},
        "evaluate": {"every": 50, "best": "nll", "samples": 0},
    }
    return written(folder, run, updates)


def write_r_drop(folder: Path, corpus: Path, updates: int) -> Path:
    """Write the objective R-Drop, and a run file that trains it on Multi30k."""
    inputs = {"source": "source", "source_mask": "source_mask.y", "target": "shifted.y"}
    labels = {"labels": "target", "mask": "target_mask.y"}
    logits = {"logits": "model.logits", "target": "again.logits", "mask": "target_mask.y"}
    objective = {
        "format": 1,
        "name": "drill-r-drop",
        "doc": "Two passes with other dropout, and their divergence; Liang et al. 2021.",
        "params": {"model": {"spec": "transformer-tiny"}, "source_vocab": 1000, "vocab": 1000},
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": {"source": "ids:source_vocab[B S]", "target": "ids:vocab[B T]"},
        "nodes": {
            "source_mask": {"use": "not_padding@1", "in": {"ids": "source"}},
            "target_mask": {"use": "not_padding@1", "in": {"ids": "target"}},
            "shifted": {"use": "shift@1", "in": {"x": "target"}},
            "model": {"use": "=model", "in": inputs},
            "again": {"share": "model", "in": inputs},
            "first": {"use": "cross_entropy@1", "in": {"logits": "model.logits", **labels}},
            "second": {"use": "cross_entropy@1", "in": {"logits": "again.logits", **labels}},
            "divergence": {
                "use": "kl_divergence@1",
                "params": {"direction": "symmetric"},
                "in": logits,
            },
        },
        "outputs": {
            "first": "first.loss",
            "second": "second.loss",
            "divergence": "divergence.loss",
            "nll": "first.nll",
        },
        "deploy": "model",
    }
    (folder / "r_drop.json").write_text(json.dumps(objective))
    sides = {"source": "en", "target": "de"}
    run = {
        "format": 1,
        "objective": "r_drop.json",
        "params": {"model": {"spec": "transformer-tiny", "params": SMALL}},
        "data": {
            "root": str(corpus),
            "columns": {side: {"type": "text", "tokenizer": "text"} for side in sides},
            **{
                split: {"lines": {side: [f"{name}.{end}.gz"] for side, end in sides.items()}}
                for split, name in (("train", "train"), ("valid", "val"))
            },
        },
        "tokenizers": {"text": {"type": "bpe", "vocab_size": 1000}},
        "evaluate": {"every": 100, "best": "nll"},
    }
    return written(folder, run, updates)


def written(folder: Path, own: dict[str, Any], updates: int) -> Path:
    """Write a run file with the settings that all drills share."""
    run = {
        **own,
        "name": "drill",
        "batch": {"tokens": 200},
        "updates": updates,
        "accumulate": [{"from": 1, "over": 0.3}, {"from": 2, "to": 4}],
        "dropout": [{"over": 0.4}, {"from": 1}],
        "optimizer": {"type": "adamw", "clip": 1.0, "groups": [MUON]},
        "schedule": {"peak": 0.003, "pieces": [{"to": 1, "over": 0.2}, {"shape": "sqrt", "to": 0}]},
        "checkpoint": {"every": EVERY, "keep": 5, "average": 5},
        "threads": 1,
        "precision": "float32",
        "kernels": {"product": "torch", "attention": "fused"},
        "device": "cpu",
    }
    path = folder / "run.json"
    path.write_text(json.dumps(run))
    return path
