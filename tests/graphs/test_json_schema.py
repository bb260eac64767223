"""Tests of the JSON Schema: shipped specs are valid, misspelled ones are not."""

from __future__ import annotations

import copy
import functools
import json
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from weft.blocks.registry import registry
from weft.graphs.ir.value_type import KINDS
from weft.graphs.json_schema import DRAFT, schema
from weft.specs import imported_specs as imports
from weft.specs.form import DecodeStep, RepeatedTemplate, ShareNode, SpecForm, Template, UseNode
from weft.specs.patches import patch as patches
from weft.specs.reader import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Edit = Callable[..., dict[str, Any]]

ENCODER = "/blocks/encoder_layer/nodes"
SHIPPED_SPECS = [
    path for folder in ("models", "variants") for path in SHIPPED.glob(f"{folder}/*.json")
]
ONE = {"format": 1, "name": "one", "axes": {}, "inputs": {"x": "f[B T 8]"}, "outputs": {"y": "x"}}
"""A spec without nodes."""
CHILD = {"format": 1, "extends": "transformer-base", "name": "child"}


@functools.cache
def validator() -> jsonschema.Draft202012Validator:
    """Return a validator for our schema."""
    return jsonschema.Draft202012Validator(made())


@functools.cache
def made() -> dict[str, Any]:
    """Return our schema."""
    return schema(registry())


def wrong(spec: Any) -> list[str]:
    """Return the places of a spec that the schema rejects, each once."""
    return sorted({error.json_path for error in validator().iter_errors(spec)})


@pytest.mark.integration
def test_the_schema_is_one() -> None:
    """It is valid for the draft that it names, and all references resolve."""
    found = made()
    refs = [part.partition('"')[0] for part in json.dumps(found).split('"$ref": "#/$defs/')[1:]]

    jsonschema.Draft202012Validator.check_schema(found)
    assert found["$schema"] == DRAFT
    for ref in refs:
        inner = found["$defs"]
        for word in ref.split("/"):
            inner = inner[word.replace("~1", "/")]


