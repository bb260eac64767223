"""A spec that extends several variants of one spec, together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.specs.findings import Finding, SpecError
from weft.specs.load import load
from weft.specs.reader import SHIPPED, find

ROOT: dict[str, Any] = {
    "format": 1,
    "name": "root",
    "params": {"width": 4, "copies": 3},
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B width]"},
    "outputs": {"y": "stack.x"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B width]"},
            "outputs": {"x": "map.y"},
            "nodes": {
                "map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=width"}},
            },
        }
    },
    "nodes": {"stack": {"repeat": 3, "block": "layer", "carry": ["x"], "in": {"x": "x"}}},
}


def patch(select: str, **params: Any) -> dict[str, Any]:
    """Return a patch that sets params."""
    return {"select": select, "set": {f"params.{name}": value for name, value in params.items()}}


FILES: dict[str, dict[str, Any]] = {
    "unbiased": {"patch": [patch("stack.*.map", bias=False)]},
    "biased": {"patch": [patch("stack.0.map", bias=True)]},
    "wide": {"params": {"width": 8}},
    "wider": {"params": {"width": 16}},
    "last": {
        "patch": [
            {"select": "stack.2.map", "insert_after": {"norm": {"use": "rms_norm@1"}}},
            {"select": "/", "set": {"init": [{"select": "stack.2.map", "zeros": True}]}},
        ],
    },
    "extra": {"blocks": {"more": ROOT["blocks"]["layer"]}},
    "another": {"blocks": {"more": {**ROOT["blocks"]["layer"], "doc": "Another one."}}},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a spec and its variants, each in a file of its own."""
    (tmp_path / "root.json").write_text(json.dumps(ROOT), encoding="utf-8")
    for name, keys in FILES.items():
        value = {"format": 1, "extends": "root", "name": name, **keys}
        (tmp_path / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")
    deep = {"format": 1, "extends": "wide", "name": "deep"}
    (tmp_path / "deep.json").write_text(json.dumps(deep), encoding="utf-8")
    return tmp_path


def child(folder: Path, *extends: Any, **keys: Any) -> dict[str, Any]:
    """Return the merged value of a spec that extends some variants."""
    value = {"format": 1, "extends": [*extends], "name": "child", **keys}
    (folder / "child.json").write_text(json.dumps(value), encoding="utf-8")
    return load(folder / "child.json").value()


def findings(folder: Path, *extends: Any, **keys: Any) -> tuple[Finding, ...]:
    """Return what is wrong with a spec that extends some variants."""
    with pytest.raises(SpecError) as error:
        child(folder, *extends, **keys)
    return tuple(error.value.findings)


def test_all_variants_apply_whatever_their_order(folder: Path) -> None:
    """Copy 2 has a norm, and its map has no bias, as those of the other copies."""
    value = child(folder, "last", "unbiased", "wide")
    again = child(folder, "wide", "unbiased", "last")

    assert value == again
    assert value["params"] == {"width": 8, "copies": 3}
    copies = {2: value["blocks"][value["nodes"]["stack"]["instead"]["2"]]["nodes"]}
    copies[0] = value["blocks"]["layer"]["nodes"]
    assert [nodes["map"]["params"]["bias"] for nodes in copies.values()] == [False, False]
    assert "norm" in copies[2]
    assert "norm" not in copies[0]
    assert value["init"] == [{"select": "stack.2.map", "zeros": True}]


def test_a_child_patches_what_the_variants_made(folder: Path) -> None:
    """Its patches read them, and its params replace theirs."""
    more = [patch("stack.2.norm", eps=1e-3)]
    value = child(folder, "last", "wide", patch=more, params={"width": 2})

    template = value["blocks"][value["nodes"]["stack"]["instead"]["2"]]
    assert template["nodes"]["norm"]["params"] == {"eps": 1e-3}
    assert value["params"]["width"] == 2


def test_each_part_has_the_file_of_its_variant(folder: Path) -> None:
    """As findings and provenance show."""
    child(folder, "unbiased", "wide")
    loaded = load(folder / "child.json")

    bias = loaded.origin_of("/blocks/layer/nodes/map/params/bias")
    assert (Path(bias[0]).name, bias[1]) == ("unbiased.json", "/patch/0/set/params.bias")
    assert Path(loaded.origin_of("/params/width")[0]).name == "wide.json"
    assert Path(loaded.origin_of("/params/copies")[0]).name == "root.json"


def test_variants_may_differ_on_a_param_that_the_child_sets(folder: Path) -> None:
    """Otherwise, none of the two values is right."""
    assert child(folder, "wide", "wider", params={"width": 6})["params"]["width"] == 6
    [finding] = findings(folder, "wide", "wider")
    assert (finding.code, finding.at) == ("X03", "/extends")
    assert finding.problem == "variants contradict each other over param 'width'"
    assert [line.rpartition("/")[2] for line in finding.evidence] == [
        "wide.json: 8",
        "wider.json: 16",
    ]


@pytest.mark.parametrize(
    ("extends", "code", "at", "problem"),
    [
        (["unbiased", "biased"], "X03", "/extends", "contradict each other over 'params.bias'"),
        (["extra", "another"], "X04", "/extends", "contradict each other over template 'more'"),
        (["wide", "wide"], "S07", "/extends/1", "is named twice"),
        (["wide", "deep"], "S07", "/extends/1", "variants of different specs"),
        (["wide", "root"], "S07", "/extends/1", "extends no single spec"),
        (["wide", "wdie"], "N08", "/extends/1", "unknown spec 'wdie'"),
        (["wide"], "S04", "/extends", "a list of several"),
        (["wide", 3], "S04", "/extends", "a list of several"),
        ([], "S04", "/extends", "a list of several"),
        (["wide", "child"], "S07", "/extends/1", "itself extends this spec"),
    ],
)
def test_what_cannot_be_combined_is_reported_at_its_name(
    folder: Path, extends: list[Any], code: str, at: str, problem: str
) -> None:
    """One finding, in the file that combines the variants."""
    [finding] = findings(folder, *extends)

    assert (finding.code, finding.at) == (code, at)
    assert problem in finding.problem
    assert Path(finding.source).name == "child.json"


def test_a_mistake_in_a_variant_is_reported_in_its_file(folder: Path) -> None:
    """As if it were loaded alone."""
    value = {"format": 1, "extends": "root", "name": "wrong", "patch": [patch("stack.9.map", a=1)]}
    (folder / "wrong.json").write_text(json.dumps(value), encoding="utf-8")

    [finding] = findings(folder, "wide", "wrong")

    assert (finding.code, finding.at, Path(finding.source).name) == (
        "X09",
        "/patch/0/select",
        "wrong.json",
    )


@pytest.mark.parametrize("name", ["models/mask-predict", "objectives/mask-predict"])
def test_a_shipped_spec_is_named_with_its_folder(name: str) -> None:
    """A model and an objective have this name."""
    assert find(name, "objectives", "models") == SHIPPED / f"{name}.json"
