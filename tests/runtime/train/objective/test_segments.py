"""Objectives in segments: state that training carries from one row of a document to the next.

The reference is Transformer-XL written out for one row, position by position (Dai et al. 2019,
section 3, and appendix B for the encodings).
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from torch import Tensor
from torch.nn import functional as F
from weft.runtime import api
from weft.runtime.data.segments import plan_segments
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.table import Batch
from weft.runtime.train.losses import Memory
from weft.runtime.train.measuring import losses_of
from weft.runtime.train.plan import load_run, plan_run

from .conftest import equal, weights

PUBLISHED = Path(__file__).parents[4] / "examples/published"
OBJECTIVE = PUBLISHED / "segment-language-model.json"
SIZES = {"d_model": 8, "heads": 2, "d_ff": 8, "layers": 2, "dropout": 0.0}
MODEL = {"spec": "transformer-xl", "params": SIZES}
BEGIN, VOCAB, SIZE, MEMORY = 3, 12, 4, 6


def made(memory: int = MEMORY) -> tuple[Any, Memory]:
    """Return the module of the objective in float64, with large weights, and its memory."""
    spec = weft.load(OBJECTIVE, model=MODEL, vocab=VOCAB, memory=memory)
    module = weft.build(spec, seed=1).double()
    torch.manual_seed(1)
    for name, weight in module.named_parameters():
        if "norm" not in name:
            torch.nn.init.normal_(weight, std=0.5)
    return module, Memory(spec.graph())


def segment(text: Tensor, rows: list[int], first: list[bool]) -> Batch:
    """Return a batch of rows [B, T]."""
    return Batch({"text": text}, np.array(rows), {}, first=np.array(first))


def scores(w: dict[str, Tensor], at: str, query: Tensor, keys: Tensor) -> Tensor:
    """Return the scores of the last T queries [T, 8] with S keys [S, 8], [2, T, S]."""
    found = torch.full((2, len(query), len(keys)), -math.inf, dtype=torch.float64)
    u, v = (w[f"model.decoder.0.attention.f.position.{n}_bias"] for n in ("content", "position"))
    angles = [[far / 10_000 ** (2 * k / 8) for k in range(4)] for far in range(len(keys))]
    encodings = [[*map(math.sin, row), *map(math.cos, row)] for row in angles]
    far = torch.tensor(encodings).double() @ w[f"{at}.position.distance.weight"].T
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        for i in range(len(query)):
            last = len(keys) - len(query) + i
            content = keys[: last + 1, part] @ (query[i, part] + u[head])
            place = far[: last + 1, part].flip(0) @ (query[i, part] + v[head])
            found[head, i, : last + 1] = (content + place) / 2
    return found


def layer(w: dict[str, Tensor], number: int, x: Tensor, memory: Tensor) -> Tensor:
    """Return the output [T, 8] of a layer, which reads its memory [M, 8] without a gradient."""
    at = f"model.decoder.{number}.attention"
    whole = torch.cat([memory.detach(), x])
    query, key, value = (
        one @ w[f"{at}.f.{name}.weight"].T
        for name, one in (("query", x), ("key", whole), ("value", whole))
    )
    weight = torch.softmax(scores(w, f"{at}.f", query, key), -1)
    heads = [weight[h] @ value[:, 4 * h : 4 * h + 4] for h in range(2)]
    y = x + torch.cat(heads, 1) @ w[f"{at}.f.out.weight"].T
    x = F.layer_norm(y, (8,), w[f"{at}.norm.weight"], w[f"{at}.norm.bias"])
    at = f"model.decoder.{number}.feed_forward"
    inner = torch.relu(x @ w[f"{at}.f.inner.weight"].T + w[f"{at}.f.inner.bias"])
    y = x + inner @ w[f"{at}.f.outer.weight"].T + w[f"{at}.f.outer.bias"]
    return F.layer_norm(y, (8,), w[f"{at}.norm.weight"], w[f"{at}.norm.bias"])


def reference(w: dict[str, Tensor], segments: list[Tensor]) -> Tensor:
    """Return the summed loss of the segments of one document, with a memory of 6 positions."""
    memories = [torch.zeros(0, 8).double() for _ in range(2)]
    last, loss = torch.tensor([BEGIN]), torch.zeros((), dtype=torch.float64)
    for ids in segments:
        x = w["model.embedding.weight"][torch.cat([last, ids[:-1]])] * math.sqrt(8)
        for number in range(2):
            own, memory = x, memories[number]
            x = layer(w, number, own, memory)
            memories[number] = torch.cat([memory, own])[-MEMORY:]
        logits = x @ w["model.embedding.weight"].T + w["model.head.bias"]
        loss = loss + F.cross_entropy(logits, ids, reduction="sum")
        last = ids[-1:]
    return loss


def test_three_segments_are_transformer_xl_in_losses_and_gradients() -> None:
    """The second row begins another document in the third segment; memory gives no gradient."""
    module, memory = made()
    text = torch.randint(4, VOCAB, (2, 3 * SIZE))
    parts = text.split(SIZE, 1)

    found = torch.zeros((), dtype=torch.float64)
    for turn, rows in enumerate(([0, 3], [1, 4], [2, 5])):
        batch = segment(parts[turn], rows, [turn == 0, turn in (0, 2)])
        found = found + memory.run(module, batch.inputs, batch)["loss"]
    found.backward()
    gradients = {name: one.grad for name, one in module.named_parameters()}
    w = {name: one.detach().clone().requires_grad_() for name, one in module.named_parameters()}
    wanted = reference(w, [part[0] for part in parts]) + reference(w, [one[1] for one in parts[:2]])
    wanted = wanted + reference(w, [parts[2][1]])
    wanted.backward()

    # The loss is computed in float32.
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=0)
    expected = {name: one.grad for name, one in w.items()}
    torch.testing.assert_close(gradients, expected, rtol=1e-4, atol=1e-4)


def test_a_memory_of_the_whole_document_gives_the_losses_of_the_parallel_pass() -> None:
    """So the segments are steps of several positions; in a shorter memory they differ."""
    text = torch.randint(4, VOCAB, (1, 3 * SIZE))
    losses = {}
    for longest in (2 * SIZE, 2):
        module, memory = made(longest)
        batches = [segment(p, [n], [n == 0]) for n, p in enumerate(text.split(SIZE, 1))]
        with torch.no_grad():
            found = [memory.run(module, one.inputs, one)["nll"] for one in batches]
        losses[longest] = torch.stack(found).sum()

    whole = module(text=text)["nll"]
    torch.testing.assert_close(losses[2 * SIZE], whole)
    assert not torch.allclose(losses[2], whole)


def test_batches_continue_the_documents_of_the_batch_before() -> None:
    """Documents of 3, 1, 2 and 2 rows in two sequences, by hand."""
    starts = np.array([1, 0, 0, 1, 1, 0, 1, 0], dtype=bool)
    lengths = [np.full(8, SIZE)]

    plan = plan_segments(starts, lengths, BatchSettings(tokens=2 * SIZE))
    shuffled = plan_segments(starts, lengths, BatchSettings(tokens=2 * SIZE), (1, 0))

    assert [one.tolist() for one in plan] == [[0, 3], [1, 4], [2, 5], [6], [7]]
    assert sorted(np.concatenate(shuffled).tolist()) == list(range(8))
    before: list[int] = []
    for batch in shuffled:
        assert all(starts[row] or row - 1 in before for row in batch.tolist())
        before = batch.tolist()


def write(folder: Path, **changes: Any) -> Path:
    """Write documents of 3 to 13 words, and a run of them; return its file."""
    for split, count in (("train", 12), ("valid", 3)):
        texts = [" ".join(f"w{(n + k) % 7}" for k in range(3 + n % 11)) for n in range(count)]
        lines = [json.dumps({"text": text}) for text in texts]
        (folder / f"{split}.jsonl").write_text("\n".join(lines))
    column = {"type": "text", "tokenizer": "words", "segment": SIZE}
    run = json.loads((PUBLISHED / "transformer-xl-run.json").read_text())
    run["objective"] = "segments.json"
    (folder / "segments.json").write_text(OBJECTIVE.read_text())
    (folder / "transformer-xl.json").write_text((PUBLISHED / "transformer-xl.json").read_text())
    run["params"] = {"model": {**MODEL, "params": SIZES | {"dropout": 0.1}}, "memory": MEMORY}
    run["data"] |= {"root": str(folder), "columns": {"text": column | changes.pop("column", {})}}
    run |= {
        "batch": {"tokens": 3 * SIZE},
        "updates": 6,
        "schedule": {"peak": 0.01},
    }
    run |= {"evaluate": {"every": 3, "best": "nll"}, "checkpoint": {"every": 3, "average": 0}}
    run |= {"accumulate": 2, "compile": "eager", "trackers": [], **changes}
    (folder / "run.json").write_text(json.dumps(run))
    return folder / "run.json"


@pytest.mark.slow
def test_a_resumed_run_continues_the_memory(tmp_path: Path) -> None:
    """Its weights are those of an undisturbed run, bit for bit; without its memory they differ."""
    file = write(tmp_path)
    straight = api.train(file, out=tmp_path / "straight")
    api.train(file, out=tmp_path / "halves", overrides={"updates": 3})
    stored = tmp_path / "halves/checkpoints/000003/memory.safetensors"
    assert stored.is_file()

    again = api.train(file, out=tmp_path / "halves", resume=True)

    assert straight.checkpoint is not None
    assert again.checkpoint is not None
    assert equal(weights(straight.checkpoint), weights(again.checkpoint))


@pytest.mark.slow
def test_a_trained_model_is_measured_on_documents_in_segments(tmp_path: Path) -> None:
    """The losses of `weft evaluate` are those of a validation, which is in segments too."""
    # Evaluation is in float32, and `auto` trains in bfloat16 where the processor is fast in it.
    result = api.train(write(tmp_path, precision="float32"), out=tmp_path / "out")
    assert result.best is not None
    history = [
        json.loads(line) for line in (tmp_path / "out/metrics.jsonl").read_text().splitlines()
    ]
    valid = [one for one in history if one["type"] == "valid"]
    model = weft.open(result.best)
    rows = [json.loads(line) for line in (tmp_path / "valid.jsonl").read_text().splitlines()]

    found = losses_of(model, rows)

    assert found["nll"] == pytest.approx(min(one["nll"] for one in valid), rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"column": {"segment": None}}, "/data/columns"),
        ({"objective": "language-model"}, "/data/columns/text/segment"),
        ({"padding": "unpadded"}, "/padding"),
        ({"without": ["kernels", "fuse"]}, "/without/1"),
        ({"activation_checkpointing": ["model.decoder.*"]}, "/activation_checkpointing"),
        ({"batch": {"tokens": 3}}, "/batch/tokens"),
    ],
    ids=str,
)
def test_settings_that_do_not_fit_segments_are_refused(
    tmp_path: Path, changes: dict[str, Any], at: str
) -> None:
    """Before anything is read."""
    if "objective" in changes:
        changes = {**changes, "params": {"model": MODEL}}
    run, source = load_run(write(tmp_path, **changes))

    assert at in {finding.at for finding in plan_run(run, source).findings}
