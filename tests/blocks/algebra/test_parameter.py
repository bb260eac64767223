"""Learned and constant arrays, and weighted sums of layers that are made of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.runtime.codegen.build import build
from weft.runtime.prove.prove import prove
from weft.specs.load import loaded

from ..single_node import computed, findings_of, graph_of, spec_of, type_of

X = torch.arange(2 * 6 * 4.0).view(2, 6, 4)


def test_a_learned_array_is_the_same_in_every_row() -> None:
    """Only the number of rows of the other value matters."""
    model: Any = build(
        graph_of(spec_of("parameter@1", {"x": "f[B T 4]"}, shape=[3, 5], rows=True)), seed=1
    )

    y = model(x=X)["y"]

    assert y.shape == (2, 3, 5)
    assert torch.equal(y[0], model.node.weight)
    assert torch.equal(y[1], model.node.weight)


def test_a_normal_array_has_the_variance_of_embeddings() -> None:
    """1 / 16 for vectors of 16 numbers, times the square of the factor."""
    spec = spec_of("parameter@1", {}, shape=[4000, 16], factor=2.0)

    y = build(graph_of(spec), seed=1)()["y"]

    assert float(y.detach().var()) == pytest.approx(4 / 16, rel=0.03)


@pytest.mark.parametrize("learned", [True, False])
@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({"shape": [2, 3], "init": "zeros"}, [[0, 0, 0], [0, 0, 0]]),
        ({"shape": [2, 3], "init": "ones", "factor": 0.5}, [[0.5, 0.5, 0.5], [0.5, 0.5, 0.5]]),
        ({"shape": [2, 3], "init": "identity"}, [[1, 0, 0], [0, 1, 0]]),
        ({"shape": [2, 2, 2], "init": "identity", "factor": 3.0}, [[[3, 0], [0, 3]]] * 2),
        ({"shape": [2, 3], "init": "range", "factor": 2.0}, [[0, 2, 4], [0, 2, 4]]),
        ({"shape": [], "init": "ones", "factor": -1.5}, -1.5),
    ],
    ids=str,
)
def test_an_array_has_the_values_of_its_init(
    params: dict[str, Any], expected: Any, *, learned: bool
) -> None:
    """Written out by hand, as a parameter and as a constant."""
    inputs = {} if learned else {"x": "f[B T 4]"}

    y = computed(
        spec_of("parameter@1", inputs, learned=learned, **params), **({} if learned else {"x": X})
    )

    assert y.tolist() == expected


@pytest.mark.parametrize(
    ("params", "inputs", "result"),
    [
        ({"shape": [3, 5]}, {}, "f[3 5]"),
        ({"shape": []}, {}, "f[]"),
        ({"shape": [3, 5], "rows": True}, {"x": "f[B T 4]"}, "f[B 3 5]"),
        ({"shape": [], "rows": True}, {"x": "f[B 4]"}, "f[B]"),
        ({"shape": [2, 2], "init": "identity", "learned": False}, {"x": "f[B T 4]"}, "f[2 2]"),
    ],
    ids=str,
)
def test_the_type_of_an_array_is_its_shape(
    params: dict[str, Any], inputs: dict[str, str], result: str
) -> None:
    """After the batch, if each row has it."""
    assert type_of(spec_of("parameter@1", inputs, **params)) == result


@pytest.mark.parametrize(
    ("params", "inputs", "code", "text"),
    [
        ({"shape": [3, 0]}, {}, "P01", "shape"),
        ({"shape": "3 5"}, {}, "P01", "shape"),
        ({}, {}, "W07", "shape"),
        ({"shape": [3], "learned": False}, {"x": "f[B 4]"}, "P01", "no random values"),
        ({"shape": [], "init": "range"}, {}, "P01", "counts along the last axis"),
        ({"shape": [3], "init": "identity"}, {}, "P01", "has two axes"),
        ({"shape": [3], "init": "zeros", "factor": 2.0}, {}, "P01", "zeros stay zeros"),
        ({"shape": [3]}, {"x": "f[B 4]"}, "N03", "no port 'x'"),
        ({"shape": [3], "rows": True}, {}, "W01", "port 'x'"),
        ({"shape": [3], "rows": True}, {"x": "ids:9[B T]"}, "T02", "kind"),
    ],
    ids=str,
)
def test_a_wrong_array_is_found_at_its_node(
    params: dict[str, Any], inputs: dict[str, str], code: str, text: str
) -> None:
    """Each mistake has its code, and names what is wrong or what to write instead."""
    findings = findings_of(spec_of("parameter@1", inputs, **params))

    finding = next(finding for finding in findings if finding.code == code)
    assert text in " ".join([finding.problem, *finding.evidence, finding.help])
    assert "/nodes/node" in finding.at


LATENTS = {"shape": [5, 8], "rows": True}
LOOK = {"use": "attention@1", "in": {"x": "x", "memory": "array.y"}, "params": {"heads": 2}}


def decoder(params: dict[str, Any], reader: dict[str, Any], *, inside: str = "") -> dict[str, Any]:
    """Return a spec that decodes and reads an array, perhaps in a template."""
    array = {"use": "parameter@1", "in": {"x": "x"}, "params": params}
    nodes = {"array": array, "y": reader}
    spec: dict[str, Any] = {
        "format": 1,
        "name": "decoder",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "y.y"},
        "step": {"axis": "T"},
        "nodes": nodes,
    }
    if inside:
        inputs = {"x": "f[B T 8]"}
        spec["blocks"] = {"inner": {"inputs": inputs, "outputs": {"y": "y.y"}, "nodes": nodes}}
        spec["nodes"] = {"y": {"use": "inner", "in": {"x": "x"}}}
    if inside == "slot":
        spec["nodes"]["y"] = {
            "use": "sublayer@1",
            "in": {"x": "x"},
            "fill": {"f": {"use": "inner"}},
        }
    return spec


@pytest.mark.parametrize("inside", ["", "template", "slot"])
@pytest.mark.parametrize("init", ["zeros", "range", "identity", "rows"])
def test_an_array_does_not_move_from_step_to_step(init: str, inside: str) -> None:
    """Its port only tells rows and precision, so decoding has it before the first step."""
    params = {"shape": [8, 8], "init": init, "learned": False}
    product = {"use": "einsum@1", "in": {"x": "x", "z": "array.y"}}
    reader = LOOK if init == "rows" else product | {"params": {"y": "b t d, d k -> b t k"}}
    spec = decoder(LATENTS if init == "rows" else params, reader, inside=inside)

    proof = prove(graph_of(spec), only="steps")

    assert [p.outcome for p in proof.properties] == ["passed"]


def test_rows_that_are_steps_are_found() -> None:
    """An array for each position has a new one at every step."""
    reader = {"use": "reduce@1", "in": {"x": "array.y"}, "params": {"y": "t n d -> t", "by": "max"}}
    spec = decoder(LATENTS, reader) | {"axes": {"T": "time"}, "inputs": {"x": "f[T 8]"}}

    problems = {f.at: f.problem for f in findings_of(spec) if f.code == "D01" and f.help}

    assert "the rows of parameter@1 are positions of T" in problems["/nodes/array"]


def test_a_weighted_sum_of_layers_is_three_nodes() -> None:
    """Peters et al. 2018, equation 1: weights log 1 and log 3 give 1/4 and 3/4, and a gain of 2."""
    nodes = {
        "layer_weights": {"use": "parameter@1", "params": {"shape": [2], "init": "zeros"}},
        "gain": {"use": "parameter@1", "params": {"shape": [], "init": "ones"}},
        "shares": {"use": "softmax@1", "in": {"x": "layer_weights.y"}},
        "sum": {
            "use": "einsum@1",
            "in": {"x": "layers", "z": "shares.y"},
            "params": {"y": "l b t d, l -> b t d"},
        },
        "scaled": {
            "use": "elementwise@1",
            "in": {"x": "sum.y", "gain": "gain.y"},
            "params": {"y": "gain * x"},
        },
    }
    spec = {
        "format": 1,
        "name": "weighted-sum",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"layers": "f[2 B T 1]"},
        "outputs": {"y": "scaled.y"},
        "nodes": nodes,
    }
    model: Any = build(check(loaded(spec).form, registry()))
    layers = torch.tensor([4.0, 8.0]).view(2, 1, 1, 1)

    torch.testing.assert_close(model(layers=layers)["y"], torch.tensor([[[6.0]]]))
    with torch.no_grad():
        model.layer_weights.weight.copy_(torch.tensor([1.0, 3.0]).log())
        model.gain.weight.fill_(2.0)
    torch.testing.assert_close(model(layers=layers)["y"], torch.tensor([[[14.0]]]))
