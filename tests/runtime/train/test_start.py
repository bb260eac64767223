"""A run that starts from a checkpoint with another vocabulary, other parts or frozen weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import read_tensors
from weft.runtime.checkpoint.tokenizers import tokenizers_of
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run

pytestmark = pytest.mark.integration

Maker = Callable[..., Run]
SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}
STILL = {"updates": 1, "schedule": {"peak": 1e-30}, "batch": {"tokens": 100}}
LINE = {
    "encoder.1.{*p}": "encoder.0.{p}",
    "decoder.1.{*p}": "decoder.0.{p}",
}
"""Layers that are stacked: each becomes two; Gong et al. 2019."""


class Log(api.Silent):
    """Collects the lines of a training."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        """Collect a line."""
        self.lines.append(text)


def trained(run: Run, folder: Path) -> tuple[weft.Model, dict[str, Tensor], str]:
    """Train; return the model, the weights of its only checkpoint and the log."""
    log = Log()
    result = api.train(run, out=folder, listener=log)
    weights = read_tensors(Path(str(result.checkpoint)) / "weights.safetensors")
    model = {path.removeprefix("model."): tensor for path, tensor in weights.items()}
    return weft.open(Path(str(result.averaged))), model, "\n".join(log.lines)


def test_weights_follow_the_pieces_of_another_vocabulary(
    toy_checkpoint: Path, toy_run: Maker, tmp_path: Path
) -> None:
    """Rows of pieces that both tokenizers have are kept, and others are those of a new model."""
    start = {"checkpoint": str(toy_checkpoint), "vocabulary": "by_piece"}
    tokenizers = {"tokenizer": {"type": "bpe", "vocab_size": 45}}
    run = toy_run(start=start, tokenizers=tokenizers, **STILL)
    plain = toy_run(tokenizers=tokenizers, **STILL)

    model, weights, log = trained(run, tmp_path / "run")
    _, drawn, _ = trained(plain, tmp_path / "plain")

    old = read_tensors(toy_checkpoint / "weights.safetensors")["source_embedding.weight"]
    pieces = [
        list(vocabulary.pieces(range(vocabulary.vocab_size)))
        for vocabulary in (
            tokenizers_of(weft.open(toy_checkpoint).checkpoint)[0],
            tokenizers_of(model.checkpoint)[0],
        )
    ]
    expected = drawn["source_embedding.weight"].clone()
    shared = [piece for piece in pieces[1] if piece in pieces[0]]
    for piece in shared:
        expected[pieces[1].index(piece)] = old[pieces[0].index(piece)]
    assert 8 < len(shared) < 45
    assert torch.equal(weights["source_embedding.weight"], expected)
    assert f"pieces of 'source': the weights of {len(shared)} of 45 follow their names" in log


def test_layers_come_from_lines_and_may_be_frozen(
    toy_checkpoint: Path, toy_run: Maker, tmp_path: Path
) -> None:
    """Both layers begin as the one of the checkpoint; what is drawn alone trains."""
    lines = {**LINE, "encoder.0.self_attention.norm.{p}": None}
    start = {"checkpoint": str(toy_checkpoint), "weights": lines, "freeze": True}
    run = toy_run(params={**SMALL, "layers": 2}, start=start, updates=2)

    _, weights, log = trained(run, tmp_path / "run")

    old = read_tensors(toy_checkpoint / "weights.safetensors")
    for path, tensor in weights.items():
        source = path.replace("coder.1.", "coder.0.")
        trains = path.startswith("encoder.0.self_attention.norm")
        assert torch.equal(tensor, old[source]) != trains
    assert "; 32 parameters train" in log


def test_a_resumed_run_freezes_the_same_weights(
    toy_checkpoint: Path, toy_run: Maker, tmp_path: Path
) -> None:
    """The weights that came are still those of the checkpoint."""
    start = {"checkpoint": str(toy_checkpoint), "freeze": True, "weights": {"decoder.{*p}": None}}
    changes = {"start": start, "checkpoint": {"every": 1, "keep": 9, "average": 0}}
    api.train(toy_run(updates=1, **changes), out=tmp_path / "run")

    result = api.train(toy_run(updates=3, **changes), out=tmp_path / "run", resume=True)

    weights = read_tensors(Path(str(result.checkpoint)) / "weights.safetensors")
    for path, tensor in read_tensors(toy_checkpoint / "weights.safetensors").items():
        assert torch.equal(weights[f"model.{path}"], tensor) != path.startswith("decoder.")


INNER = "encoder.0.feed_forward.f.inner.weight"
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    (
        {"weights": {"encoder.7.{*p}": "encoder.0.{p}"}},
        "R10",
        "/start/weights/encoder.7.{*p}",
        "fits",
    ),
    ({"weights": {INNER: "x.weight"}}, "R10", f"/start/weights/{INNER}", "no weight 'x.weight'"),
    ({"weights": {INNER: "head.weight"}}, "R10", f"/start/weights/{INNER}", "wrong shape"),
    ({"freeze": True}, "R04", "/start/freeze", "nothing trains"),
]


@pytest.mark.parametrize(("settings", "code", "at", "problem"), FAULTS)
def test_a_wrong_start_is_reported_before_training(
    toy_checkpoint: Path,
    toy_run: Maker,
    settings: dict[str, Any],
    code: str,
    at: str,
    problem: str,
) -> None:
    """By the check of the run, from the graphs alone."""
    run = toy_run(start={"checkpoint": str(toy_checkpoint), **settings})

    [finding] = plan_run(run, "run.json").findings

    assert (finding.code, finding.at, finding.source) == (code, at, "run.json")
    assert problem in finding.problem


def test_a_start_is_written_as_it_was_read(toy_run: Maker) -> None:
    """A folder alone stays a text, and lines stay as short as they are."""
    lines = {"a.{p}": [{"from": ["b.{p}"], "into": [[0, 4]]}], "c": None}
    start = {"checkpoint": "x", "weights": lines, "vocabulary": "same", "freeze": False}

    written = [
        json.loads(toy_run(start=value).model_dump_json(by_alias=True))["start"]
        for value in ("x", {"checkpoint": "x"}, start)
    ]

    assert written == ["x", "x", start]
    assert toy_run(start=written[2]) == toy_run(start=start)
