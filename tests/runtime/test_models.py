"""The shipped models with recurrences: checked, stepped and trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.blocks.library import registry
from weft.blocks.modules.state import Room
from weft.graphs.check import check
from weft.graphs.graph import Graph
from weft.runtime import api
from weft.runtime.compile.build import build
from weft.specs.load import load

VOCAB = 37_000
MODELS = {
    # Two tables of 512; three GRUs, of 3 * 512 rows, from 512 and state 512, with two biases;
    # additive attention of W, U and v; a head from 512 + 1024 with a bias.
    "gru-attention": 2 * VOCAB * 512
    + 3 * 3 * 512 * (512 + 512 + 2)
    + 512 * (512 + 1024 + 1)
    + VOCAB * (512 + 1024 + 1),
    # Two tables; LSTMs of 4 rows a unit: two of 256, three residual ones, the decoder's bottom,
    # three that read 1024; additive attention; a head from 512 with a bias.
    "gnmt-small": 2 * 32_000 * 512
    + 2 * 4 * 256 * (512 + 256 + 2)
    + 4 * 4 * 512 * (512 + 512 + 2)
    + 3 * 4 * 512 * (1024 + 512 + 2)
    + 512 * (512 + 512 + 1)
    + 32_000 * (512 + 1),
}
SMALL: dict[str, dict[str, Any]] = {
    "gru-attention": {"d_model": 16, "d_hidden": 12},
    "gnmt-small": {"d_model": 16, "layers": 2},
}
EVERY = pytest.mark.parametrize("name", MODELS)


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped model, checked, with some params set."""
    return check(load(name).form, registry(), params)


@EVERY
def test_parameters_by_hand(name: str) -> None:
    """Each count is worked out above."""
    assert graph(name).parameters() == MODELS[name]


@EVERY
def test_it_takes_and_gives_what_the_transformer_does(name: str) -> None:
    """So one run document trains either."""
    ours, base = graph(name, vocab=30), graph("transformer-base", vocab=30)

    assert ours.inputs == base.inputs
    assert ours.outputs == base.outputs
    assert ours.step_axis == base.step_axis


@EVERY
def test_it_steps_as_it_runs(name: str) -> None:
    """Decoding one position at a time, two beams a sentence, gives the parallel pass's logits."""
    model: Any = build(graph(name, **SMALL[name], vocab=30)).eval()
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(30, (2, 9), generator=generator)
    keep = torch.ones(2, 9, dtype=torch.bool)
    keep[1, -3:] = False
    target = torch.randint(30, (4, 6), generator=generator)

    fixed = {"source": source, "source_keep": keep}
    spread = {port: value.repeat_interleave(2, 0) for port, value in fixed.items()}
    whole = model(**spread, target=target)["logits"]
    state = model.begin(Room(2, 2, 6, torch.float32, torch.device("cpu")), **fixed)
    steps = [
        model.step(target=target[:, t : t + 1], state=state, position=t)["logits"] for t in range(6)
    ]

    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)


@EVERY
def test_padding_of_the_source_changes_nothing(name: str) -> None:
    """Longer padding, and what stands there, are as if they were not there."""
    model: Any = build(graph(name, **SMALL[name], vocab=30)).eval()
    source, target = torch.randint(30, (2, 9)), torch.randint(30, (2, 6))
    keep = torch.arange(9).expand(2, 9) < 5

    padded = model(source=source, source_keep=keep, target=target)["logits"]
    alone = model(source=source[:, :5], source_keep=keep[:, :5], target=target)["logits"]

    torch.testing.assert_close(padded, alone)


@pytest.mark.slow
@EVERY
def test_it_trains(name: str, toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """Two updates move every weight, and the checkpoint translates."""
    run = toy_run(spec=name, params=SMALL[name], updates=2)
    result = api.train(run, out=tmp_path / "out")
    assert result.checkpoint is not None
    model = api.open_model(result.checkpoint)
    fresh = build(model.graph, seed=run.seed).state_dict()
    learnt = model.module.state_dict()

    assert [path for path, value in learnt.items() if torch.equal(value, fresh[path])] == []
    assert len(model.translate(["sun moon"])) == 1
