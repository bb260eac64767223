"""Tests of loading specs with parents and overrides."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from weft.specs.findings import Finding, InputError, SpecError
from weft.specs.load import LONGEST_CHAIN, load, load_child, loaded, parse_overrides

if TYPE_CHECKING:
    from collections.abc import Callable

    Write = Callable[..., Path]

ROOT: dict[str, Any] = {
    "format": 1,
    "name": "root",
    "params": {"d": 4, "d_out": 8, "layers": 2},
    "axes": {"B": "batch"},
    "inputs": {"x": "f[B d]"},
    "outputs": {"y": "map.y"},
    "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=d_out"}}},
}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a spec or a child spec and returns its path."""

    def file(name: str, extends: str = "", **keys: Any) -> Path:
        head = {"format": 1, "name": name, "extends": extends} if extends else ROOT
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**head, "name": name, **keys}), encoding="utf-8")
        return path

    return file


def findings_of(path: Path) -> list[Finding]:
    """Return the findings of loading a file."""
    with pytest.raises(SpecError) as error:
        _ = load(path).form
    return list(error.value.findings)


def only(path: Path) -> tuple[str, str, str, str]:
    """Return code, file, pointer and help of the only finding."""
    [finding] = findings_of(path)
    return finding.code, Path(finding.source).name, finding.at, finding.help


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big", "transformer-tiny"])
def test_a_shipped_name_loads(name: str) -> None:
    """Without a path, from the package folder."""
    assert load(name).form.name == name


def test_a_misspelled_name_suggests_the_nearest() -> None:
    """The error suggests the nearest name."""
    with pytest.raises(InputError) as error:
        load("transformer-bas")

    assert error.value.help == "did you mean 'transformer-base'?"


def test_a_child_takes_its_parents_params() -> None:
    """The child's params override the parent's; the others are inherited."""
    base, big = load("transformer-base").form, load("transformer-big").form

    assert {k for k in base.params if base.params[k] != big.params[k]} == {
        "d_model",
        "heads",
        "dropout",
    }
    assert big.nodes == base.nodes
    assert big.doc != base.doc


def test_a_chain_of_children(write: Write) -> None:
    """The nearest file overrides the others."""
    write("root")
    write("middle", "root", params={"d": 5, "layers": 3})
    leaf = write("leaf", "middle", params={"layers": 4})

    assert load(leaf).form.params == {"d": 5, "d_out": 8, "layers": 4}


def test_too_long_a_chain_is_refused(write: Write) -> None:
    """The longest allowed chain loads, one more spec does not."""
    write("root")
    names = ["root", *(f"n{i}" for i in range(1, LONGEST_CHAIN + 1))]
    paths = [write(name, parent) for parent, name in itertools.pairwise(names)]

    assert load(paths[-2]).form.name == names[LONGEST_CHAIN - 1]
    assert only(paths[-1])[0] == "S07"


def test_a_circle_is_refused(write: Write) -> None:
    """The finding is in the file that closes the cycle."""
    write("a", "b")
    write("b", "c")

    assert only(write("c", "a"))[:3] == ("S07", "b.json", "/extends")


def test_a_spec_that_extends_itself_is_refused(write: Write) -> None:
    """The shortest cycle."""
    assert only(write("a", "a"))[:3] == ("S07", "a.json", "/extends")


def test_a_file_named_like_a_shipped_spec_may_extend_it(write: Write) -> None:
    """A local transformer-base may extend the shipped one."""
    mine = write("transformer-base", "transformer-base", params={"layers": 2})

    assert load(mine).form.params["layers"] == 2


@pytest.mark.parametrize(
    "name",
    [
        *("../root", "/etc/passwd", "a/root", "..", ".root", "a\\root", "root\0", "x" * 500, ""),
        *("~root", "http:root", "-root"),
    ],
)
def test_no_path_leads_out_of_the_folder(name: str, write: Write, tmp_path: Path) -> None:
    """Only the plain name of a file in the folder or of a shipped spec is accepted."""
    write("root")
    inner = tmp_path / "inner"
    inner.mkdir()
    child = inner / "child.json"
    child.write_text(json.dumps({"format": 1, "name": "child", "extends": name}))

    assert only(child)[:3] == ("N08", "child.json", "/extends")


