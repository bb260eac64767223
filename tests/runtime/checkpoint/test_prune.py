"""Tests of pruned heads: the result equals the model in which these heads output zeros."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import fingerprint
from weft.graphs.ir.graph import Graph
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import Checkpoint, open_checkpoint
from weft.runtime.checkpoint.prune import attentions, head_importance, pruned
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.specs.findings import InputError, SpecError
from weft.specs.load import loaded

GATED = {"output": {"use": "head_gates@1"}}
SPEC: dict[str, Any] = {
    "format": 1,
    "name": "pair",
    "axes": {"B": "batch", "S": "time", "T": "time"},
    "inputs": {"x": "f[B T 8]", "memory": "f[B S 6]"},
    "outputs": {"y": "stack.x"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T 8]", "memory": "f[B S 6]"},
            "outputs": {"x": "across.y"},
            "nodes": {
                "itself": {
                    "use": "sublayer@1",
                    "in": {"x": "x"},
                    "fill": {
                        "f": {
                            "use": "attention@1",
                            "params": {"heads": 4, "causal": True},
                            "fill": GATED,
                        }
                    },
                },
                "across": {
                    "use": "attention@1",
                    "in": {"x": "itself.y", "memory": "memory"},
                    "params": {"heads": 4, "kv_heads": 2, "d_k": 3, "d_v": 5},
                    "fill": GATED,
                },
            },
        }
    },
    "nodes": {
        "stack": {
            "repeat": 3,
            "block": "layer",
            "carry": ["x"],
            "in": {"x": "x", "memory": "memory"},
        }
    },
    "step": {"axis": "T"},
}
GONE = {
    "stack.0.itself.f": [0, 3],
    "stack.2.itself.f": [1],
    "stack.1.across": [2, 3],
    "stack.2.across": [0, 1],
}


def with_part(slot: str = "", use: str = "", **params: Any) -> dict[str, Any]:
    """Return the spec with a block in a slot of its self-attention, and with other params."""
    layer = SPEC["blocks"]["layer"]
    itself = layer["nodes"]["itself"]
    own = itself["fill"]["f"]
    parts = {**own["fill"], **({slot: {"use": use}} if slot else {})}
    fill = {"f": {**own, "params": {**own["params"], **params}, "fill": parts}}
    nodes = {**layer["nodes"], "itself": {**itself, "fill": fill}}
    return {**SPEC, "blocks": {"layer": {**layer, "nodes": nodes}}}


def checkpoint_of(spec: dict[str, Any], folder: Path) -> tuple[Checkpoint, nn.Module]:
    """Return a checkpoint of a spec, with weights far from special values, and its model."""
    graph = check(loaded(spec).form, registry())
    model = build(graph).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    contents = Contents(graph=graph, weights=weights_of(model, graph))
    return open_checkpoint(save(folder, contents)), model


def held_graph() -> Graph:
    """Return the graph of the spec."""
    return check(loaded(SPEC).form, registry())


def inputs() -> dict[str, Tensor]:
    """Return values of both inputs."""
    return {"x": torch.randn(2, 5, 8), "memory": torch.randn(2, 4, 6)}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"slot": "position", "use": "relative_bias@1"},
        {"slot": "position", "use": "relative_keys@1", "bias": False},
        {"slot": "after_query", "use": "rms_norm@1"},
    ],
    ids=str,
)
def test_without_a_head_is_with_its_gate_at_zero(parts: dict[str, Any], tmp_path: Path) -> None:
    """Heads are pruned in some copies of a repeat, with several widths and shared keys."""
    checkpoint, model = checkpoint_of(with_part(**parts), tmp_path / "whole")
    given = inputs()

    made = pruned(checkpoint, GONE)

    with torch.no_grad():
        for path, heads in GONE.items():
            model.get_parameter(f"{path}.output.weight")[heads] = 0.0
    torch.testing.assert_close(made.build()(**given)["y"], model(**given)["y"])
    left = {place.path: len(place.heads) for place in attentions(made.graph)}
    assert left == {
        "stack.0.itself.f": 2,
        "stack.0.across": 4,
        "stack.1.itself.f": 4,
        "stack.1.across": 2,
        "stack.2.itself.f": 3,
        "stack.2.across": 2,
    }
    assert made.graph.root.shape_of("stack.2.across.key.weight") == (3, 6)
    assert made.graph.root.shape_of("stack.0.itself.f.query.weight") == (4, 8)
    assert made.state["pruned_from"] == fingerprint(checkpoint.graph)


def test_nothing_taken_out_changes_nothing(tmp_path: Path) -> None:
    """Without heads to prune the spec stays the same."""
    checkpoint, model = checkpoint_of(SPEC, tmp_path / "whole")
    given = inputs()

    made = pruned(checkpoint, {"stack.0.across": []})

    assert fingerprint(made.graph) == fingerprint(checkpoint.graph)
    assert torch.equal(made.build()(**given)["y"], model(**given)["y"])


@pytest.mark.parametrize(
    ("heads", "problem", "help_"),
    [
        ({"stack.0.itself": [0]}, "'stack.0.itself' is not an attention", "'stack.0.itself.f'"),
        ({"stack.0.itself.f": [4]}, "has no head 4", "its heads are 0 to 3"),
        ({"stack.0.itself.f": [-1]}, "has no head -1", "its heads are 0 to 3"),
        ({"stack.0.itself.f": range(4)}, "no head of 'stack.0.itself.f' would remain", "keep"),
        ({"stack.0.across": [1]}, "share keys in groups of 2", "such as heads 0, 1"),
        ({"stack.0.across": [1, 2]}, "share keys in groups of 2", "such as heads 0, 1"),
    ],
    ids=str,
)
def test_invalid_heads_are_refused(
    heads: dict[str, Any], problem: str, help_: str, tmp_path: Path
) -> None:
    """Invalid heads are errors that say how to fix them."""
    checkpoint, _ = checkpoint_of(SPEC, tmp_path / "whole")

    with pytest.raises(InputError, match=problem) as caught:
        pruned(checkpoint, heads)

    assert help_ in caught.value.help


def test_heads_with_alibi_are_not_pruned(tmp_path: Path) -> None:
    """With fewer heads, the remaining heads would have other ALiBi slopes."""
    checkpoint, _ = checkpoint_of(with_part("position", "alibi@1"), tmp_path / "whole")

    with pytest.raises(InputError, match="depends on the number of its heads"):
        pruned(checkpoint, {"stack.0.itself.f": [1]})


def test_tied_heads_must_be_pruned_together(tmp_path: Path) -> None:
    """Tied tensors need the same size, so both attentions must lose the same heads."""
    tie = [["stack.0.itself.f.key.weight", "stack.1.itself.f.key.weight"]]
    checkpoint, model = checkpoint_of({**SPEC, "tie": tie}, tmp_path / "whole")
    given = inputs()

    with pytest.raises(SpecError):
        pruned(checkpoint, {"stack.0.itself.f": [1]})

    both = {"stack.0.itself.f": [1], "stack.1.itself.f": [1]}
    with torch.no_grad():
        for path in both:
            model.get_parameter(f"{path}.output.weight")[1] = 0.0
    torch.testing.assert_close(pruned(checkpoint, both).build()(**given)["y"], model(**given)["y"])


def test_importance_is_the_mean_gradient_of_the_loss_by_the_gate(tmp_path: Path) -> None:
    """Compare with finite differences of each gate over two batches."""
    _, model = checkpoint_of(SPEC, tmp_path / "whole")
    model = model.double()
    batches = [{name: value.double() for name, value in inputs().items()} for _ in range(2)]

    def loss(batch: dict[str, Tensor]) -> Tensor:
        return model(**batch)["y"].square().sum()

    found = head_importance(model, [lambda b=batch: loss(b) for batch in batches])

    assert sorted(found) == sorted(place.path for place in attentions(held_graph()))
    assert all(weight.grad is None for weight in model.parameters())
    for path in ("stack.0.itself.f", "stack.2.across"):
        gate, expected = model.get_parameter(f"{path}.output.weight"), torch.zeros(4).double()
        with torch.no_grad():
            for head in range(4):
                for batch in batches:
                    sides = []
                    for move in (1e-5, -2e-5):
                        gate[head] += move
                        sides.append(loss(batch))
                    gate[head] += 1e-5
                    expected[head] += (sides[0] - sides[1]).abs() / 2e-5 / 2
        torch.testing.assert_close(found[path], expected, rtol=1e-5, atol=1e-6)


def test_importance_needs_gates_and_a_batch(tmp_path: Path) -> None:
    """Each error says how to fix it."""
    _, model = checkpoint_of(SPEC, tmp_path / "whole")
    plain = json.loads(json.dumps(SPEC).replace("head_gates@1", "rms_norm@1"))
    _, without = checkpoint_of(plain, tmp_path / "plain")

    with pytest.raises(InputError, match="no batch"):
        head_importance(model, [])
    with pytest.raises(InputError, match="no attention of the model has gates"):
        head_importance(without, [])


@pytest.fixture
def trained(toy_checkpoint: Path) -> api.Model:
    """Return a model after a few updates."""
    return weft.open(toy_checkpoint)


@pytest.mark.integration
def test_a_pruned_model_translates_and_is_saved(
    trained: api.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python and the command both give the model in which the head outputs zeros."""
    path, lines = "decoder.0.cross_attention.f", ["sun moon", "river stone bird"]

    made = trained.prune({path: [1]})
    folder = str(trained.checkpoint.folder)
    out = str(tmp_path / "less")
    assert main(["prune", folder, "--heads", f"{path}:1", "-o", out]) == 0

    lines = capsys.readouterr().out.splitlines()
    # A head of width 8 in a model of 16: three maps of 8 x 16 with biases, and 8 columns.
    before = trained.graph.parameters()
    assert lines == [
        f"{path}  2 -> 1 heads",
        f"parameters  {before:,} -> {before - (3 * (8 * 16 + 8) + 16 * 8):,}",
        out,
    ]
    with torch.no_grad():
        trained.module.get_parameter(f"{path}.out.weight")[:, 8:] = 0.0
    expected = trained.translate(lines)
    assert made.translate(lines) == expected
    assert weft.open(out).translate(lines) == expected
    assert weft.open(made.save(tmp_path / "again")).translate(lines) == expected


@pytest.mark.parametrize("text", ["decoder.0.self_attention.f", "a:", "a:1,b", "a:-1"])
def test_an_argument_without_path_and_heads_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong command line, the expected form of the argument, and no folder."""
    checkpoint, _ = checkpoint_of(SPEC, tmp_path / "whole")
    out = tmp_path / "less"

    assert main(["prune", str(checkpoint.folder), "--heads", text, "-o", str(out)]) == 2

    assert "encoder.0.f:0,3" in capsys.readouterr().err
    assert not out.exists()
