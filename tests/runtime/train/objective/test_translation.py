"""The objective of translation trains as a loop in plain torch does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.codegen.build import build
from weft.runtime.train.distributed.sampler import stream_micro_batches
from weft.runtime.train.history import read
from weft.runtime.train.plan import load_run, plan_run
from weft.runtime.train.run import Run

from .conftest import SMALL, Writer, equal, weights

pytestmark = pytest.mark.integration

STILL = {"spec": "transformer-tiny", "params": {**SMALL, "dropout": 0.0}}
"""A model without dropout."""
EPS = 1e-6
"""Of Adam, large enough that it does not scale up the rounding errors of gradients near 0."""
SETTINGS: dict[str, dict[str, Any]] = {
    "accumulated": {},
    "one batch": {"accumulate": 1},
    "unpadded": {"padding": "unpadded"},
    "without passes": {"without": ["unpad", "fuse", "kernels"]},
    "unpadded, not fused": {"padding": "unpadded", "without": ["fuse"]},
    "clipped": {"optimizer": {"clip": 0.1, "eps": EPS}},
    "smoothed": {"params": {"model": STILL, "label_smoothing": 0.3}},
    "not smoothed": {"params": {"model": STILL, "label_smoothing": 0.0}},
    "activation checkpointing": {"activation_checkpointing": ["model.decoder.*"]},
}
UPDATES = 6


@pytest.mark.parametrize("name", SETTINGS)
def test_weights_and_losses_are_those_of_plain_torch(
    objective_run: Writer, tmp_path: Path, name: str
) -> None:
    """Teacher forcing, the mean over all tokens of an update, and Adam, written by hand."""
    given = {"params": {"model": STILL}, "updates": UPDATES, "optimizer": {"eps": EPS}}
    settings = {**given, **SETTINGS[name]}
    file = objective_run("translation", **settings)
    result = api.train(file, out=tmp_path / "run")
    assert result.checkpoint is not None
    run, _ = load_run(file)

    wanted, losses = by_hand(run, tmp_path / "hand")

    found = {k.removeprefix("model."): v for k, v in weights(result.checkpoint).items()}
    for path, weight in found.items():
        if path.endswith("key.bias"):
            continue  # softmax ignores it, so its gradient is rounding errors, which Adam scales up
        torch.testing.assert_close(weight, wanted[path], rtol=1e-4, atol=2e-6)
    reported = [e["loss"] for e in read(tmp_path / "run") if e["type"] == "train"]
    assert reported[0] == pytest.approx(sum(losses) / UPDATES, rel=1e-5)


def by_hand(run: Run, folder: Path) -> tuple[dict[str, Tensor], list[float]]:
    """Return the weights after all updates, and the loss of each, by plain torch."""
    prepared = api.prepare_run(plan_run(run, "toy"), folder)
    spec = api.open_model(folder.parent / "run/averaged").graph
    model = build(spec, seed=run.seed).train()
    optimizer = torch.optim.Adam(
        model.parameters(), lr=0.003, betas=run.optimizer.betas, eps=run.optimizer.eps
    )
    smoothing = run.params.get("label_smoothing", 0.1)
    stream = stream_micro_batches(prepared.train, run.batch, run.seed, accumulate=run.accumulate)
    begin, losses = prepared.vocabularies["text"].bos, []
    for _ in range(run.updates):
        batches = [batch.inputs for _, batch in next(stream).batches]
        tokens = sum(int((one["target"] != 0).sum()) for one in batches)
        total = torch.zeros(())
        for one in batches:
            source, target = one["source"], one["target"]
            shifted = torch.cat((torch.full_like(target[:, :1], begin), target[:, :-1]), 1)
            logits = model(source=source, source_mask=source != 0, target=shifted)["logits"]
            total = total + F.cross_entropy(
                logits.flatten(0, 1),
                target.flatten(),
                ignore_index=0,
                label_smoothing=smoothing,
                reduction="sum",
            )
        (total / tokens).backward()
        if run.optimizer.clip is not None:
            torch.nn.utils.clip_grad_norm_(model.parameters(), run.optimizer.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(total.item() / tokens)
    return dict(model.state_dict()), losses


def test_the_deployed_checkpoint_opens_and_equals_the_model_inside(
    objective_run: Writer, tmp_path: Path
) -> None:
    """`averaged` and `best` hold the model alone; a training checkpoint holds the objective."""
    result = api.train(objective_run("translation"), out=tmp_path / "run")
    assert result.averaged is not None
    assert result.checkpoint is not None

    inside = weights(result.checkpoint)
    last = {k.removeprefix("model."): v for k, v in inside.items() if k.startswith("model.")}
    deployed = open_checkpoint(result.averaged)
    assert deployed.graph.name == "transformer-tiny"
    assert weights(result.averaged).keys() == last.keys()
    assert equal(weights(tmp_path / "run/best"), last)
