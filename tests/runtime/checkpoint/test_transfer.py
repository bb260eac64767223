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
from weft.specs.findings import InputError, SpecError
from weft.specs.load import LoadedSpec, loaded

pytestmark = pytest.mark.integration

Maker = Callable[..., Run]
LINES = ["sun moon", "river stone bird", "fire"]
SMALL: dict[str, Any] = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1}


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


DENSE: dict[str, Any] = {**SMALL, "layers": 2}
UPCYCLED: dict[str, Any] = {
    "{side}.{i}.plain.{*p}": "{side}.{2*i}.{p}",
    "{side}.{i}.{name}_attention.{*p}": "{side}.{2*i + 1}.{name}_attention.{p}",
    "{side}.{i}.norm.{p}": "{side}.{2*i + 1}.feed_forward.norm.{p}",
    "{side}.{i}.mixture.{m}_bias": {
        "from": "{side}.{2*i + 1}.feed_forward.f.{m}.bias",
        "split": [[1, -1]],
        "tile": ["=experts"],
    },
    **{
        f"{{side}}.{{i}}.mixture.{name}": {
            "from": f"{{side}}.{{2*i + 1}}.feed_forward.f.{name}.weight",
            "split": [[1, -1]],
            "permute": [0, 2, 1],
            "tile": ["=experts"],
        }
        for name in ("inner", "outer")
    },
}
"""Every second feed-forward network becomes the experts of a layer; Komatsuzaki et al. 2023."""
WIDER = {
    "{side}.{i}.feed_forward.f.inner.{p}": {
        "from": "{side}.{i}.feed_forward.f.inner.{p}",
        "tile": [-1],
    },
    "{side}.{i}.feed_forward.f.outer.weight": {
        "from": "{side}.{i}.feed_forward.f.outer.weight",
        "tile": [1, -1],
        "times": 0.5,
    },
}
"""Each hidden unit becomes two with half the effect; Chen et al. 2016 (Net2Net)."""
DEEPER = {
    f"{{side}}.{{i}}.{node}.{{p}}": {"from": f"{{side}}.{{i}}.{node}.{{p}}", "fill": 0}
    for node in ("{name}_attention.f.out", "feed_forward.f.outer")
}
"""New layers add zero to the residual stream."""
GROWN = {
    "upcycled": ("transformer-tiny", DENSE, "moe-transformer", {**DENSE, "experts": 4}, UPCYCLED),
    "wider": ("transformer-tiny", SMALL, "transformer-tiny", {**SMALL, "d_ff": 64}, WIDER),
    "deeper": ("transformer-prenorm", SMALL, "transformer-prenorm", {**SMALL, "layers": 3}, DEEPER),
}


@pytest.fixture(scope="module")
def models(toy_run_module: Maker, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that trains a model of a spec for a few updates, once."""
    trained: dict[str, api.Model] = {}

    def model(spec: str, params: dict[str, Any]) -> api.Model:
        key = f"{spec}-{params['layers']}"
        if key not in trained:
            run = toy_run_module(spec, params, updates=4)
            result = api.train(run, out=tmp_path_factory.mktemp(key) / "out")
            trained[key] = weft.open(Path(str(result.averaged)))
        return trained[key]

    return model


@pytest.mark.parametrize("name", GROWN)
def test_a_grown_model_computes_what_the_old_one_did(models: Any, name: str) -> None:
    """Experts that are copies, duplicated units and layers that add zero change no output."""
    spec, params, other, grown, lines = GROWN[name]
    old = models(spec, params)

    new = old.adapt(weft.load(other, **grown), weights=lines)

    ids = {name: torch.randint(4, 40, (3, 7)) for name in ("source", "target")}
    mask = {"source_mask": torch.ones(3, 7, dtype=torch.bool)}
    logits = [_logits(model, {**ids, **mask}) for model in (old, new)]
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-5, atol=1e-5)
    assert new.graph.parameters() > old.graph.parameters()
    drawn = {"upcycled": ["router"], "wider": [], "deeper": ["1", "2"]}[name]
    assert all(set(path.split(".")) & set(drawn) for path in new.weight_transfer.new)
    assert bool(new.weight_transfer.new) == bool(drawn)


def _logits(model: api.Model, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the logits of a model without dropout."""
    with torch.no_grad():
        outputs = model.module.eval()(**inputs)
    logits: torch.Tensor = outputs["logits"] if isinstance(outputs, dict) else outputs
    return logits


def test_a_line_may_fill_a_corner_of_a_wider_model(models: Any) -> None:
    """The rest is drawn, as without the line, and the report calls the weight reshaped."""
    old = models("transformer-tiny", SMALL)
    path = "encoder.0.feed_forward.f.inner.weight"
    line = {path: {"from": path, "into": [[0, "=d_ff - 8"]]}}

    new = old.adapt(weft.load("transformer-tiny", **{**SMALL, "d_ff": 40}), weights=line)
    without = old.adapt(weft.load("transformer-tiny", **{**SMALL, "d_ff": 40}))

    weights = new.module.state_dict()[path]
    assert torch.equal(weights[:32], old.module.state_dict()[path])
    assert torch.equal(weights[32:], without.module.state_dict()[path][32:])
    assert new.weight_transfer.reshaped[path] == ((32, 16), (40, 16))


def test_null_draws_a_weight_that_would_fit(trained: api.Model) -> None:
    """As a new model draws it with the seed."""
    line = {"encoder.0.self_attention.f.{*p}": None}

    new = trained.adapt(weft.load("transformer-tiny", **SMALL), weights=line, seed=3)

    fresh = weft.build(weft.load("transformer-tiny", **SMALL, vocab=40), seed=3).state_dict()
    path = "encoder.0.self_attention.f.query.weight"
    assert torch.equal(new.module.state_dict()[path], fresh[path])
    assert path in new.weight_transfer.new


INNER = "encoder.0.feed_forward.f.inner.weight"
WRONG_LINES: list[tuple[dict[str, Any], str, str]] = [
    ({"encodr.{i}.{*p}": "encoder.{i}.{p}"}, "no weight of 'transformer-tiny' fits", "encoder"),
    ({INNER: "encoder.0.feed_forward.f.iner.weight"}, "has no weight", "did you mean"),
    ({INNER: "encoder.0.feed_forward.f.outer.weight"}, "has the wrong shape", ""),
    ({INNER: INNER, "encoder.0.{*p}": None}, "matches both", "more specific"),
    ({"head.weight": None, "source_embedding.weight": None}, "is tied to", "one line for both"),
    ({INNER: {"from": INNER, "tile": [2]}}, "does not fill", ""),
    ({INNER: {"from": INNER, "into": [[0, 99]]}}, "out of range", ""),
    ({INNER: {"from": INNER, "split": [["=width", 2]]}}, "unknown name 'width'", ""),
    ({INNER: {"from": INNER, "stack": {"e": 2}}}, "lacks the placeholder", "tile"),
    ({INNER: {"form": INNER}}, "unknown key 'form'", ""),
]


@pytest.mark.parametrize(("lines", "problem", "help_"), WRONG_LINES)
def test_a_wrong_line_is_named(
    trained: api.Model, lines: dict[str, Any], problem: str, help_: str
) -> None:
    """With its place and, where there is one, a way out."""
    with pytest.raises(SpecError) as error:
        trained.adapt(weft.load("transformer-tiny", **SMALL), weights=lines)

    finding = error.value.findings[0]
    assert problem in finding.problem
    assert help_ in finding.help
    assert finding.at.startswith("/weights/")
