"""Building models: parameter names, ties, one-time work of `begin`, causality."""

from __future__ import annotations

import io
import math
import random
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.parallel import parallelize
from weft.runtime.codegen.build import build, build_empty, initialize, tie
from weft.runtime.codegen.generated import program_of
from weft.specs.findings import InputError
from weft.specs.load import loaded

GraphOf = Callable[..., Graph]
Inputs = Callable[..., dict[str, Tensor]]
TIED = ("source_embedding.weight", "target_embedding.weight", "head.weight")
RELATIVE: dict[str, Any] = {
    "format": 1,
    "name": "relative",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "layers.x"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"x": "attention.y"},
            "nodes": {
                "attention": {
                    "use": "attention@1",
                    "in": {"x": "x"},
                    "params": {"heads": 2},
                    "fill": {"position": {"use": "transformer_xl_position@1"}},
                }
            },
        }
    },
    "nodes": {"layers": {"repeat": 2, "block": "layer", "carry": ["x"], "in": {"x": "x"}}},
}
"""Two layers with relative positions, whose weights start at random values and at zeros."""


def shuffled(value: Any, chance: random.Random) -> Any:
    """Return a JSON value with the keys of every object shuffled."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        return {key: shuffled(value[key], chance) for key in keys}
    if isinstance(value, list):
        return [shuffled(inner, chance) for inner in value]
    return value


def assert_tied(model: nn.Module) -> None:
    """Check that the three names refer to one tensor."""
    first, *others = (model.get_parameter(path) for path in TIED)
    assert all(other is first for other in others)


def test_state_dict_keys_are_the_paths_of_the_spec(graph: GraphOf) -> None:
    """Tied names too, each with the shape that was computed without torch."""
    made = graph(layers=4)

    state = build(made).state_dict()

    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == made.root.weights()
    assert "decoder.3.self_attention.f.query.weight" in state


def test_tied_parameters_are_one_tensor(graph: GraphOf) -> None:
    """After building, moving and loading, also from a state dict of another model."""
    model = build(graph())
    assert_tied(model)
    assert sum(w.numel() for w in model.parameters()) == graph().parameters()

    assert_tied(model.to(torch.float64))

    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    opened = build_empty(graph())
    opened.load_state_dict(torch.load(file, weights_only=True))
    assert_tied(opened)
    assert torch.equal(opened.head.weight, model.head.weight.float())

    opened.load_state_dict(model.state_dict(), assign=True)
    tie(opened)
    assert_tied(opened)


@pytest.mark.parametrize(
    "names", [("position.content_bias", "position.position_bias"), ("query.weight",)]
)
def test_ties_of_some_weights_of_a_block_leave_the_others_their_own(names: tuple[str, ...]) -> None:
    """Each weight is drawn once, by its first owner; other weights are those without a tie."""
    untied = build(check(loaded(RELATIVE).form, registry()), seed=3).state_dict()
    ties = {**RELATIVE, "tie": [[f"layers.*.attention.{name}"] for name in names]}
    model = build_empty(check(loaded(ties).form, registry()))
    with torch.no_grad():
        for weight in model.parameters():
            weight.fill_(math.nan)

    initialize(model, 3)

    for name in names:
        untied[f"layers.1.attention.{name}"] = untied[f"layers.0.attention.{name}"]
    assert model.state_dict().keys() == untied.keys()
    for path, weight in model.state_dict().items():
        torch.testing.assert_close(weight, untied[path], rtol=0, atol=0)


def test_a_tied_matrix_is_trained_by_every_use(graph: GraphOf, inputs: Inputs) -> None:
    """One optimizer step on the head changes the embeddings equally."""
    model = build(graph())

    model(**inputs())["logits"].logsumexp(-1).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()

    assert torch.equal(model.head.weight, model.source_embedding.weight)
    assert len(list(model.parameters())) == len(graph().weights())


def test_weights_depend_only_on_seed_and_path(
    graph: GraphOf, spec: Callable[[], dict[str, Any]], inputs: Inputs
) -> None:
    """With the JSON keys in another order, weights and outputs are the same."""
    model = build(graph(spec()), seed=3).eval()
    expected = model(**inputs())["logits"]

    for seed in range(3):
        other = build(graph(shuffled(spec(), random.Random(seed))), seed=3).eval()

        assert list(other.state_dict()) == list(model.state_dict())
        torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
        assert torch.equal(other(**inputs())["logits"], expected)


def test_another_seed_draws_other_weights(graph: GraphOf) -> None:
    """Every matrix differs; only constant weights (zeros and ones) are equal."""
    one, two = (build(graph(), seed=seed) for seed in (1, 2))

    alike = [
        name
        for name, weight in one.named_parameters()
        if weight.dim() > 1 and torch.equal(weight, two.get_parameter(name))
    ]

    assert alike == []


def test_another_layer_does_not_change_the_other_weights(graph: GraphOf) -> None:
    """Each weight is drawn from its path; another weight does not affect it."""
    two, three = (build(graph(layers=layers)).state_dict() for layers in (2, 3))

    assert two.keys() < three.keys()
    torch.testing.assert_close({name: three[name] for name in two}, two, rtol=0, atol=0)


def test_copies_of_a_layer_start_with_different_weights(graph: GraphOf) -> None:
    """Each copy is drawn independently; otherwise the symmetry would never break."""
    model = build(graph())

    matrices = [w for w in model.parameters() if w.dim() > 1]

    for index, matrix in enumerate(matrices):
        same = [m for m in matrices[:index] if m.shape == matrix.shape and torch.equal(m, matrix)]
        assert same == []


def test_building_does_not_change_the_global_random_state(graph: GraphOf) -> None:
    """Building a model does not change later random numbers."""
    before = torch.get_rng_state()

    build(graph())

    assert torch.equal(before, torch.get_rng_state())


def test_the_same_graph_is_the_same_class(graph: GraphOf) -> None:
    """torch.compile caches graphs by class, so two builds share them."""
    one, two = build(graph()), build(graph())

    assert type(one) is type(two)
    assert program_of(one) is program_of(two)
    assert type(one.encoder[0]) is type(one.encoder[1])


def test_a_model_has_the_program_of_its_graph_where_two_have_one_source(graph: GraphOf) -> None:
    """How a training spreads a graph over processes is not in the source."""
    alone = graph()
    spread = parallelize(alone, data="ddp", tensor=1, processes=2)
    programs = [program_of(build(version)) for version in (alone, spread)]

    assert programs[0].source == programs[1].source
    assert [program.graph.execution.parallel for program in programs] == [
        None,
        spread.execution.parallel,
    ]


def test_tracebacks_show_the_generated_line(graph: GraphOf, inputs: Inputs) -> None:
    """A mask of the wrong length shows the line of the generated model that failed."""
    model = build(graph())
    batch = inputs()

    with pytest.raises(RuntimeError) as caught:
        model.forward(**{**batch, "source_mask": batch["source_mask"][:, :-1]})

    frames = traceback.extract_tb(caught.value.__traceback__)
    lines = [frame.line for frame in frames if frame.filename.startswith("<weft_generated")]
    assert lines == [
        "encoder = layer(x=encoder, mask=source_mask)",
        "self_attention = self.self_attention(x=x, mask=mask)",
    ]


def test_begin_runs_the_encoder_and_the_memorys_keys_once(graph: GraphOf, inputs: Inputs) -> None:
    """Values that do not depend on the target are not computed again in each step."""
    model = build(graph()).eval()
    calls: dict[str, int] = {}
    watched = ("encoder.1", "decoder.1.cross_attention.f.key", "decoder.1.cross_attention.f.value")
    for path in (*watched, "decoder.1.self_attention.f.key"):

        def count(*_: Any, path: str = path) -> None:
            calls[path] = calls.get(path, 0) + 1

        model.get_submodule(path).register_forward_hook(count)
    batch = inputs(rows=2)
    capacity = Capacity(2, 1, 5, torch.float32, torch.device("cpu"))

    state = model.begin(capacity, source=batch["source"], source_mask=batch["source_mask"])
    for position in range(5):
        now = batch["target"][:, position : position + 1]
        model.step(target=now, state=state, position=position)

    assert calls == dict.fromkeys(watched, 1) | {"decoder.1.self_attention.f.key": 5}


def test_logits_do_not_depend_on_later_targets(graph: GraphOf, inputs: Inputs) -> None:
    """The complete model is causal; otherwise it would learn to copy its target."""
    model = build(graph()).eval()
    batch = inputs()
    for last in range(1, 5):
        changed = {**batch, "target": batch["target"].clone()}
        changed["target"][:, last] = (changed["target"][:, last] + 1) % 11

        before, after = model(**batch)["logits"], model(**changed)["logits"]

        assert torch.equal(before[:, :last], after[:, :last])
        assert (before[:, last] != after[:, last]).any(-1).all()


def test_source_padding_does_not_change_the_logits(graph: GraphOf, inputs: Inputs) -> None:
    """Neither the values in the padding nor its length matter."""
    model = build(graph()).eval()
    batch = inputs()
    mask = batch["source_mask"]
    expected = model(**batch)["logits"]

    other = torch.where(mask, batch["source"], (batch["source"] + 5) % 11)
    longer = nn.functional.pad(batch["source"], (0, 3), value=7)
    longer_mask = nn.functional.pad(mask, (0, 3), value=False)

    assert not mask.all()
    torch.testing.assert_close(model(**{**batch, "source": other})["logits"], expected)
    padded = {**batch, "source": longer, "source_mask": longer_mask}
    torch.testing.assert_close(model(**padded)["logits"], expected)


def test_an_unmasked_source_token_changes_the_logits(graph: GraphOf, inputs: Inputs) -> None:
    """Positions where the mask is true are attended."""
    model = build(graph()).eval()
    batch = inputs()
    changed = {**batch, "source": batch["source"].clone()}
    changed["source"][:, 0] = (changed["source"][:, 0] + 1) % 11

    before, after = model(**batch)["logits"], model(**changed)["logits"]

    assert (before != after).any(-1).all()


def test_a_foreign_module_has_no_program() -> None:
    """The error names the class of the module."""
    with pytest.raises(InputError, match="Linear was not built from a spec"):
        program_of(nn.Linear(1, 1))
