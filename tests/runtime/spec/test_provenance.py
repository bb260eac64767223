"""Provenance: the origin of every value of the full form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.graphs.ir.canonical import canonical
from weft.runtime.cli.main import main
from weft.runtime.spec.check import graph_of
from weft.runtime.spec.provenance import provenance
from weft.specs.load import load
from weft.specs.reader import shipped_names

Capture = pytest.CaptureFixture[str]
PARENT = str(shipped_names("models")["transformer-base"])
CHILD: dict[str, Any] = {
    "format": 1,
    "extends": "transformer-base",
    "name": "child",
    "params": {"layers": 4, "small": "=d_ff//4"},
    "patch": [
        {"select": "encoder.2.feed_forward/f", "set": {"params.d_ff": "=small"}},
        {"select": "head", "insert_before": {"norm": {"use": "layer_norm@1"}}},
        {"select": "decoder", "set": {"doc": "It.", "carry": ["x"]}},
    ],
}


@pytest.fixture
def child(tmp_path: Path) -> Path:
    """Return the file of a child with patches."""
    path = tmp_path / "child.json"
    path.write_text(json.dumps(CHILD))
    return path


def leaves(value: Any, at: str = "") -> set[str]:
    """Return the pointers of all values in a JSON value that are not objects or lists."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return {leaf for key, inner in items for leaf in leaves(inner, f"{at}/{key}")}
    return {at}


def test_every_leaf_of_the_full_form_has_its_origin(child: Path) -> None:
    """Every leaf has an entry with its value, and files and pointers that resolve."""
    loaded = load(child, {"d_model": 256})
    graph = graph_of(loaded)
    full = canonical(graph)
    found = provenance(graph, loaded)
    files = {str(child): CHILD, PARENT: json.loads(Path(PARENT).read_text())}

    ends = {leaf for leaf in leaves(full) if "/carry/" not in leaf}
    assert found.keys() == ends | {f"/nodes/{name}/carry" for name in ("encoder", "decoder")}
    for at, entry in found.items():
        value: Any = full
        for part in at.split("/")[1:]:
            value = value[int(part)] if isinstance(value, list) else value[part]
        assert entry["value"] == value
        for one in (entry, *entry.get("reads", {}).values()):
            if one.get("file", "overrides") != "overrides":
                here: Any = files[one["file"]]
                for part in one["pointer"].split("/")[1:]:
                    here = here[int(part)] if isinstance(here, list) else here[part]


def of(child: Path, at: str, **overrides: Any) -> dict[str, Any]:
    """Return the origin of one value."""
    loaded = load(child, overrides)
    return provenance(graph_of(loaded), loaded)[at]


def test_a_default_is_the_blocks(child: Path) -> None:
    """The origin of a default is the block, not a file."""
    at = "/blocks/decoder_layer/nodes/cross_attention/fill/f/params/causal"

    assert of(child, at) == {"value": False, "how": "default", "of": "attention@1"}


def test_an_expression_shows_all_its_origins(child: Path) -> None:
    """For a split copy: the patch, the child's param, the parent's, and an override."""
    at = "/blocks/encoder_layer_2/nodes/feed_forward/fill/f/params/d_ff"

    assert of(child, at, d_model=256) == {
        "value": 256,
        "how": "expression",
        "file": str(child),
        "pointer": "/patch/0/set/params.d_ff",
        "expression": "=small",
        "reads": {
            "small": {
                "value": 256,
                "how": "expression",
                "file": str(child),
                "pointer": "/params/small",
                "expression": "=d_ff//4",
            },
            "d_ff": {
                "value": 1024,
                "how": "expression",
                "file": PARENT,
                "pointer": "/params/d_ff",
                "expression": "=4*d_model",
            },
            "d_model": {
                "value": 256,
                "how": "override",
                "file": "overrides",
                "pointer": "/params/d_model",
            },
        },
    }


@pytest.mark.parametrize(
    ("at", "file", "pointer"),
    [
        ("/name", "child", "/name"),
        ("/doc", "parent", "/doc"),
        ("/nodes/encoder/instead/2", "child", "/patch/0/select"),
        ("/nodes/decoder/carry", "child", "/patch/2/set/carry"),
        ("/nodes/encoder/carry", "parent", "/nodes/encoder/carry"),
        ("/nodes/norm/use", "child", "/patch/1/insert_before/norm/use"),
        ("/nodes/head/in/x", "child", "/patch/1/insert_before/norm"),
        ("/inputs/source", "parent", "/inputs/source"),
        ("/blocks/encoder_layer_2/inputs/x", "parent", "/blocks/encoder_layer/inputs/x"),
        ("/tie/0/1", "parent", "/tie/0/1"),
        ("/step/axis", "parent", "/step/axis"),
    ],
)
def test_a_value_names_its_file_and_place(at: str, file: str, pointer: str, child: Path) -> None:
    """The origin is the child's patch or the parent."""
    entry = of(child, at)

    assert (entry["file"], entry["pointer"]) == (str(child) if file == "child" else PARENT, pointer)