def test_a_link_to_a_parent_is_not_followed(write: Write, tmp_path: Path) -> None:
    """A symbolic link could point anywhere."""
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "root.json").write_text(json.dumps(ROOT))
    (tmp_path / "root.json").symlink_to(secret / "root.json")

    assert only(write("child", "root"))[0] == "N08"


def test_an_unknown_param_is_found_in_the_child(write: Write) -> None:
    """The finding names the child's file and suggests the nearest param of the parent."""
    write("root")
    child = write("child", "root", params={"layrs": 3, "d": 3, "zzz": 1})

    assert [(f.code, Path(f.source).name, f.at, f.help) for f in findings_of(child)] == [
        ("P04", "child.json", "/params/layrs", "did you mean 'layers'?"),
        ("P04", "child.json", "/params/zzz", "known: d, d_out, layers"),
    ]


def test_all_mistakes_of_a_childs_form_come_at_once(tmp_path: Path) -> None:
    """Unknown keys, missing keys and values of a wrong type."""
    path = tmp_path / "child.json"
    path.write_text(
        '{"extends": 5, "params": [], "nodes": {}, "docs": "", "blocks": 1, "patch": {}}'
    )

    assert [(f.code, f.at) for f in findings_of(path)] == [
        ("S03", "/nodes"),
        ("S03", "/docs"),
        ("S04", ""),
        ("S04", ""),
        ("S04", "/extends"),
        ("S04", "/params"),
        ("S04", "/blocks"),
        ("S04", "/patch"),
    ]


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("params", [1], "/params"),
        ("nodes", 3, "/nodes"),
        ("doc", [], "/doc"),
    ],
)
def test_a_mistake_of_the_parent_is_found_in_the_parent(
    key: str, value: Any, place: str, write: Write
) -> None:
    """The finding is in the parent's file, not in the child's."""
    write("root", **{key: value})
    write("middle", "root")

    code, file, at, _ = only(write("child", "middle"))

    assert (file, at) == ("root.json", place)
    assert code in ("S04", "N06")


def test_a_wrong_name_of_the_child_is_found_in_the_child(write: Write, tmp_path: Path) -> None:
    """The finding is in the file that wrote the key."""
    write("root")
    child = tmp_path / "child.json"
    child.write_text('{"format": 1, "name": "my child", "extends": "root"}')

    assert only(child)[:3] == ("N06", "child.json", "/name")


def test_a_parent_with_invalid_json_is_named(write: Write, tmp_path: Path) -> None:
    """The finding is in the parent's file, not at the reference to it."""
    (tmp_path / "root.json").write_text("{")

    assert only(write("child", "root"))[:2] == ("S01", "root.json")


@pytest.mark.parametrize("text", ["[]", "3", '{"format": 1}'])
def test_a_parent_that_is_not_a_spec(text: str, write: Write, tmp_path: Path) -> None:
    """The parent gives findings, not a crash."""
    (tmp_path / "root.json").write_text(text)

    assert {Path(f.source).name for f in findings_of(write("child", "root"))} == {"root.json"}


@pytest.mark.parametrize(
    ("at", "file"),
    [
        ("", "root.json"),
        ("/nodes/map", "root.json"),
        ("/params/d_out", "root.json"),
        ("/params/d", "child.json"),
        ("/params/d/use", "child.json"),
        ("/name", "child.json"),
        ("/names", "root.json"),
        ("/params/layers", "overrides"),
        ("/params/layers/use", "overrides"),
        ("/params/layers2", "root.json"),
    ],
)
def test_a_finding_is_placed_in_the_file_that_wrote_the_value(
    at: str, file: str, write: Write
) -> None:
    """`d` is the child's and `d_out` the parent's, despite the common prefix."""
    write("root")
    spec = load(write("child", "root", params={"d": 3}), {"layers": 7})

    placed = spec.place(Finding(code="P01", at=at, problem="wrong"))

    assert Path(placed.source).name == file
    assert (placed.code, placed.at, placed.problem) == ("P01", at, "wrong")


