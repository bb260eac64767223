"""Tests of weight transfer: weights that fit are copied, others are newly initialized."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import read_tensors
from weft.runtime.train.run import Run
from weft.specs.findings import InputError
from weft.specs.load import LoadedSpec, loaded

pytestmark = pytest.mark.integration

Maker = Callable[..., Run]
LINES = ["sun moon", "river stone bird", "fire"]
SMALL = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}


@pytest.fixture
def trained(toy_checkpoint: Path) -> api.Model:
    """Return a model after a few updates."""
    return weft.open(toy_checkpoint)


def varied(model: api.Model, change: Callable[[dict[str, Any]], Any]) -> LoadedSpec:
    """Return an edited copy of the model's own spec."""
    spec = copy.deepcopy(canonical(model.graph))
    change(spec)
    return loaded(spec)


def test_its_own_spec_gives_the_same_model(trained: api.Model) -> None:
    """All weights are carried over, so translations are the same; the old model is unchanged."""
    before = trained.translate(LINES)

    again = trained.adapt(weft.load("transformer-tiny", **SMALL))

    assert again.weight_transfer.sizes()["carried"] == trained.graph.parameters()
    assert again.translate(LINES) == before == trained.translate(LINES)
    pairs = zip(again.module.parameters(), trained.module.parameters(), strict=True)
    assert all(one is not other and torch.equal(one, other) for one, other in pairs)


def test_fitting_weights_carry_over_and_others_are_initialized(trained: api.Model) -> None:
    """A second layer is initialized by the seed; all other weights are unchanged."""
    deeper = weft.load("transformer-tiny", **{**SMALL, "layers": 2})

    made = trained.adapt(deeper, seed=7)

    old, new = trained.module.state_dict(), made.module.state_dict()
    vocab = made.graph.inputs["target"].size
    fresh = weft.build(weft.load("transformer-tiny", **{**SMALL, "layers": 2}, vocab=vocab), seed=7)
    drawn = fresh.state_dict()
    assert {path.split(".")[1] for path in made.weight_transfer.new} == {"1"}
    assert all(torch.equal(new[path], old[path]) for path in made.weight_transfer.carried)
    assert all(torch.equal(new[path], drawn[path]) for path in made.weight_transfer.new)
    assert not torch.equal(new["head.weight"], drawn["head.weight"])


def test_untied_weights_begin_equal(trained: api.Model) -> None:
    """One tensor becomes three: a tied model that is untied computes the same."""
    made = trained.adapt(varied(trained, lambda spec: spec.pop("tie")))

    weights = made.module.state_dict()
    assert weights["head.weight"].data_ptr() != weights["source_embedding.weight"].data_ptr()
    assert torch.equal(weights["head.weight"], weights["source_embedding.weight"])
    assert made.translate(LINES) == trained.translate(LINES)


def test_a_renamed_node_keeps_its_weights(trained: api.Model) -> None:
    """Only a node is renamed, so translations are the same."""

    def rename(spec: dict[str, Any]) -> None:
        text = json.dumps(spec).replace('"encoder"', '"reader"').replace('"encoder.', '"reader.')
        spec.clear()
        spec.update(json.loads(text.replace('"cross_attention', '"reading')))

    made = trained.adapt(varied(trained, rename))

    source = made.weight_transfer.sources["reader.0.feed_forward.norm.weight"]
    assert source == "encoder.0.feed_forward.norm.weight"
    assert made.weight_transfer.sizes()["new"] == 0
    assert made.translate(LINES) == trained.translate(LINES)


def test_it_is_saved_as_a_checkpoint(trained: api.Model, tmp_path: Path) -> None:
    """The folder is self-contained, says where it came from, and translates the same."""
    made = trained.adapt(weft.load("transformer-tiny", **{**SMALL, "layers": 2}))

    opened = weft.open(made.save(tmp_path / "adapted"))

    assert opened.graph.weights() == made.graph.weights()
    assert opened.translate(LINES) == made.translate(LINES)
    assert opened.checkpoint.state["adapted_from"] == trained.checkpoint.state["fingerprint"]
    assert opened.checkpoint.state["fingerprint"] != trained.checkpoint.state["fingerprint"]
    assert opened.checkpoint.state["update"] == 0


def test_an_adapted_model_can_be_adapted_again(trained: api.Model) -> None:
    """Adapting there and back in memory; the state names the latest source graph."""
    deeper = trained.adapt(weft.load("transformer-tiny", **{**SMALL, "layers": 2}))

    back = deeper.adapt(weft.load("transformer-tiny", **SMALL))

    assert back.translate(LINES) == trained.translate(LINES)
    assert back.checkpoint.state["adapted_from"] == fingerprint(deeper.graph)


def test_another_vocabulary_is_refused(trained: api.Model) -> None:
    """The tokenizer is kept, so the vocabulary size must not change."""
    with pytest.raises(InputError, match="has size 50, but the tokenizer has 40"):
        trained.adapt(weft.load("transformer-tiny", **SMALL, vocab=50))


def test_a_run_starts_from_a_checkpoint(trained: api.Model, toy_run: Maker, tmp_path: Path) -> None:
    """With a tiny learning rate the carried-over weights stay as they were."""
    start = trained.checkpoint.folder
    run = toy_run(
        start=str(start),
        params={**SMALL, "layers": 2},
        updates=1,
        schedule={"peak": 1e-9},
    )
    messages: list[str] = []

    class LogListener(api.Silent):
        def log(self, text: str) -> None:
            messages.append(text)

    result = api.train(run, out=tmp_path / "second", listener=LogListener())

    before = read_tensors(start / "weights.safetensors")
    after = read_tensors(Path(str(result.checkpoint)) / "weights.safetensors")
    inside = {f"model.{path}" for path in before}
    assert inside < set(after)
    assert all(torch.allclose(before[p], after[f"model.{p}"], atol=1e-6) for p in before)
    [line] = [text for text in messages if text.startswith(f"starting from {start}: ")]
    carried, total = sum(t.numel() for t in before.values()), sum(t.numel() for t in after.values())
    assert f"{carried:,} of {total:,} parameters" in line


def test_a_run_does_not_start_from_another_tokenizer(
    trained: api.Model, toy_run: Maker, tmp_path: Path
) -> None:
    """Weights of a checkpoint do not fit the tokens of another tokenizer."""
    run = toy_run(
        start=str(trained.checkpoint.folder),
        tokenizers={"tokenizer": {"type": "bpe", "vocab_size": 38}},
    )

    with pytest.raises(InputError, match="has another 'vocab_size'"):
        api.train(run, out=tmp_path / "second")
