"""Tests of the canonical form: equal for specs with the same meaning, else different."""

from __future__ import annotations

import contextlib
import json
import random
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.canonical import canonical, fingerprint
from weft.graphs.ir.traverse import walk
from weft.specs.findings import SpecError
from weft.specs.load import load, loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.block_type import BlockType
    from weft.graphs.ir.graph import Graph

    Edit = Callable[..., dict[str, Any]]
    GraphOf = Callable[..., Graph]

GENERIC: dict[str, Any] = {
    "format": 1,
    "name": "generic",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]", "mask": "mask[B T]"},
    "outputs": {"y": "last.y"},
    "blocks": {
        "part": {
            "inputs": {"x": "f[B T d]", "mask": "mask[B T]?"},
            "outputs": {"y": "read.y", "before": "x"},
            "nodes": {
                "read": {
                    "use": "attention@1",
                    "in": {"x": "x", "mask": "mask"},
                    "params": {"heads": 2},
                }
            },
        },
        "part_2": {
            "inputs": {"x": "f[B T d]"},
            "outputs": {"y": "norm.y"},
            "nodes": {"norm": {"use": "layer_norm@1", "in": {"x": "x"}}},
        },
    },
    "nodes": {
        "a": {"use": "part", "in": {"x": "x", "mask": "mask"}},
        "b": {"use": "part", "in": {"x": "a.y"}},
        "widen": {"use": "linear@1", "in": {"x": "b.y"}, "params": {"d_out": 6}},
        "c": {"use": "part", "in": {"x": "widen.y", "mask": "mask"}},
        "d": {"use": "part", "in": {"x": "c.y", "mask": "mask"}},
        "last": {"use": "part_2", "in": {"x": "d.y"}},
    },
}