def test_a_chain_may_patch_at_each_level(write: Write) -> None:
    """Each patch selects in the result of the previous level."""
    write("root")
    new = {"drop": {"use": "dropout@1", "params": {"dropout": 0.5}}}
    write("middle", "root", patch=[{"select": "map", "insert_after": new}])
    patch = {"select": "drop", "set": {"params.dropout": 0.25}}
    leaf = load(write("leaf", "middle", patch=[patch]))

    assert leaf.form.model_dump(by_alias=True, exclude_unset=True)["nodes"] == {
        **ROOT["nodes"],
        "drop": {"use": "dropout@1", "params": {"dropout": 0.25}, "in": {"x": "map.y"}},
    }
    places = [
        leaf.origin_of(f"/nodes/{at}") for at in ("map/use", "drop/use", "drop/params/dropout")
    ]
    assert [(Path(file).name, at) for file, at in places] == [
        ("root.json", "/nodes/map/use"),
        ("middle.json", "/patch/0/insert_after/drop/use"),
        ("leaf.json", "/patch/0/set/params.dropout"),
    ]


def test_a_patch_that_breaks_the_form_is_found_where_it_is_written(write: Write) -> None:
    """In the child, or in a spec in the middle of the chain."""
    write("root")
    broken = write("middle", "root", patch=[{"select": "map", "set": {"parms.bias": True}}])

    wrong = ("S03", "middle.json", "/patch/0/set/parms.bias", "did you mean 'params'?")
    assert only(broken) == wrong
    assert only(write("leaf", "middle")) == wrong
    assert only(write("other", "middle", patch=[{"select": "map", "set": {"doc": ""}}])) == wrong


def test_a_template_of_the_child_needs_a_new_name(write: Write) -> None:
    """An existing template is changed by a patch."""
    template = {"inputs": {"x": "f[B d]"}, "outputs": {"x": "x"}, "nodes": {}}
    write("root", blocks={"layer": template})
    write("middle", "root", blocks={"other": template})

    for name in ("layer", "other"):
        child = write("child", "middle", blocks={name: template})
        help_ = f"give it another name, or patch '/blocks/{name}'"
        assert only(child) == ("X04", "child.json", f"/blocks/{name}", help_)


def test_a_loaded_spec_returns_the_written_value(write: Write) -> None:
    """The merged value has no defaults filled in."""
    assert load(write("root")).value() == {**ROOT, "name": "root"}
    merged = load(write("child", "root", params={"d": 5}), {"layers": 9}).value()
    assert merged == {**ROOT, "name": "child", "params": {**ROOT["params"], "d": 5}}


def test_a_child_in_memory_extends_a_loaded_spec(write: Write) -> None:
    """Overrides are retained, and origins point to both files."""
    write("root")
    parent = load(write("child", "root", params={"d": 5}), {"layers": 9})
    patch = [{"select": "map", "set": {"params.bias": False}}]
    child = {"format": 1, "extends": "child", "name": "x", "patch": patch}
    spec = load_child(parent, child, "<x>")

    assert spec.overrides == {"layers": 9}
    assert spec.origin_of("/nodes/map/params/bias") == ("<x>", "/patch/0/set/params.bias")
    assert spec.origin_of("/params/layers") == ("overrides", "/params/layers")
    assert Path(spec.origin_of("/params/d")[0]).name == "child.json"
    assert Path(spec.origin_of("/nodes")[0]).name == "root.json"


def test_a_spec_without_parents_is_its_own_source(write: Write) -> None:
    """Every finding is in the one file."""
    path = write("root")

    assert load(path).place(Finding(code="P01", at="/nodes", problem="x")).source == str(path)


def test_a_value_in_memory_is_a_spec_too() -> None:
    """For programs that generate specs."""
    assert loaded(ROOT).form == loaded(ROOT).form
    assert loaded(ROOT).source == "<memory>"


