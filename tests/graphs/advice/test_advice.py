"""Tests of warnings: what is unusual is reported once, and a spec can say that it is meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.advice import CHECKS, advise
from weft.graphs.checker.check import check
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names
from weft.specs.text_edits import edited

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from weft.specs.findings import Finding

WARNINGS = json.loads((Path(__file__).parent / "warnings.json").read_text(encoding="utf-8"))
NAMES = shipped_names("models", "variants")


def warnings_of(spec: Mapping[str, Any]) -> list[Finding]:
    """Return the warnings about a correct spec."""
    return advise(check(loaded(spec).form, registry()))


@pytest.mark.parametrize("warning", WARNINGS, ids=lambda warning: warning["name"])
def test_an_unusual_spec_gives_one_warning(
    warning: Mapping[str, Any], edit: Callable[..., dict[str, Any]]
) -> None:
    """With its code, its place and the usual way."""
    spec = edit(warning.get("edit", {}), warning.get("remove", ()))

    [found] = warnings_of(spec)

    assert (found.code, found.at, found.level) == (warning["code"], warning["at"], "warning")
    assert warning["help"] in found.help


@pytest.mark.parametrize("code", CHECKS)
def test_a_spec_can_allow_a_warning(code: str, edit: Callable[..., dict[str, Any]]) -> None:
    """By its code; every kind of warning has a case in the table."""
    warning = next(each for each in WARNINGS if each["code"] == code)
    edits = {**warning.get("edit", {}), "/allow": [code]}

    assert warnings_of(edit(edits, warning.get("remove", ()))) == []


@pytest.mark.integration
@pytest.mark.parametrize("name", NAMES)
def test_no_shipped_spec_has_a_warning(name: str) -> None:
    """Without exceptions of its own."""
    graph = check(load(name).form, registry())

    assert advise(graph) == []
    assert graph.spec.allow == ()


def test_a_child_inherits_what_its_parent_allows(tmp_path: Path) -> None:
    """And adds its own; the place of a wrong entry is in the child's file."""
    parent = {"format": 1, "name": "parent", "extends": "transformer-base", "allow": ["D02"]}
    child = {"format": 1, "name": "child", "extends": "parent", "allow": ["D03", "D99"]}
    (tmp_path / "parent.json").write_text(json.dumps(parent))
    (tmp_path / "child.json").write_text(json.dumps(child))

    spec = load(tmp_path / "child.json")

    assert spec.form.allow == ("D02", "D03", "D99")
    assert spec.origin_of("/allow/0") == (str(tmp_path / "parent.json"), "/allow/0")
    assert spec.origin_of("/allow/2") == (str(tmp_path / "child.json"), "/allow/1")


def test_exceptions_do_not_change_the_fingerprint(edit: Callable[..., dict[str, Any]]) -> None:
    """They say nothing about what the model computes; the full form keeps them."""
    from weft.graphs.ir.canonical import canonical, fingerprint  # noqa: PLC0415

    plain, excepted = (check(loaded(edit(e)).form, registry()) for e in ({}, {"/allow": ["D02"]}))

    assert fingerprint(plain) == fingerprint(excepted)
    assert canonical(excepted)["allow"] == ["D02"]


def test_a_norm_behind_dropout_ends_a_pre_norm_stack(edit: Callable[..., dict[str, Any]]) -> None:
    """Blocks without weights are looked through, and so is a second stack of the same kind."""
    pre = {
        "/blocks/decoder_layer/nodes/feed_forward/params/order": "pre",
        "/nodes/more": {
            "repeat": 2,
            "block": "decoder_layer",
            "carry": ["x"],
            "in": {"x": "decoder.x", "memory": "encoder.x", "mask": "source_mask"},
        },
        "/nodes/drop": {"use": "dropout@1", "in": {"x": "more.x"}, "params": {"dropout": 0.1}},
    }
    normed = {**pre, "/nodes/norm": {"use": "layer_norm@1", "in": {"x": "drop.y"}}}

    assert warnings_of(edit({**normed, "/nodes/head/in/x": "norm.y"})) == []
    found = warnings_of(edit({**pre, "/nodes/head/in/x": "drop.y"}))
    assert [(each.code, each.at) for each in found] == [("D06", "/nodes/more")]


def test_a_value_is_followed_once_however_many_sums_read_it(
    edit: Callable[..., dict[str, Any]],
) -> None:
    """Each of 60 sums reads the one before twice, so that there are 2^60 ways to the norm."""
    sums = {"/blocks/decoder_layer/nodes/feed_forward/params/order": "pre"}
    last = "decoder.x"
    for number in range(60):
        sums[f"/nodes/sum_{number}"] = {
            "use": "elementwise@1",
            "in": {"x": last, "z": last},
            "params": {"y": "x + z"},
        }
        last = f"sum_{number}.y"
    normed = {**sums, "/nodes/norm": {"use": "layer_norm@1", "in": {"x": last}}}

    assert warnings_of(edit({**normed, "/nodes/head/in/x": "norm.y"})) == []
    assert [each.code for each in warnings_of(edit({**sums, "/nodes/head/in/x": last}))] == ["D06"]