def shuffled(value: Any, dice: random.Random) -> Any:
    """Return a JSON value with the keys of every object shuffled."""
    if isinstance(value, dict):
        keys = dice.sample(sorted(value), len(value))
        return {key: shuffled(value[key], dice) for key in keys}
    return [shuffled(inner, dice) for inner in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big", "transformer-tiny", ""])
def test_expanding_twice_changes_nothing(name: str, graph_of: GraphOf) -> None:
    """The full form is a spec, and equals its own full form."""
    form = load(name).form if name else loaded(GENERIC).form
    graph = check(form, registry())

    full = canonical(graph)
    again = graph_of(full)

    assert canonical(again) == full
    assert fingerprint(again) == fingerprint(graph)
    assert again.weights() == graph.weights()


def test_the_full_form_has_only_explicit_values(edit: Edit, graph_of: GraphOf) -> None:
    """The full form has no expressions, params, block choices or omitted defaults."""
    full = canonical(graph_of(edit({})))

    text = json.dumps(full)
    assert '"=' not in text
    assert "params" not in full
    assert "require" not in full
    head = full["nodes"]["head"]
    assert (head["use"], head["in"]) == ("linear@1", {"x": "decoder.x"})
    assert head["params"].items() >= {"bias": False, "d_out": 37000}.items()
    position = full["nodes"]["source_position"]["params"]
    assert position == {"dropout": 0.1, "first": 0, "form": "interleaved"}
    assert full["inputs"]["target"] == "ids:37000[B T]"


def test_a_generic_template_becomes_one_for_each_type(graph_of: GraphOf) -> None:
    """Uses of one type share a template; other widths or open ports need another."""
    full = canonical(graph_of(GENERIC))

    assert {name: body["inputs"] for name, body in full["blocks"].items()} == {
        "part": {"x": "f[B T 8]", "mask": "mask[B T]"},
        "part_2": {"x": "f[B T 6]"},
        "part_3": {"x": "f[B T 8]"},
        "part_4": {"x": "f[B T 6]", "mask": "mask[B T]"},
    }
    uses = {name: node["use"] for name, node in full["nodes"].items()}
    assert uses["a"] == "part"
    assert uses["c"] == uses["d"] == "part_4"
    assert uses["last"] == "part_2"


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_keys_has_no_effect(seed: int, edit: Edit, graph_of: GraphOf) -> None:
    """It changes neither canonical text, fingerprint nor the order of weights."""
    for spec in (edit({}), GENERIC):
        plain = graph_of(spec)
        other = graph_of(shuffled(spec, random.Random(seed)))

        assert json.dumps(canonical(other)) == json.dumps(canonical(plain))
        assert list(other.weights()) == list(plain.weights())
        assert [path for path, _ in walk(other.root)] == [path for path, _ in walk(plain.root)]


@pytest.mark.parametrize(
    "edits",
    [
        {"/doc": "Another text."},
        {"/name": "another-name"},
        {"/blocks/encoder_layer/doc": "What it is."},
        {"/nodes/head/doc": "What it is."},
        {"/params/d_model": 512.0},
        {"/params/dropout": 1e-1},
        {"/params/dropout": "=1/10"},
        {"/params/attention_dropout": 0},
        {"/params/d_ff": 2048},
        {"/params/d_k": 64, "/params/d_v": 64},
        {"/nodes/head/params/d_out": 37000, "/params/vocab": "=37000"},
        {"/nodes/encoder/repeat": "=layers + 0"},
        {"/inputs/target": " ids:vocab[B  T] "},
        {"/require": []},
        {
            "/nodes/source_position": {
                "use": "sinusoidal_position@1",
                "in": {"x": "source_embedding.y"},
                "params": {"form": "interleaved", "dropout": 0.1},
            }
        },
    ],
    ids=str,
)
def test_an_equivalent_spec_has_the_same_fingerprint(
    edits: dict[str, Any], edit: Edit, graph_of: GraphOf
) -> None:
    """Names, comments, spelling of numbers, and expressions with the same value."""
    assert fingerprint(graph_of(edit(edits))) == fingerprint(graph_of(edit({})))


@pytest.mark.parametrize(
    ("edits", "remove"),
    [
        ({"/params/layers": 5}, []),
        ({"/params/vocab": 36999}, []),
        ({}, ["/tie"]),
        ({}, ["/step"]),
        ({"/tie": [["source_embedding.weight", "target_embedding.weight"]]}, []),
        ({"/nodes/decoder/in/x": "target_embedding.y"}, ["/nodes/target_position"]),
        ({"/outputs/scores": "head.y"}, ["/outputs/logits"]),
        ({"/outputs/states": "decoder.x"}, []),
        ({"/axes/T": "batch", "/axes/S": "time"}, ["/step"]),
        ({"/params/position": {"use": "learned_position@1"}}, []),
        (
            {"/blocks/decoder_layer/nodes/feed_forward/in/x": "self_attention.y"},
            [
                *("/blocks/decoder_layer/nodes/cross_attention", "/nodes/decoder/in/memory"),
                *("/nodes/decoder/in/mask", "/blocks/decoder_layer/inputs/memory", "/tie"),
                *("/blocks/decoder_layer/inputs/mask", "/blocks/encoder_layer", "/nodes/encoder"),
                *("/nodes/source_embedding", "/nodes/source_position", "/inputs/source"),
                "/inputs/source_mask",
            ],
        ),
    ],
    ids=str,
)
def test_a_changed_function_changes_the_fingerprint(
    edits: dict[str, Any], remove: list[str], edit: Edit, graph_of: GraphOf
) -> None:
    """Sizes, wires, ties, outputs, axes, blocks."""
    assert fingerprint(graph_of(edit(edits, remove))) != fingerprint(graph_of(edit({})))


def test_the_weight_of_a_loss_is_in_the_form(graph_of: GraphOf) -> None:
    """Also of an objective that holds no model, whose nodes are blocks."""

    def objective(weight: float) -> dict[str, Any]:
        return {
            "format": 1,
            "name": "objective",
            "axes": {"B": "batch", "T": "time"},
            "inputs": {"x": "f[B T 4]", "target": "f[B T 4]", "mask": "mask[B T]"},
            "outputs": {"loss": "error.loss"},
            "losses": {"loss": weight},
            "nodes": {
                "head": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}},
                "error": {
                    "use": "mean_squared_error@1",
                    "in": {"x": "head.y", "target": "target", "mask": "mask"},
                },
            },
        }

    one, two, three = (graph_of(objective(weight)) for weight in (1.0, 2.0, 3.0))

    assert len({fingerprint(each) for each in (one, two, three)}) == 3
    assert canonical(two)["losses"] == {"loss": 2.0}
    assert graph_of(canonical(two)).losses == {"loss": 2.0}
    assert "losses" not in canonical(one)


def others(block: BlockType, name: str, params: dict[str, Any]) -> list[Any]:
    """Return other values of a param, from its JSON Schema."""
    entry = block.params.model_json_schema()["properties"][name]
    known = [
        *entry.get("enum", []),
        *(e for kind in entry.get("anyOf", []) for e in kind.get("enum", [])),
    ]
    kinds = {entry.get("type"), *(kind.get("type") for kind in entry.get("anyOf", []))}
    if "boolean" in kinds:
        known += [True, False]
    if "integer" in kinds:
        known += [1, 2, 3, 4, 5, 8]
    if "number" in kinds:
        known += [0.25, 0.5, 1.5]
    if name == "lora":
        known += [{"rank": 2}, {"rank": 4}, {"rank": 2, "alpha": 4.0}]
    known += VALUES.get((block.name, name), [])
    now = getattr(block.params.model_validate(params), name)
    return [value for value in known if value != now]


def alone(block: BlockType, params: dict[str, Any]) -> dict[str, Any]:
    """Return a spec of one block with the ports wired that are available for these params."""
    given = block.params.model_validate(params)
    signature = block.signature(given, frozenset(block.example_inputs))
    left = {port.name for port in signature.inputs}
    wired = {name: type_ for name, type_ in block.example_inputs.items() if name in left}
    two_axes = not wired.keys().isdisjoint(("memory", "key"))
    if len(wired) < len(block.example_inputs) or (two_axes and params.get("causal")):
        # The block then reads x itself, or both have the same positions.
        wired = {name: type_.replace("S", "T") for name, type_ in wired.items()}
    use = {"use": block.key, "params": params, "fill": dict(block.example_fill)}
    output = signature.outputs[0].name
    if block.fills:  # then it is a part of attention
        use = {"use": "attention@1", "params": {"heads": 2}, "fill": {block.fills: use}}
        wired, output = {"x": "f[B T 16]"}, "y"
    node = {**use, "in": {name: name for name in wired}}
    spec = {"format": 1, "name": "alone", "axes": {"B": "batch", "T": "time", "S": "time"}}
    rest = {"inputs": wired, "outputs": {"y": f"only.{output}"}}
    return {**spec, **rest, "nodes": {"only": node}}


