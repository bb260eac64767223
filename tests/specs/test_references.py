"""Tests of references: which strings of a document name something, and what."""

from __future__ import annotations

from typing import Any

import pytest
from weft.specs.references import (
    Reference,
    files_named,
    references,
    rewritten,
    templates_used,
    words_read,
)

SPEC: dict[str, Any] = {
    "params": {"d": 8, "wide": "=2*d", "map": {"use": "wider", "params": {"n": ["=d"]}}},
    "require": ["max(wide, d) > 0", "flops < d"],
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T d e]"},
    "outputs": {"y": "stack.x"},
    "output_types": {"y": "f[B 2*T d]"},
    "losses": {"y": "=d"},
    "step": {"axis": "T"},
    "segments": {"axis": "T", "memory": "=wide"},
    "deploy": "stack",
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T d]"},
            "outputs": {"x": "one.y"},
            "nodes": {"one": {"use": "=map", "in": {"x": "x"}}},
            "tie": [["one.weight", "one.bias"]],
        },
        "wider": {"inputs": {"x": "f[a]"}, "outputs": {"y": "x"}, "nodes": {}},
        "tower": {"spec": "other", "params": {"d": "=wide"}},
    },
    "nodes": {
        "stack": {
            "repeat": "=d",
            "block": "layer",
            "carry": ["x"],
            "instead": {"0": "wider"},
            "in": {"x": "again.x"},
        },
        "again": {"share": "stack", "in": {"x": "x"}},
        "slot": {"use": "sublayer@1", "fill": {"f": {"use": "wider", "params": {"p": "=d"}}}},
        "model": {"use": "=held"},
    },
    "tie": [["stack.0.one.weight", "slot/f"]],
    "init": [{"select": "**.one[use=wid*]", "scale": "=d"}, {"select": "/blocks/lay*", "zeros": 1}],
}


def at(pointer: str, spec: dict[str, Any] = SPEC) -> list[tuple[str, str, str]]:
    """Return kind, scope and name of each reference in the value at a pointer."""
    return [(r.kind, r.scope, r.name) for r in references(spec) if r.at == pointer and not r.in_key]


@pytest.mark.parametrize(
    ("pointer", "names"),
    [
        ("/params/wide", [("param", "", "d")]),
        ("/params/map/use", [("template", "", "wider")]),
        ("/params/map/params/n/0", [("param", "", "d")]),
        ("/require/0", [("param", "", "wide"), ("param", "", "d")]),
        ("/require/1", [("param", "", "d")]),
        (
            "/inputs/x",
            [("axis", "", "B"), ("axis", "", "T"), ("param", "", "d"), ("size", "", "e")],
        ),
        ("/outputs/y", [("node", "", "stack"), ("port", "/blocks/layer", "x")]),
        ("/output_types/y", [("axis", "", "B"), ("axis", "", "T"), ("param", "", "d")]),
        ("/losses/y", [("param", "", "d")]),
        ("/step/axis", [("axis", "", "T")]),
        ("/segments/axis", [("axis", "", "T")]),
        ("/segments/memory", [("param", "", "wide")]),
        ("/deploy", [("node", "", "stack")]),
        (
            "/blocks/layer/outputs/x",
            [("node", "/blocks/layer", "one"), ("port", "/blocks/wider", "y")],
        ),
        ("/blocks/layer/nodes/one/use", [("param", "", "map")]),
        ("/blocks/layer/nodes/one/in/x", [("port", "/blocks/layer", "x")]),
        ("/blocks/layer/tie/0/1", [("node", "/blocks/layer", "one")]),
        ("/blocks/tower/spec", [("file", "", "other")]),
        ("/blocks/tower/params/d", [("param", "", "wide")]),
        ("/nodes/stack/repeat", [("param", "", "d")]),
        ("/nodes/stack/block", [("template", "", "layer")]),
        ("/nodes/stack/carry/0", [("port", "/blocks/layer", "x")]),
        ("/nodes/stack/instead/0", [("template", "", "wider")]),
        ("/nodes/again/share", [("node", "", "stack")]),
        ("/nodes/again/in/x", [("input", "", "x")]),
        ("/nodes/slot/use", [("block", "", "sublayer@1")]),
        ("/nodes/slot/fill/f/use", [("template", "", "wider")]),
        ("/nodes/slot/fill/f/params/p", [("param", "", "d")]),
        ("/tie/0/0", [("node", "", "stack"), ("node", "/blocks/layer", "one")]),
        ("/tie/0/1", [("node", "", "slot")]),
        ("/init/0/select", [("node", "/blocks/layer", "one"), ("template", "", "wid*")]),
        ("/init/0/scale", [("param", "", "d")]),
        ("/init/1/select", [("template", "", "lay*")]),
    ],
)
def test_a_string_names_what_the_format_says(
    pointer: str, names: list[tuple[str, str, str]]
) -> None:
    """By docs/spec-format.md, in the order of the text."""
    assert at(pointer) == names


def test_a_reference_says_where_its_name_stands() -> None:
    """Its range of the text, or of the key, is the name."""

    def text_of(reference: Reference) -> str:
        value: Any = SPEC
        *above, last = reference.at.split("/")[1:]
        for key in above:
            value = value[int(key) if isinstance(value, list) else key]
        text = last if reference.in_key else value[int(last) if isinstance(value, list) else last]
        return str(text)

    for reference in references(SPEC):
        assert text_of(reference)[reference.start : reference.end] == reference.name