@pytest.mark.integration
@pytest.mark.parametrize("path", SHIPPED_SPECS, ids=lambda path: path.stem)
def test_shipped_specs_are_valid(path: Path) -> None:
    """Models and variants."""
    assert wrong(json.loads(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("block", [*registry()], ids=lambda block: block.key)
def test_every_block_s_example_is_valid_and_its_words_are_known(block: Any) -> None:
    """All params and ports are in the schema, with descriptions."""
    node = {
        "use": block.key,
        "in": dict.fromkeys(block.example_inputs, "x"),
        "params": dict(block.example),
        "fill": dict(block.example_fill),
    }

    assert wrong({**ONE, "nodes": {"node": node}}) == []
    found = made()["$defs"]
    assert found[f"{block.key}:params"]["properties"].keys() == block.params.model_fields.keys()
    ports = found[f"{block.key}:ports"]["then"]["properties"]["in"]["properties"]
    free = block.example_fill or block.typed  # any wires are permitted
    assert block.example_inputs.keys() <= ports.keys() or free
    assert all(port["description"] for port in ports.values())
    assert block.key in found["name"]["anyOf"][0]["enum"]


@pytest.mark.integration
@pytest.mark.parametrize(
    ("at", "value", "place"),
    [
        ("/nodes/head/params/biass", True, "$.nodes.head.params"),
        ("/nodes/head/params/d_out", "5", "$.nodes.head.params.d_out"),
        ("/nodes/head/params/d_out", 0, "$.nodes.head.params.d_out"),
        ("/nodes/head/params", {"bias": True}, "$.nodes.head.params"),
        ("/nodes/head/in/xs", "decoder.x", "$.nodes.head.in"),
        ("/nodes/head/in/x", 3, "$.nodes.head.in.x"),
        ("/nodes/head/use", "liner@1", "$.nodes.head.use"),
        ("/nodes/head/use", "os.system", "$.nodes.head.use"),
        ("/nodes/head/fill", {"f": {"use": "layer_norm@1"}}, "$.nodes.head.fill"),
        ("/nodes/head 2", {"use": "dropout@1"}, "$.nodes"),
        ("/nodes/encoder/cary", ["x"], "$.nodes.encoder"),
        ("/nodes/encoder/share", "yes", "$.nodes.encoder.share"),
        (f"{ENCODER}/feed_forward/fill/f/params/d_fff", 3, ".fill.f.params"),
        (f"{ENCODER}/self_attention/fill", {}, ".self_attention.fill"),
        (f"{ENCODER}/self_attention/fill/g", {"use": "layer_norm@1"}, ".self_attention.fill"),
        ("/params/position", {"use": "learned_position@1", "param": {}}, "$.params.position"),
        (
            "/params/position",
            {"use": "learned_position@1", "params": {"max_length": 0}},
            "$.params.position.params.max_length",
        ),
        ("/inputs/source", "id:vocab[B S]", "$.inputs.source"),
        ("/inputs/source", "ids[B S]", "$.inputs.source"),
        ("/inputs/source", "mask:3[B S]", "$.inputs.source"),
        ("/blocks/encoder_layer/inputs/mask", "keep[B S]", ".inputs.mask"),
        ("/axes/B", "space", "$.axes.B"),
        ("/format", 3, "$.format"),
        ("/requires", [], "$"),
        ("/step", {"axes": "T"}, "$.step"),
    ],
)
def test_a_mistake_of_form_is_underlined(at: str, value: Any, place: str, edit: Edit) -> None:
    """A misspelled param, an unknown port and a value of the wrong type are rejected in place."""
    found = wrong(edit({at: value}))

    assert found
    assert all(path.endswith(place) for path in found)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("at", "value"),
    [
        ("/$schema", "weft.schema.json"),
        ("/nodes/head/params/d_out", "=2 * vocab"),
        ("/nodes/head/use", "=choice"),
        ("/nodes/head/use", "encoder_layer"),
        (f"{ENCODER}/self_attention/in/window", "x"),
        ("/params/position", "=other"),
        ("/inputs/source", "ids:2*vocab[B T+1]"),
        ("/blocks/encoder_layer/inputs/mask", "mask[... s]?"),
        ("/nodes/encoder/instead", {"4": "decoder_layer"}),
    ],
)
def test_the_schema_accepts_values_that_only_the_checker_can_judge(
    at: str, value: Any, edit: Edit
) -> None:
    """Expressions, templates, block choices, and wires that a slot may take."""
    assert wrong(edit({at: value})) == []


def test_the_schema_has_every_key_with_a_description() -> None:
    """Every key of a record is in the schema."""
    found = made()["$defs"]
    records = {"spec": SpecForm, "Template": Template, "DecodeStep": DecodeStep}
    nodes = {"UseNode": UseNode, "RepeatedTemplate": RepeatedTemplate, "ShareNode": ShareNode}

    for name, form in {**records, **nodes}.items():
        keys = {field.alias or key for key, field in form.model_fields.items()}
        assert found[name]["properties"].keys() - {"$schema"} == keys
    assert "Parameters of the block" in found["UseNode"]["properties"]["params"]["description"]
    assert "expression" in found["RepeatedTemplate"]["properties"]["repeat"]["description"]
    assert all(kind in found["type"]["pattern"] for kind in KINDS)


@pytest.mark.parametrize(
    "patch",
    [
        {"select": "decoder.*.self_attention/f", "expect": 6, "set": {"params.heads": 4}},
        {"select": "head", "set": {"use": "linear@1"}},
        {"select": "head", "replace": {"use": "dropout@1", "params": {"dropout": 0.1}}},
        {"select": "head", "insert_before": {"n": {"use": "layer_norm@1", "in": {"x": "@"}}}},
        {"select": "head", "insert_after": {"n": {"use": "dropout@1", "params": {"dropout": 0}}}},
        {"select": "head", "remove": True},
        {"select": "head", "remove": ["params.bias"], "through": "x"},
    ],
)
def test_a_child_with_a_sound_patch_is_valid(patch: dict[str, Any]) -> None:
    """Each action once, with its additional keys."""
    assert wrong({**CHILD, "params": {"layers": 2}, "patch": [patch]}) == []


@pytest.mark.parametrize(
    "patch",
    [
        {},
        {"select": "head"},
        {"set": {"use": "linear@1"}},
        {"select": "head", "set": {"params.bias": 1}, "remove": True},
        {"select": "head", "sett": {"params.bias": 1}},
        {"select": "head", "set": {"use": "liner@1"}},
        {"select": "head", "set": {}},
        {"select": 3, "remove": True},
        {"select": "head", "remove": False},
        {"select": "head", "expect": 0, "remove": True},
        {"select": "head", "expect": True, "remove": True},
        {"select": "head", "insert_before": {}},
        {"select": "head", "insert_before": {"n": {"use": "layer_norm@1", "params": {"d": 1}}}},
        {"select": "head", "set": {"use": "linear@1"}, "port": "x"},
    ],
)
def test_a_wrong_patch_is_underlined(patch: dict[str, Any]) -> None:
    """No action, two actions, a misspelled one, or a value of the wrong type."""
    found = wrong({**CHILD, "patch": [patch]})

    assert found
    assert all(path.startswith("$.patch[0]") for path in found)


def test_the_schema_has_every_action_of_a_patch() -> None:
    """With the additional keys of each."""
    found = made()["$defs"]["patch"]
    extra = {"select", "expect"}.union(*patches._EXTRA_KEYS.values())

    assert [action for [action] in (one["required"] for one in found["oneOf"])] == [
        *patches.ACTIONS
    ]
    assert found["properties"].keys() == extra | {*patches.ACTIONS}


def test_a_template_may_be_a_complete_spec(edit: Edit) -> None:
    """With the keys that the reader accepts, and no others."""
    properties = made()["$defs"]["block"]["then"]["properties"]

    assert properties.keys() == {*imports._KEYS}
    assert wrong(edit({"/blocks/tower": {"spec": "other", "params": {"layers": 2}}})) == []
    assert wrong(edit({"/blocks/tower": {"spec": "other", "nodes": {}}})) == ["$.blocks.tower"]


def test_nodes_and_patches_exclude_each_other(edit: Edit) -> None:
    """`extends` decides which of the two a file is."""
    whole = edit({})

    assert wrong({**CHILD, "nodes": {}}) == ["$"]
    assert wrong({**whole, "patch": []}) == ["$"]
    assert wrong({key: value for key, value in copy.deepcopy(CHILD).items() if key != "name"}) == [
        "$"
    ]


def test_exceptions_are_codes_of_warnings() -> None:
    """In a complete spec and in one that extends another; each code has a description."""
    assert wrong({**CHILD, "allow": ["D03", "D06"]}) == []
    assert wrong({**CHILD, "allow": ["T03"]}) == ["$.allow[0]"]
    items = made()["$defs"]["spec"]["properties"]["allow"]["items"]
    assert dict(zip(items["enum"], items["enumDescriptions"], strict=True))["D02"].startswith(
        "The blocks that read padding"
    )