def resized(block: BlockType, name: str, value: Any) -> BlockType:
    """Return a block whose example inputs have another size where a param sets that size."""
    if (block.name, name) in MULTIPLES:
        inputs = {port: text.replace("T", "120*T") for port, text in block.example_inputs.items()}
        return replace(block, example_inputs=inputs)
    old = getattr(block.params.model_validate(dict(block.example)), name)
    if block.name not in SIZED or not isinstance(old, int):
        return block
    sizes = re.compile(rf"(?<![0-9]){old}(?![0-9])")
    inputs = {port: sizes.sub(str(value), text) for port, text in block.example_inputs.items()}
    return replace(block, example_inputs=inputs)


VALUES: dict[tuple[str, str], list[Any]] = {
    ("elementwise", "y"): ["g * x - z", "x + g + z"],
    ("elementwise", "values"): [{"by": 2.0}, {"by": 3.0}],
    ("elementwise", "functions"): [{"f": "gelu"}, {"f": "silu"}],
    ("elementwise", "axes"): [{"g": "b t", "x": "b t d", "z": "b t d"}],
    ("einsum", "y"): ["b t k, b s k -> b s t", "b t k, b s k -> t b s"],
    ("argmax", "y"): ["b t v -> b v", "b t v -> t v"],
    ("gather", "y"): ["b t w, b t -> b t", "... v, ... -> ..."],
    ("parameter", "shape"): [[2, 5], [4]],
    ("reduce", "y"): ["b t d -> d", "b t d -> t d"],
    ("reduce", "mask"): ["b t"],
    ("softmax", "y"): ["... t d", "b t h"],
    ("softmax", "over"): ["b", "d"],
    ("softmax", "mask"): ["b t"],
    ("concatenate", "names"): [("z", "x")],
    ("split", "names"): [("y", "rest"), ("left", "right")],
    ("split", "sizes"): [(4, 4), (1, 7)],
}
"""Values of params that are not numbers or one of a few words."""
GIVEN: dict[tuple[str, str], dict[str, Any]] = {
    ("elementwise", "values"): {"y": "by * g * x - z"},
    ("elementwise", "functions"): {"y": "f(g * x - z)"},
    ("elementwise", "size"): {"y": "where(g > x + z, 1, 0)", "kind": "label"},
    ("parameter", "learned"): {"shape": [3, 5], "rows": True, "init": "ones"},
    ("attention", "cache"): {"heads": 2, "causal": True},
    ("dot_attention", "causal"): {"gain": "none"},
    ("slice", "index"): {"axis": "time"},
    ("convolution", "padding"): {"d_out": 6, "kernel": 3},
    ("depthwise_convolution", "padding"): {"kernel": 3},
    ("gated_convolution", "padding"): {"d_out": 6, "kernel": 3},
    ("separable_convolution", "padding"): {"d_out": 6, "kernel": 3},
    ("rotary", "scaling"): {"factor": 2.0, "original_length": 64},
}
"""Other params beside a param that excludes those of the example."""
SIZED = ("patch_embedding", "delta_rule")
"""Blocks with params that set the size of their inputs."""
MULTIPLES = {
    ("pool", "every"),
    ("convolution", "stride"),
    ("depthwise_convolution", "stride"),
    ("gated_convolution", "stride"),
    ("separable_convolution", "stride"),
}
"""Params that divide the length of a sequence."""
GIVEN_BY_SIZES = {
    ("einsum", "sizes"),
    ("scan", "carry"),
    ("softmax", "causal"),
    ("argmax", "mask"),
}
"""Params of which only one value fits the sizes of the inputs."""


@pytest.mark.parametrize(
    "block", [b for b in registry() if b.params.model_fields], ids=lambda block: block.key
)
def test_every_param_of_a_block_is_in_the_fingerprint(block: BlockType, graph_of: GraphOf) -> None:
    """Otherwise a checkpoint could be loaded into a different function."""
    params = dict(block.example)
    usual = fingerprint(graph_of(alone(block, params)))
    for name in block.params.model_fields:
        if (block.name, name) in GIVEN_BY_SIZES:
            continue
        fitting = []
        for value in others(block, name, params):
            given = GIVEN.get((block.name, name), {**params, name: value})
            with contextlib.suppress(SpecError, ValidationError):
                spec = loaded(alone(resized(block, name, value), {**given, name: value}))
                # Alone, some params have no effect, which `check` otherwise reports.
                fitting.append(check(spec.form, registry(), checked=True))

        prints = {fingerprint(graph) for graph in fitting}

        assert fitting, name
        assert len(prints) == len(fitting), name
        assert usual not in prints, name
