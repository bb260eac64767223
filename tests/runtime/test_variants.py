"""The shipped variants: short patches of transformer-base, each a model that works."""

from __future__ import annotations

import json
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
from weft.specs.reader import SHIPPED

BASE = 63_082_496
VARIANTS = {
    # One more norm of 2 * 512 after each stack.
    "transformer-prenorm": BASE + 2 * 2 * 512,
    # 6 * 2 + 6 * 3 norms lose their shifts of 512.
    "transformer-rmsnorm": BASE - 30 * 512,
    # 3 maps of 512 x 1365 for 2 of 512 x 2048, and their biases, in 12 layers.
    "transformer-swiglu": BASE + 12 * (3 * 512 * 1365 + 2 * 1365 - (2 * 512 * 2048 + 2048)),
    # Keys and values of 18 attentions: 2 heads of 64 for 8.
    "transformer-gqa": BASE - 18 * 2 * (6 * 64 * 512 + 6 * 64),
    "transformer-rotary": BASE,
    # One layer of each stack for six: 5 * (3152384 + 4204032) less.
    "transformer-shared": BASE - 5 * (3_152_384 + 4_204_032),
    "transformer-local": BASE,
    # Six more layers of the encoder, five fewer of the decoder.
    "transformer-deep-shallow": BASE + 6 * 3_152_384 - 5 * 4_204_032,
    # Two more tables of 37000 x 512.
    "transformer-untied": BASE + 2 * 37_000 * 512,
    "transformer-frozen": BASE,
    "transformer-alibi": BASE,
    # A table of 32 x 8 in each of 12 self-attentions.
    "transformer-t5-bias": BASE + 12 * 32 * 8,
    # A vocabulary of 40960.
    "transformer-released": BASE + 3_960 * 512,
}
EVERY = pytest.mark.parametrize("name", VARIANTS)
SMALL = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 30}


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped variant, checked, with some params set."""
    return check(load(name).form, registry(), params)


def test_all_that_is_shipped_is_here() -> None:
    """No variant without a count by hand; the rows of table 3 have a test of their own."""
    shipped = {path.stem for path in (SHIPPED / "variants").glob("*.json")}

    assert {name for name in shipped if not name.startswith("table3-")} == set(VARIANTS)


@EVERY
def test_a_variant_is_a_patch_of_a_dozen_lines(name: str) -> None:
    """It says only what differs."""
    text = (SHIPPED / "variants" / f"{name}.json").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 12
    assert json.loads(text)["extends"] == "transformer-base"
    assert "nodes" not in json.loads(text)


@EVERY
def test_parameters_by_hand(name: str) -> None:
    """Each count is worked out above from the base's."""
    assert graph(name).parameters() == VARIANTS[name]


@EVERY
def test_a_variant_steps_as_it_runs(name: str) -> None:
    """Decoding one position at a time gives the logits of the parallel pass."""
    model: Any = build(graph(name, **SMALL)).eval()
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(30, (2, 40), generator=generator)
    keep = torch.ones(2, 40, dtype=torch.bool)
    keep[1, -3:] = False
    target = torch.randint(30, (2, 6), generator=generator)

    whole = model(source=source, source_keep=keep, target=target)["logits"]
    room = Room(2, 1, 6, torch.float32, torch.device("cpu"))
    state = model.begin(room, source=source, source_keep=keep)
    steps = [
        model.step(target=target[:, t : t + 1], state=state, position=t)["logits"] for t in range(6)
    ]

    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@EVERY
def test_a_variant_trains(name: str, toy_run: Callable[..., Any], tmp_path: Path) -> None:
    """Two updates move every weight that is not frozen, and the checkpoint translates."""
    params = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2}
    run = toy_run(spec=name, params=params, updates=2)
    result = api.train(run, out=tmp_path / "out")
    assert result.checkpoint is not None
    model = api.open_model(result.checkpoint)
    fresh = build(model.graph, seed=run.seed).state_dict()
    learnt = model.module.state_dict()

    still = {path for path, value in learnt.items() if torch.equal(value, fresh[path])}
    frozen = {p for p, w in model.module.named_parameters() if not w.requires_grad}
    tied = {path for group in model.graph.ties for path in group if frozen & {*group}}
    assert still - {p for p in still if p.endswith("key.bias")} <= frozen | tied
    assert len(model.translate(["sun moon"])) == 1