def test_a_type_shows_the_params_that_it_reads(child: Path) -> None:
    """The entry has the written type and the params' values."""
    entry = of(child, "/inputs/source")

    assert (entry["how"], entry["expression"]) == ("expression", "ids:vocab[B S]")
    assert {name: read["value"] for name, read in entry["reads"].items()} == {"vocab": 37000}


def test_an_overridden_block_choice_has_its_origin(child: Path) -> None:
    """The block and its params come from the override."""
    choice = {"use": "learned_position@1", "params": {"max_length": 77}}
    use = of(child, "/nodes/source_position/use", position=choice)
    length = of(child, "/nodes/source_position/params/max_length", position=choice)

    assert use["reads"]["position"]["how"] == "override"
    assert length == {
        "value": 77,
        "how": "override",
        "file": "overrides",
        "pointer": "/params/position/params/max_length",
    }


def test_the_command_prints_a_line_for_each_value(child: Path, capsys: Capture) -> None:
    """Short file names are listed at the top; JSON has the same entries."""
    assert main(["expand", str(child), "--provenance", "--set", "layers=5"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert f"transformer-base.json: {PARENT}" in lines
    assert (
        "/nodes/encoder/repeat  5  <- transformer-base.json#/nodes/encoder/repeat  =layers; "
        "layers = 5 <- --set layers"
    ) in lines
    assert (
        "/blocks/encoder_layer/nodes/feed_forward/params/eps  1e-06  <- default of sublayer@1"
    ) in lines
    assert '/nodes/norm/use  "layer_norm@1"  <- child.json#/patch/1/insert_before/norm/use' in lines

    assert main(["expand", str(child), "--provenance", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    graph = graph_of(load(child))
    assert printed["spec"] == json.loads(json.dumps(canonical(graph)))
    assert printed["provenance"].keys() == provenance(graph, load(child)).keys()


def test_files_with_the_same_name_have_full_paths(tmp_path: Path, capsys: Capture) -> None:
    """A user's transformer-base.json and the shipped one have full paths."""
    path = tmp_path / "transformer-base.json"
    path.write_text(json.dumps({**CHILD, "name": "transformer-base", "patch": [], "params": {}}))

    assert main(["expand", str(path), "--provenance"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f'/name  "transformer-base"  <- {path}#/name' in lines
    assert f'/axes/B  "batch"  <- {PARENT}#/axes/B' in lines


def test_a_template_in_a_slot_has_its_origins(tmp_path: Path) -> None:
    """The template is named in the slot or by a param; inner values come from the template."""
    wide = {
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "map.y"},
        "nodes": {"map": {"use": "feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": 16}}},
    }
    for use, params in (("wide", {}), ("=inner", {"params": {"inner": {"use": "wide"}}})):
        outer = {
            "use": "sublayer@1",
            "fill": {"f": {"use": "sublayer@1", "fill": {"f": {"use": use}}}},
        }
        value = {
            "format": 1,
            "name": "slots",
            "axes": {"B": "batch", "T": "time"},
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"y": "outer.y"},
            "blocks": {"wide": wide},
            "nodes": {"outer": {**outer, "in": {"x": "x"}}},
            **params,
        }
        path = tmp_path / "slots.json"
        path.write_text(json.dumps(value))
        loaded = load(path)
        graph = graph_of(loaded)
        found = provenance(graph, loaded)

        at = "/blocks/wide/nodes/map/params/d_ff"
        assert found[at] == {"value": 16, "how": "written", "file": str(path), "pointer": at}
        assert found["/nodes/outer/fill/f/fill/f/use"]["value"] == "wide"
        assert {leaf for leaf in leaves(canonical(graph)) if "/carry/" not in leaf} == found.keys()


def test_a_description_may_begin_like_an_expression(tmp_path: Path) -> None:
    """Its text is not evaluated, so it reads no params."""
    path = tmp_path / "a.json"
    value = json.loads(Path(PARENT).read_text())
    path.write_text(json.dumps({**value, "doc": "=(x) is =d_model"}))
    loaded = load(path)

    entry = provenance(graph_of(loaded), loaded)["/doc"]

    assert entry == {
        "value": "=(x) is =d_model",
        "how": "written",
        "file": str(path),
        "pointer": "/doc",
    }
