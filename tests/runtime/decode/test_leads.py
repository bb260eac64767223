"""Positions before the first step: vectors in front of a text, and a prefix of any length."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.decode.stepper import ModelStepper
from weft.runtime.prove.prove import prove
from weft.specs.findings import Finding
from weft.specs.load import loaded

VOCAB = 30
UNUSUAL = Path(__file__).parents[2] / "graphs" / "unusual"
SINKS: dict[str, Any] = json.loads((UNUSUAL / "vectors-in-front.json").read_text(encoding="utf-8"))
PREFIX: dict[str, Any] = json.loads((UNUSUAL / "source-in-front.json").read_text(encoding="utf-8"))


def edited(spec: dict[str, Any], **nodes: Any) -> dict[str, Any]:
    """Return a spec with other nodes."""
    return {**copy.deepcopy(spec), "nodes": {**copy.deepcopy(spec["nodes"]), **nodes}}


IN_TEMPLATE = edited(
    SINKS,
    waves={"use": "elementwise@1", "in": {"x": "embed.y"}, "params": {"y": "x"}},
    stack={"use": "inside", "in": {"x": "waves.y", "mask": "all.y"}},
    tokens={"use": "elementwise@1", "in": {"x": "stack.x"}, "params": {"y": "x"}},
)
IN_TEMPLATE["nodes"].pop("sinks")
IN_TEMPLATE["blocks"]["inside"] = {
    "doc": "The vectors in front are added and dropped within a template.",
    "inputs": {"x": "f[B T d_model]", "mask": "mask[B T]"},
    "outputs": {"x": "tokens.y"},
    "nodes": {
        "sinks": {
            "use": "prepend@1",
            "in": {"x": "x", "mask": "mask"},
            "params": {"count": 2},
        },
        "layer": {"use": "layer", "in": {"x": "sinks.y", "mask": "sinks.mask"}},
        "tokens": {"use": "slice@1", "in": {"x": "layer.x"}, "params": {"start": 2}},
    },
}
IN_SLOT = edited(
    SINKS,
    sinks={"use": "prepend@1", "in": {"x": "embed.y"}, "params": {"count": 3}},
    stack={
        "use": "sublayer@1",
        "in": {"x": "waves.y"},
        "fill": {"f": {"use": "both"}},
    },
    tokens={"use": "slice@1", "in": {"x": "stack.y"}, "params": {"start": 3}},
)
IN_SLOT["nodes"].pop("all")
IN_SLOT["blocks"] = {
    "both": {
        "inputs": {"x": "f[b t d_model]"},
        "outputs": {"y": "waves.y"},
        "nodes": {
            "look": {
                "use": "attention@1",
                "in": {"x": "x"},
                "params": {"heads": 2, "causal": True},
            },
            "waves": {"use": "sinusoidal_position@1", "in": {"x": "look.y"}},
        },
    }
}
ARRAY = edited(
    IN_SLOT,
    vectors={"use": "parameter@1", "params": {"shape": [3, "=d_model"]}},
    sinks={
        "use": "concatenate@1",
        "in": {"x": "vectors.y", "z": "embed.y"},
        "params": {"axis": "time"},
    },
)
SPECS = {
    "sinks": SINKS,
    "prefix": PREFIX,
    "in a template": IN_TEMPLATE,
    "in a slot": IN_SLOT,
    "an array": ARRAY,
}


def checked(spec: dict[str, Any]) -> tuple[Graph | None, list[Finding]]:
    """Return the graph of a spec, and its findings."""
    return analyse(loaded(spec).form, registry())


def model_of(spec: dict[str, Any]) -> nn.Module:
    """Return a model with random weights, in float64."""
    graph, findings = checked(spec)
    assert graph is not None, findings
    model = build(graph).eval().double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, dtype=torch.float64))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_properties_of_steps_are_proven(spec: dict[str, Any]) -> None:
    """Steps, prompts, reordered and dropped rows, later positions, and opening again."""
    graph, findings = checked(spec)
    assert graph is not None, findings

    proof = prove(graph, only=["steps", "causality", "unpadded", "saved", "gradients"])

    assert proof.passed, proof.render()


@pytest.mark.integration
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("prompt", [0, 5])
def test_decoding_with_beams_equals_the_parallel_pass(spec: dict[str, Any], prompt: int) -> None:
    """Also where buffers grow, beams are reordered, and a sentence is dropped."""
    sentences, beams, length = 2, 3, 40
    generator = torch.Generator().manual_seed(1)
    model = model_of(spec)
    fixed: dict[str, Tensor] = {}
    if "source" in spec["inputs"]:
        mask = torch.arange(7) < torch.tensor([[7], [4]])
        fixed = {"source": torch.randint(VOCAB, (2, 7), generator=generator), "source_mask": mask}
    rows = torch.randint(VOCAB, (sentences * beams, length), generator=generator)
    parents = torch.tensor([2, 0, 0, 3, 5, 4])

    with torch.no_grad():
        stepper = ModelStepper(model, fixed, beams=beams, length=length, sentences=sentences)
        if prompt:
            stepper.read(rows[:, :prompt])
        for position in range(prompt, length):
            if position == 20:
                stepper.reorder(parents)
                rows[:, :20] = rows[parents, :20]
            if position == 30:
                stepper.narrow(torch.tensor([1]))
                rows, fixed = rows[beams:], {name: value[1:] for name, value in fixed.items()}
            logits = stepper.step(rows[:, position], position)
            count = len(rows) // beams
            wide = {name: value.repeat_interleave(beams, 0) for name, value in fixed.items()}
            expected = model(**wide, target=rows[:, : position + 1])["logits"][:, -1]
            assert count == stepper.rows
            torch.testing.assert_close(logits, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    ("spec", "nodes", "at", "problem"),
    [
        (
            SINKS,
            {"gru": {"use": "gru@1", "in": {"x": "stack.x"}, "params": {"d_hidden": 8}}},
            "/outputs/logits",
            "output 'logits' is f[B T+3 30], with 3 positions before those of T",
        ),
        (
            SINKS,
            {"tokens": {"use": "slice@1", "in": {"x": "stack.x"}, "params": {"stop": -3}}},
            "/nodes/tokens",
            "slice@1 reads later positions of T",
        ),
        (
            SINKS,
            {"tokens": {"use": "slice@1", "in": {"x": "stack.x"}, "params": {"start": 4}}},
            "/nodes/tokens",
            "slice@1 reads later positions of T",
        ),
        (
            PREFIX,
            {
                "sinks": {
                    "use": "concatenate@1",
                    "in": {"x": "embed.y", "z": "read.y"},
                    "params": {"axis": "time"},
                }
            },
            "/nodes/sinks",
            "concatenate@1 reads later positions of T",
        ),
        (
            PREFIX,
            {
                "sinks": {
                    "use": "concatenate@1",
                    "in": {"x": "embed.y", "z": "embed.y"},
                    "params": {"axis": "time"},
                }
            },
            "/nodes/sinks",
            "concatenate@1 reads later positions of T",
        ),
        (
            PREFIX,
            {
                "gru": {
                    "use": "attention@1",
                    "in": {"x": "tokens.y", "memory": "stack.x"},
                    "params": {"heads": 2},
                }
            },
            "/nodes/gru",
            "attention@1 reads later positions of T",
        ),
        (
            PREFIX,
            {
                "pairs": {
                    "use": "einsum@1",
                    "in": {"x": "tokens.y", "z": "stack.x"},
                    "params": {"y": "b t d, b s d -> b t s"},
                },
            },
            "/nodes/pairs",
            "einsum@1",
        ),
        (
            SINKS,
            {
                "tokens": {
                    "use": "elementwise@1",
                    "in": {"x": "stack.x"},
                    "params": {"y": "2 * x"},
                },
                "more": {"use": "prepend@1", "in": {"x": "tokens.y"}},
                "gru": {"use": "slice@1", "in": {"x": "more.y"}, "params": {"start": 1}},
            },
            "/outputs/logits",
            "with 3 positions before those of T",
        ),
    ],
)
def test_what_cannot_step_is_found(
    spec: dict[str, Any], nodes: dict[str, Any], at: str, problem: str
) -> None:
    """Each has its place, the reason, and a way out."""
    wrong = edited(spec, **nodes)
    if "pairs" in nodes:
        wrong["outputs"]["pairs"] = "pairs.y"

    findings = [finding for finding in checked(wrong)[1] if finding.code == "D01"]

    assert {finding.at for finding in findings} == {at}
    assert problem in findings[0].problem
    assert findings[0].help


def test_a_prefix_that_no_input_measures_is_refused() -> None:
    """The steps need the length of the prefix, which only the moving input has."""
    spec = edited(PREFIX)
    spec["inputs"]["source"] = "ids:vocab[B S]"
    spec["inputs"]["source_mask"] = "mask[B S]"
    graph, _ = checked(spec)
    assert graph is not None

    spec["inputs"] |= {"source": "ids:vocab[B S+1]", "source_mask": "mask[B S+1]"}
    spec["nodes"]["read"]["in"] = {"ids": "source"}
    findings = checked(spec)[1]

    assert [(f.code, f.at) for f in findings] == [("D01", "/step/axis")]
    assert "no fixed input tells how many" in findings[0].problem


def test_a_template_for_one_axis_is_told_how_to_take_others() -> None:
    """The template of the layers takes T positions alone, and gets 3 more."""
    spec = edited(SINKS)
    spec["blocks"]["layer"]["inputs"] = {"x": "f[B T d_model]", "mask": "mask[B T]"}

    helps = [finding.help for finding in checked(spec)[1] if finding.code == "T03"]

    assert helps == ["write t for T in the types of layer: words fit any axes"]


def test_a_sink_in_front_of_a_shipped_model_decodes(tmp_path: Path) -> None:
    """Xiao et al. 2024, section 3.3, as two nodes around the layers."""
    patch = [
        {"select": "decoder", "insert_before": {"sink": {"use": "prepend@1"}}, "port": "x"},
        {
            "select": "norm",
            "insert_before": {"tokens": {"use": "slice@1", "params": {"start": 1}}},
        },
    ]
    path = tmp_path / "sink.json"
    path.write_text(json.dumps({"format": 1, "name": "sink", "extends": "gpt2", "patch": patch}))

    assert weft.check(path) == []