def test_a_template_is_looked_at_once_however_often_it_is_used(
    count_calls: Callable[[Callable[[], object]], int],
) -> None:
    """Each of 16 templates uses the next one twice, so that the spec has 65,000 nodes."""
    ports = {"inputs": {"x": "f[B T 8]"}, "outputs": {"x": "b.x"}}
    norm = {"use": "layer_norm@1", "in": {"x": "x"}}
    blocks: dict[str, Any] = {"t0": {**ports, "outputs": {"x": "a.y"}, "nodes": {"a": norm}}}
    for number in range(1, 16):
        below = f"t{number - 1}"
        nodes = {"a": {"use": below, "in": {"x": "x"}}, "b": {"use": below, "in": {"x": "a.x"}}}
        blocks[f"t{number}"] = {**ports, "nodes": nodes}
    spec = {
        "format": 1,
        "name": "doubling",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "a.x"},
        "blocks": blocks,
        "nodes": {"a": {"use": "t15", "in": {"x": "x"}}},
    }
    graph = check(loaded(spec).form, registry())

    assert count_calls(lambda: advise(graph)) < 5_000


@pytest.mark.parametrize(
    "warning",
    [each for each in WARNINGS if each["code"] in ("D04", "D06") or each["help"] == "remove it"],
    ids=lambda warning: warning["name"],
)
def test_a_fix_leaves_no_warning(
    warning: Mapping[str, Any], edit: Callable[..., dict[str, Any]]
) -> None:
    """Of a mask that hides what is known, a stack without a norm, and an idle exception."""
    text = json.dumps(edit(warning.get("edit", {}), warning.get("remove", ())))
    [found] = warnings_of(json.loads(text))
    assert found.fix is not None

    assert warnings_of(json.loads(edited(text, found.fix.edits))) == []


def test_the_norm_of_the_fix_is_that_of_the_stack(edit: Callable[..., dict[str, Any]]) -> None:
    """RMS norm with its own epsilon, between the stack and every reader, also an output."""
    stack = "/blocks/decoder_layer/nodes/feed_forward/params"
    spec = edit(
        {
            f"{stack}/order": "pre",
            f"{stack}/norm": "rms_norm",
            f"{stack}/eps": 1e-5,
            "/outputs/states": "decoder.x",
            "/nodes/decoder_norm": {
                "use": "elementwise@1",
                "in": {"x": "decoder.x"},
                "params": {"y": "relu(x)"},
            },
            "/nodes/head/in/x": "decoder_norm.y",
        }
    )
    [found] = warnings_of(spec)
    assert found.fix is not None

    fixed = json.loads(edited(json.dumps(spec), found.fix.edits))

    norm = {"use": "rms_norm@1", "in": {"x": "decoder.x"}, "params": {"eps": 1e-5}}
    assert fixed["nodes"]["decoder_norm_"] == norm
    assert fixed["outputs"]["states"] == "decoder_norm_.y"
    assert fixed["nodes"]["decoder_norm"]["in"] == {"x": "decoder_norm_.y"}
    assert fixed["nodes"]["head"] == spec["nodes"]["head"]
    assert warnings_of(fixed) == []


def _attending(inputs: Mapping[str, str], wires: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """Return an encoder of one attention, with further inputs, wires, and keys of its node."""
    embedding = {"use": "embedding@1", "in": {"ids": "words"}, "params": {"d_model": 8}}
    attention = {"use": "attention@1", "in": {"x": "embedding.y", **wires}, "params": {"heads": 2}}
    return {
        "format": 1,
        "name": "attending",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"words": "ids:50[B T]", **inputs},
        "outputs": {"y": "attention.y"},
        "nodes": {"embedding": embedding, "attention": attention | more},
    }


ADDED = {"fill": {"score": {"use": "elementwise@1", "params": {"y": "x + z"}}}}
_AXES = {"x": "b h t s", "z": "t s"}
NAMED = {"fill": {"score": {"use": "elementwise@1", "params": {"y": "x + z", "axes": _AXES}}}}


@pytest.mark.parametrize(
    ("inputs", "wires", "more"),
    [
        ({"bias": "bias[B T T]"}, {"bias": "bias"}, {}),
        ({"distances": "f[B 2 T T]"}, {"z": "distances"}, ADDED),
        ({"distances": "bias[B 2 T T]"}, {"z": "distances"}, ADDED),
        ({"distances": "f[T T]"}, {"z": "distances"}, NAMED),
    ],
    ids=["one bias of all heads", "one of each head", "of kind bias", "one of all rows"],
)
def test_an_input_of_pairs_of_positions_tells_their_order(
    inputs: Mapping[str, str], wires: Mapping[str, str], more: Mapping[str, Any]
) -> None:
    """As the learned biases of distances in the encoder of T5, or those of ALiBi."""
    assert warnings_of(_attending(inputs, wires, **more)) == []


def test_a_bias_computed_from_the_contents_tells_no_order() -> None:
    """A product of the vectors at two positions is the same wherever these are."""
    spec = _attending({}, {"bias": "products.y"})
    spec["nodes"]["products"] = {
        "use": "einsum@1",
        "in": {"x": "embedding.y", "z": "embedding.y"},
        "params": {"y": "b t d, b s d -> b t s"},
    }
    spec["nodes"]["attention"]["in"]["bias"] = "bias.y"
    spec["nodes"]["bias"] = {
        "use": "elementwise@1",
        "in": {"x": "products.y"},
        "params": {"y": "tanh(x)", "kind": "bias"},
    }

    assert [warning.code for warning in warnings_of(spec)] == ["D03"]