def test_keys_define_names_but_those_of_wires_and_outputs_use_them() -> None:
    """A wire's key names a port of the template that the node uses."""
    keys = {(r.at, r.kind, r.scope, r.defines) for r in references(SPEC) if r.in_key}

    assert ("/nodes/stack", "node", "", True) in keys
    assert ("/blocks/layer/inputs/x", "port", "/blocks/layer", True) in keys
    assert ("/nodes/stack/in/x", "port", "/blocks/layer", False) in keys
    assert ("/losses/y", "output", "", False) in keys
    assert not any(at.startswith("/nodes/again/in") for at, *_ in keys)


PARENT: dict[str, Any] = {
    **SPEC,
    "blocks": {name: SPEC["blocks"][name] for name in ("layer", "wider")},
    "nodes": {"stack": {**SPEC["nodes"]["stack"], "repeat": 2}, "again": SPEC["nodes"]["again"]},
}


@pytest.mark.parametrize(
    ("patch", "names"),
    [
        (
            {"select": "stack.1.one", "set": {"params.n": "=wide"}},
            {("select", "node", "stack", 0), ("select", "node", "one", 8)}
            | {("set/params.n", "param", "wide", 1)},
        ),
        (
            {"select": "/", "set": {"nodes.new.in.x": "stack.x"}},
            {("set/nodes.new.in.x", "node", "new", 6), ("set/nodes.new.in.x", "node", "stack", 0)}
            | {("set/nodes.new.in.x", "port", "x", 6)},
        ),
        (
            {"select": "/blocks/layer", "remove": ["nodes.one"]},
            {("select", "template", "layer", 8), ("remove/0", "node", "one", 6)},
        ),
        (
            {"select": "again", "insert_after": {"norm": {"use": "wider", "in": {"x": "x"}}}},
            {("select", "node", "again", 0), ("insert_after/norm", "node", "norm", 0)}
            | {("insert_after/norm/use", "template", "wider", 0)}
            | {
                ("insert_after/norm/in/x", "port", "x", 0),
                ("insert_after/norm/in/x", "input", "x", 0),
            },
        ),
        (
            {"select": "again", "replace": {"share": "stack"}},
            {("select", "node", "again", 0), ("replace/share", "node", "stack", 0)},
        ),
        (
            {"select": "stack[port=x]", "port": "x"},
            {("select", "node", "stack", 0)}
            | {("select", "port", "x", 11), ("port", "port", "x", 0)},
        ),
        ({"select": "absent["}, set()),
    ],
    ids=lambda value: value.get("select") if isinstance(value, dict) else "",
)
def test_names_of_a_patch_are_those_of_what_it_selects(
    patch: dict[str, Any], names: set[tuple[str, str, str, int]]
) -> None:
    """Also the parts of a key with dots, where each begins in the key."""
    document = {"extends": "parent", "patch": [patch]}

    written = {
        (r.at.removeprefix("/patch/0/"), r.kind, r.name, r.start)
        for r in references(document, PARENT, PARENT)
        if r.at.startswith("/patch")
    }

    assert written == names


def test_a_key_of_a_patch_defines_what_the_parent_lacks() -> None:
    """To set an entry of the parent defines nothing."""
    patch = [{"select": "/", "set": {"nodes.new": {}, "nodes.again.in": {}, "inputs.x": "f[B]"}}]

    keys = [r for r in references({"patch": patch}, PARENT, PARENT) if r.in_key]

    assert {r.name: r.defines for r in keys} == {"new": True, "again": False, "x": False}


@pytest.mark.parametrize("value", [None, 3, "x", [], [[{"spec": {}}]], {"use": 1}])
def test_what_has_a_wrong_form_is_passed_over(value: Any) -> None:
    """An editor asks at every keystroke."""
    for key in SPEC:
        assert isinstance([*references({**SPEC, key: value}, SPEC, SPEC)], list)
    for key in SPEC["nodes"]["stack"]:
        nodes = {"stack": {**SPEC["nodes"]["stack"], key: value}}
        assert isinstance([*references({"nodes": nodes}, SPEC, SPEC)], list)
    for key in ("select", "set", "remove", "replace", "insert_before", "port"):
        patch = [{"select": "stack", key: value}]
        assert isinstance([*references({"patch": patch}, SPEC, SPEC)], list)


def test_texts_are_rewritten_where_their_names_stand() -> None:
    """Two names in one text, and a name that is part of another word."""
    value = {"params": {"d": 1, "dd": "=d*dd + d"}}

    new = rewritten(value, references(value), lambda r: "width" if r.name == "d" else None)

    assert new == {"params": {"d": 1, "dd": "=width*dd + width"}}
    assert value == {"params": {"d": 1, "dd": "=d*dd + d"}}


def test_templates_are_used_in_slots_in_copies_and_by_choice() -> None:
    """`wider` is chosen by a param inside `layer`, and fills a slot."""
    nodes = SPEC["nodes"]

    assert templates_used(SPEC, {"a": nodes["slot"]}) == {"wider"}
    assert templates_used(SPEC, {"a": {"block": "layer"}}) == {"layer", "wider"}
    assert templates_used(SPEC, {"a": {"block": "layer"}}, inside=False) == {"layer"}
    assert templates_used(SPEC, {"a": nodes["again"]}) == set()


def test_names_of_a_held_spec_are_not_those_of_the_spec() -> None:
    """Its params are set by expressions of this one."""
    held = {"spec": {"params": {"a": "=b"}}, "params": {"a": "=d"}, "patch": [{"x": "=c"}]}

    assert [*words_read(held)] == ["d"]


def test_any_document_names_files() -> None:
    """A run, too: the record that names it, and the name."""
    run = {"objective": {"params": {"model": {"spec": "bert"}}}, "spec": "small", "rows": [3]}

    assert {*files_named(run)} == {("", "small"), ("/objective/params/model", "bert")}