@pytest.mark.parametrize(
    ("text", "name", "value"),
    [
        ("layers=4", "layers", 4),
        ("order=pre", "order", "pre"),
        ("order = pre", "order", " pre"),
        ('order="pre"', "order", "pre"),
        ("dropout=0.1", "dropout", 0.1),
        ("bias=true", "bias", True),
        ("d_k=null", "d_k", None),
        ('f={"use": "relu@1"}', "f", {"use": "relu@1"}),
        ("d_ff==4*d_model", "d_ff", "=4*d_model"),
        ("text=a=b", "text", "a=b"),
        ("text=", "text", ""),
        ("x=NaN", "x", "NaN"),
        ("x=1e999", "x", "1e999"),
        ("data.source=a.txt", "data.source", "a.txt"),
    ],
)
def test_an_override_is_json_or_else_a_word(text: str, name: str, value: Any) -> None:
    """As typed in a shell."""
    assert parse_overrides([text]) == {name: value}


@pytest.mark.parametrize("text", ["layers", "=4", ""])
def test_an_override_without_a_name_or_a_sign_is_refused(text: str) -> None:
    """The help shows the correct form."""
    with pytest.raises(InputError) as error:
        parse_overrides([text])

    assert error.value.help == "write --set layers=4"


@pytest.mark.parametrize(
    ("text", "code"), [('x={"a": 1, "a": 2}', "S02"), ("x=" + "[" * 10**5, "S06")]
)
def test_an_override_is_read_as_strictly_as_a_file(text: str, code: str) -> None:
    """Duplicate keys and deep nesting are errors, not strings."""
    with pytest.raises(SpecError) as error:
        parse_overrides([text])

    assert [finding.code for finding in error.value.findings] == [code]


def test_the_last_override_of_a_name_counts() -> None:
    """So that a later argument can override a shell alias."""
    assert parse_overrides(["a=1", "b=2", "a=3"]) == {"a": 3, "b": 2}


def test_a_param_that_a_patch_reads_in_an_output_type_is_a_param(tmp_path: Path) -> None:
    """As in the types of inputs."""
    parent = {
        "format": 1,
        "name": "parent",
        "axes": {"B": "batch"},
        "inputs": {"x": "f[B 4]"},
        "outputs": {"y": "x"},
        "nodes": {},
    }
    patch = [{"select": "/", "set": {"output_types.y": "f[B k]"}}]
    child = {"format": 1, "name": "c", "extends": "parent", "params": {"k": 4}, "patch": patch}
    (tmp_path / "parent.json").write_text(json.dumps(parent))
    (tmp_path / "c.json").write_text(json.dumps(child))

    assert load(tmp_path / "c.json").form.output_types == {"y": "f[B k]"}


SHARED = {"extends": "mask-predict"}
"""A model and an objective are called so."""


@pytest.mark.parametrize(
    ("change", "kind", "deployed"),
    [
        ({}, "", None),
        ({}, "objectives", "model"),
        ({"extends": "objectives/mask-predict"}, "", "model"),
        ({"extends": "models/mask-predict"}, "objectives", None),
        ({"patch": [{"select": "words", "set": {"params.label_smoothing": 0.2}}]}, "", "model"),
        ({"patch": [{"select": "encoder", "set": {"repeat": 2}}]}, "", None),
    ],
)
def test_a_name_that_a_model_and_an_objective_share_is_taken_as_meant(
    change: dict[str, Any], kind: str, deployed: str | None, write: Write
) -> None:
    """By its folder, by a run that trains it, or by what the patches select."""
    assert load(write("child", **{**SHARED, **change}), kind=kind).form.deploy == deployed


def test_a_mistake_names_both_specs_of_a_shared_name(write: Write) -> None:
    """The objective has a node that resembles what was written, and the model does not."""
    patch = [
        {"select": "model", "set": {"in.target": "target"}},
        {"select": "wurds", "set": {"doc": "x"}},
    ]

    with pytest.raises(SpecError) as error:
        load(write("child", **SHARED, patch=patch))

    other = "'mask-predict' was taken for 'objectives/mask-predict'; there is 'models/mask-predict'"
    assert any(other in line for one in error.value.findings for line in one.evidence)
