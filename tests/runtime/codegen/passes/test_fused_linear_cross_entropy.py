"""Losses that compute the output projection of a model, and models that leave it to them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from torch.nn import functional as F
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.fuse import fuse, leave_projection
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

WORDS = 1000
"""Size of the vocabulary of the shipped objectives before data is read."""
SMALL = {"d_model": 16, "heads": 2, "d_ff": 24, "layers": 1, "vocab": WORDS, "dropout": 0.0}


def objective(name: str = "translation") -> Graph:
    """Return a shipped objective with a small model."""
    model = {"spec": "transformer-tiny", "params": SMALL}
    return graph_of(load(str(shipped_names("objectives")[name]), {"model": model}))


def batch() -> dict[str, Tensor]:
    """Return two pairs, one of them with padding."""
    generator = torch.Generator().manual_seed(3)
    source, target = (torch.randint(4, WORDS, (2, size), generator=generator) for size in (7, 5))
    source[1, 4:], target[1, 3:] = 0, 0
    return {"source": source, "target": target}


def test_a_fused_loss_has_the_value_and_the_gradients_of_the_plain_one() -> None:
    """In training only: evaluation computes the logits."""
    plain, fused = build(objective()).train(), build(fuse(objective())).train()
    found = []
    for model in (plain, fused):
        loss = model(**batch())["loss"]
        found.append((loss, torch.autograd.grad(loss, list(model.parameters()))))

    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(fused.eval()(**batch()), plain.eval()(**batch()))


FLAT = {
    "format": 1,
    "name": "flat",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 6]", "first": "ids:9[B T]", "second": "ids:9[B T]"},
    "nodes": {
        "head": {"use": "linear@1", "params": {"d_out": 9, "bias": True}, "in": {"x": "x"}},
        "one": {"use": "cross_entropy@1", "in": {"logits": "head.y", "labels": "first"}},
        "two": {
            "use": "cross_entropy@1",
            "params": {"label_smoothing": 0.2},
            "in": {"logits": "head.y", "labels": "second"},
        },
    },
    "outputs": {"one": "one.loss", "two": "two.loss"},
}
"""Two losses that read a linear map of the objective itself."""


@pytest.mark.parametrize("losses", [("one",), ("one", "two")], ids=str)
def test_a_linear_map_of_the_objective_itself_is_fused(losses: tuple[str, ...]) -> None:
    """Against cross-entropy by its definition, from the weights; also its gradients."""
    value: dict[str, Any] = {**FLAT, "outputs": {name: f"{name}.loss" for name in losses}}
    value["nodes"] = {name: FLAT["nodes"][name] for name in ("head", *losses)}  # type: ignore[index]
    used = {"x", *("first", "second")[: len(losses)]}
    value["inputs"] = {n: t for n, t in FLAT["inputs"].items() if n in used}  # type: ignore[attr-defined]
    graph = fuse(graph_of(loaded(value)))
    model = build(graph).train()
    x = torch.randn(2, 3, 6, requires_grad=True)
    first, second = torch.randint(1, 9, (2, 3)), torch.randint(1, 9, (2, 3))
    log_p = (x @ model.head.weight.T + model.head.bias).log_softmax(-1)
    hit = [log_p.gather(-1, y[..., None]).sum() for y in (first, second)]
    expected = -hit[0]
    if "two" in losses:
        expected = expected - 0.8 * hit[1] - 0.2 * log_p.mean(-1).sum()
    given = {"x": x, "first": first, "second": second}

    outputs = model(**{name: given[name] for name in value["inputs"]})
    found = sum(outputs.values())

    weights = [x, *model.parameters()]
    assert graph.execution.leaves_map("head")
    assert "self.head(x)" not in program_of(model).source.replace("else self.head(x)", "")
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, weights), torch.autograd.grad(expected, weights)
    )


def test_a_loss_gets_what_the_map_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model returns vectors of d_model, and logits only in evaluation."""
    model = build(fuse(objective()))
    sizes = []
    plain: Any = type(model.model).forward

    def seen(self: Any, **given: Any) -> Any:
        outputs = plain(self, **given)
        sizes.append(outputs["logits"].size(-1))
        return outputs

    monkeypatch.setattr(type(model.model), "forward", seen)
    model.train()(**batch())
    model.eval()(**batch())

    assert sizes == [16, WORDS]


R_DROP = ("first", "second", "divergence")


@pytest.mark.parametrize("weights", [(1.0, 1.0, 5.0), (1.0, 2.0, 0.5)])
def test_losses_over_two_passes_of_a_model_have_their_values_and_gradients(
    weights: tuple[float, ...],
) -> None:
    """R-Drop, with the weights of the objective, and with others in the backward pass."""
    plain = build(objective("r-drop-translation")).train()
    fused = build(fuse(objective("r-drop-translation"))).train()
    found = []
    for model in (plain, fused):
        outputs = model(**batch())
        total = sum(w * outputs[n] for n, w in zip(R_DROP, weights, strict=True))
        assert isinstance(total, Tensor)
        found.append((outputs, torch.autograd.grad(total, list(model.parameters()))))

    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-6)
    with torch.no_grad():
        torch.testing.assert_close(fused.eval()(**batch()), plain.eval()(**batch()))


def test_losses_over_the_same_maps_are_one_group() -> None:
    """Both passes of R-Drop use the weights of `model`, and differ by their calls."""
    [group] = fuse(objective("r-drop-translation")).execution.groups

    assert [(one.node, one.module, one.head) for one in group.maps] == [
        ("again", "model", "head"),
        ("model", "model", "head"),
    ]
    assert group.losses == {
        "divergence": {"logits": 1, "target": 0},
        "first": {"logits": 1},
        "second": {"logits": 0},
    }


def test_logits_that_something_else_reads_are_not_fused() -> None:
    """An output of the objective needs all logits."""
    value = load(str(shipped_names("objectives")["r-drop-translation"])).value()
    value["outputs"]["logits"] = "model.logits"

    with pytest.raises(InputError, match="no loss over a linear map"):
        fuse(graph_of(loaded(value)))


def test_a_model_leaves_its_last_map_to_its_caller() -> None:
    """The loss by hand, from the vectors before the map, is that of the logits."""
    graph = graph_of(weft.load("transformer-tiny", **SMALL))
    model = build(leave_projection(graph)).double()
    inputs = batch()
    inputs["source_mask"] = inputs["source"] != 0

    x, logits = (model(**inputs, projected=flag)["logits"] for flag in (False, True))

    torch.testing.assert_close(F.linear(x, model.head.weight), logits)
    assert "projected: bool = True" in " ".join(program_of(model).source.split())
    with pytest.raises(InputError, match="unknown input 'projected'"):
        build(graph)(**inputs, projected=False)
