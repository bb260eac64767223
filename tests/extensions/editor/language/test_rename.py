"""Renaming through patches and files.

What is the same after a renaming is decided by networkx on the expanded graphs, not by the digest
with which the engine proves it.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
import weft
from weft.extensions.editor.language.definitions import apply
from weft.extensions.editor.language.document import document
from weft.extensions.editor.language.names import names
from weft.extensions.editor.language.rename import Renaming, dependents, renamable, rename
from weft.extensions.interop.export.flat import flat_graph
from weft.graphs.ir.graph import BlockNode, Graph
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED, shipped_names, with_texts

pytestmark = pytest.mark.filterwarnings("ignore:The hashes produced for directed graphs")
PARENT = """{
  "format": 1,
  "name": "parent",
  "params": {"width": 8, "copies": 3},
  "axes": {"B": "batch", "T": "time"},
  "inputs": {"ids": "ids:10[B T]"},
  "outputs": {"y": "head.y"},
  "blocks": {
    "layer": {
      "inputs": {"x": "f[B T width]"},
      "outputs": {"x": "second.y"},
      "nodes": {
        "first": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=width"}},
        "second": {"use": "linear@1", "in": {"x": "first.y"}, "params": {"d_out": "=width"}}
      }
    }
  },
  "nodes": {
    "table": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": "=width"}},
    "stack": {"repeat": "=copies", "block": "layer", "carry": ["x"], "in": {"x": "table.y"}},
    "head": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": 10}}
  }
}
"""
CHILD = """{
  "format": 1,
  "extends": "parent",
  "name": "child",
  "params": {"copies": 4},
  "patch": [
    {"select": "stack.1.first", "insert_after": {"norm": {"use": "rms_norm@1"}}},
    {"select": "stack.0.second", "set": {"in.x": "first.y", "params.bias": false}},
    {"select": "/blocks/layer", "set": {"nodes.first.params.bias": false}},
    {"select": "/", "set": {
      "nodes.sum": {"use": "elementwise@1", "in": {"x": "stack.x", "z": "table.y"},
                    "params": {"y": "x + z"}},
      "nodes.head.in.x": "sum.y"
    }}
  ]
}
"""
GRANDCHILD = """{
  "format": 1,
  "extends": "child",
  "name": "grandchild",
  "params": {"width": 16},
  "patch": [
    {"select": "stack.1.norm", "remove": true, "through": "x"},
    {"select": "**.first[use=linear@1]", "set": {"params.bias": true}}
  ]
}
"""
IMPORTER = """{
  "format": 1,
  "name": "importer",
  "axes": {"B": "batch", "T": "time"},
  "inputs": {"ids": "ids:10[B T]"},
  "outputs": {"y": "tower.y"},
  "blocks": {"tower": {"spec": "parent", "params": {"copies": 2}}},
  "nodes": {"tower": {"use": "tower", "in": {"ids": "ids"}}}
}
"""
FILES = {"parent": PARENT, "child": CHILD, "grandchild": GRANDCHILD, "importer": IMPORTER}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a spec and three that depend on it."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.json").write_text(text)
    return tmp_path


def _renamed(folder: Path, at: str, new: str, file: str = "parent", **more: Any) -> Renaming:
    """Rename the name at `|`, and write the files."""
    path = folder / f"{file}.json"
    text, plain = path.read_text(), at.replace("|", "", 1)
    assert plain in text
    offset = text.index(plain) + at.index("|")
    made = rename(text, offset, new, str(path), **more)
    for each, edits in made.edits.items():
        each.write_text(apply(made.texts[each], edits))
    return made


def _seen(graph: Graph) -> tuple[str, Counter[tuple[int, ...]], int]:
    """Return what does not depend on names: the expanded graph, the shapes, the parameters."""
    flat = flat_graph(graph)
    plain = nx.DiGraph()
    for path, data in flat.nodes(data=True):
        node = data["node"]
        known = node.part if isinstance(node, BlockNode) else None
        label = f"{known.key} {known.params} {sorted(known.fill)}" if known else data["kind"]
        plain.add_node(path, label=label)
    for start, end, data in flat.edges(data=True):
        inner = flat.nodes[start]["kind"] == flat.nodes[end]["kind"] == "block"
        wires = sorted((wire["port"], wire["value"]) for wire in data["wires"]) if inner else []
        plain.add_edge(start, end, wires=str(wires))
    digest = nx.weisfeiler_lehman_graph_hash(plain, "wires", "label", iterations=8)
    return digest, Counter(graph.weights().values()), graph.parameters()


def _graphs(folder: Path, stems: Any) -> dict[str, tuple[str, Counter[tuple[int, ...]], int]]:
    return {stem: _seen(weft.load(folder / f"{stem}.json").graph()) for stem in stems}


@pytest.mark.parametrize(
    ("at", "new", "edits"),
    [
        # the key, a wire; two selections, a wire, a dotted key; the selection with `**`
        ('"fi|rst": {', "up", {"parent": 2, "child": 3, "grandchild": 1}),
        ('"sec|ond": {', "down", {"parent": 2, "child": 1}),
        # the key, a wire, a wire of a patch; the root of a path
        ('"ta|ble": {', "words", {"parent": 2, "child": 1}),
        ('"sta|ck": {', "body", {"parent": 2, "child": 3, "grandchild": 1}),
        ('"he|ad": {', "last", {"parent": 2, "child": 1}),
        ('"lay|er": {', "level", {"parent": 2, "child": 1}),
        ('"cop|ies": 3', "depth", {"parent": 2, "child": 1, "importer": 1}),
        ('"wi|dth": 8', "d_model", {"parent": 5, "grandchild": 1}),
        ('"inputs": {"i|ds"', "tokens", {"parent": 2, "importer": 1}),
        ('"outputs": {"|y"', "scores", {"parent": 1, "importer": 1}),
        ('"T|": "time"', "L", {"parent": 3}),
    ],
)
def test_a_renaming_follows_patches_and_imports(
    folder: Path, at: str, new: str, edits: dict[str, int]
) -> None:
    """Counted by hand; every file has the same graph as before."""
    before = _graphs(folder, FILES)
    made = _renamed(folder, at, new)
    assert {file.stem: len(each) for file, each in made.edits.items()} == edits
    assert made.notes == []
    assert _graphs(folder, FILES) == before


def test_a_renaming_follows_the_rules_for_initial_weights(folder: Path) -> None:
    """A rule selects templates by `/blocks/NAME`, and in its conditions."""
    rules = [
        {"select": "/blocks/layer", "weights": "weight", "normal": 0.5},
        {"select": "stack.*[use=layer]", "weights": "bias", "zeros": True},
        {"select": "**[block=layer][use=layer]", "weights": "bias", "zeros": True},
    ]
    start = PARENT.index('"nodes": {\n    "table"')
    text = f'{PARENT[:start]}"init": {json.dumps(rules)},\n  {PARENT[start:]}'
    (folder / "parent.json").write_text(text)
    before = _graphs(folder, FILES)

    made = _renamed(folder, '"lay|er": {', "level")

    assert {file.stem: len(each) for file, each in made.edits.items()} == {"parent": 6, "child": 1}
    assert _graphs(folder, FILES) == before


def test_every_use_of_an_axis_is_found() -> None:
    """Also that of the segments of an objective."""
    text = (
        '{"axes": {"B": "batch", "T": "time"}, "inputs": {"x": "f[B T 4]"},'
        ' "step": {"axis": "T"}, "segments": {"axis": "T", "memory": 8}}'
    )
    found = [one.start for one in names(document(text, "one.json")) if one.name == "T"]

    assert found == [index for index, char in enumerate(text) if char == "T"]


def test_a_param_named_like_a_function_is_found_where_it_is_read() -> None:
    """A call of the function is not the param."""
    text = '{"params": {"min": 2}, "require": ["min(min, 3) == 2"], "nodes": {}}'
    found = [one.start for one in names(document(text, "one.json")) if one.name == "min"]

    assert found == [text.index('min"'), text.index("min, 3")]


@pytest.mark.parametrize(
    ("file", "at", "edits"),
    [
        ("child", '"stack.1.fir|st"', {"parent": 2, "child": 3, "grandchild": 1}),
        ("child", '"cop|ies": 4', {"parent": 2, "child": 1, "importer": 1}),
        ("grandchild", '"wi|dth": 16', {"parent": 5, "grandchild": 1}),
        ("child", '{"no|rm": {', {"child": 1, "grandchild": 1}),
        ("grandchild", '"stack.1.no|rm"', {"child": 1, "grandchild": 1}),
    ],
)
def test_a_renaming_begins_at_any_use(
    folder: Path, file: str, at: str, edits: dict[str, int]
) -> None:
    """The file that defines the name is changed too."""
    before = _graphs(folder, FILES)
    made = _renamed(folder, at, "other", file)
    assert {each.stem: len(inner) for each, inner in made.edits.items()} == edits
    assert _graphs(folder, FILES) == before


@pytest.mark.parametrize(
    ("select", "at", "new", "problem"),
    [
        # a pattern that no longer matches, one that matches more, and one that means two nodes
        ("f*", '"fi|rst": {', "up", "selects nothing"),
        ("sec*", '"fi|rst": {', "secret", "another model"),
        ("**.first", '"fi|rst": {', "up", "another model"),
    ],
)
def test_a_renaming_that_a_wildcard_makes_unsafe_is_refused(
    folder: Path, select: str, at: str, new: str, problem: str
) -> None:
    """The message names the file; no file is changed."""
    where = select if "." in select else f"stack.*.{select}"
    text = CHILD[: CHILD.index("    {")]
    text += f'    {{"select": "{where}", "set": {{"params.bias": false}}}}\n  ]\n}}\n'
    (folder / "child.json").write_text(text)
    (folder / "grandchild.json").unlink()
    if select == "**.first":
        other = (
            '"first": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": "=width"}}'
        )
        text = PARENT.replace('"head": {', f'{other},\n    "head": {{').replace(
            '"head": {"use": "linear@1", "in": {"x": "stack.x"}',
            '"head": {"use": "linear@1", "in": {"x": "first.y"}',
        )
        (folder / "parent.json").write_text(text)
    with pytest.raises(InputError, match=problem) as raised:
        _renamed(folder, at, new)
    assert "child.json" in str(raised.value)
    assert where in raised.value.help or "by hand" in raised.value.help


def test_a_name_that_a_dependent_adds_is_taken(folder: Path) -> None:
    """The child inserts a node `norm` next to `second`."""
    with pytest.raises(InputError, match=r"'child\.json' would be wrong.*'norm' exists"):
        _renamed(folder, '"sec|ond": {', "norm")


def test_a_file_with_mistakes_is_left_with_a_message(folder: Path) -> None:
    """Nothing can be proven of it."""
    (folder / "child.json").write_text(CHILD.replace('"first.y"', '"frist.y"'))
    made = _renamed(folder, '"wi|dth": 8', "d_model")
    assert made.notes == [
        "child.json has mistakes and is left as it is",
        "grandchild.json has mistakes and is left as it is",
    ]
    assert {file.stem for file in made.edits} == {"parent"}


def test_texts_of_the_editor_count_before_those_on_the_disk(folder: Path) -> None:
    """A child that is not saved yet, and a parent that is changed while it is not saved."""
    child = folder / "child.json"
    texts = {child.resolve(): CHILD.replace("stack.1.first", "stack.2.first")}
    made = _renamed(folder, '"fi|rst": {', "up", texts=texts)
    assert "stack.2.up" in child.read_text()
    assert made.notes == ["grandchild.json has mistakes and is left as it is"]  # stack.1.norm


def test_runs_set_params_and_are_told_of_other_names(folder: Path) -> None:
    """A param of the held spec is renamed; a selection of the run is left with a message."""
    run = SHIPPED / "runs" / "demo.json"
    text = (
        run.read_text().replace("transformer-tiny", "parent").replace('"layers": 3', '"copies": 2')
    )
    text = text.replace('"updates": 500', '"freeze": ["model.stack.*.first"],\n  "updates": 500')
    (folder / "run.json").write_text(text)
    _renamed(folder, '"cop|ies": 3', "depth")
    assert '"depth": 2' in (folder / "run.json").read_text()
    made = _renamed(folder, '"fi|rst": {', "up")
    [note] = made.notes
    assert note.startswith("run.json has 'model.stack.*.first' at /freeze/0")


def test_specs_of_other_folders_are_found_in_the_workspace(folder: Path) -> None:
    """Only a shipped spec can be extended from another folder, so another parent is not ours."""
    (folder / "deep").mkdir()
    for name in ("parent", "child"):
        shutil.copy(folder / f"{name}.json", folder / "deep")
    found = dependents(folder / "parent.json", {}, [folder])
    assert {file.name for file in found} == {"child.json", "grandchild.json", "importer.json"}
    base = SHIPPED / "models" / "transformer-base.json"
    (folder / "deep" / "mine.json").write_text('{"extends": "transformer-base"}')
    (folder / ".hidden").mkdir()
    shutil.copy(folder / "deep" / "mine.json", folder / ".hidden" / "mine.json")
    found = dependents(base, {}, [folder])
    assert [file.parent.name for file in found if file.name == "mine.json"] == ["deep"]
    assert {"transformer-gqa", "transformer-tiny", "demo"} <= {file.stem for file in found}


def test_a_shipped_spec_is_not_changed_from_outside(folder: Path) -> None:
    """A child may not rename what it inherits from it."""
    text = '{"format": 1, "extends": "transformer-base", "name": "mine", "params": {"heads": 4},\n'
    text += '"patch": [{"select": "head", "set": {"params.bias": false}}]}'
    for name in ('"heads"', '"head"'):
        path = str(folder / "mine.json")
        assert renamable(text, text.index(name) + 2, path) is None
        with pytest.raises(InputError, match="no name to rename"):
            rename(text, text.index(name) + 2, "other", path)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with copies of all shipped specs, which then extend each other there."""
    made = tmp_path_factory.mktemp("shipped")
    for path in shipped_names("objectives", "models", "variants").values():
        shutil.copy(path, made)
    return made


def _rename_or_refuse(text: str, offset: int, new: str, path: Path) -> Renaming | None:
    try:
        return rename(text, offset, new, str(path))
    except InputError:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("stem", sorted(shipped_names("models", "variants")))
def test_renamings_of_shipped_specs_change_nothing_else(shipped: Path, stem: str) -> None:
    """One name of each kind: refused with a way out, or all files have the same graph."""
    path = shipped / f"{stem}.json"
    text, choose = path.read_text(), random.Random(stem)
    defined = [one for one in names(document(text, str(path))) if one.defines]
    for kind in sorted({one.kind for one in defined}):
        one = choose.choice([each for each in defined if each.kind == kind])
        new = f"{one.name}Q" if kind == "axis" else f"q_{one.name}"
        made = _rename_or_refuse(text, one.start, new, path)
        if made is None:
            continue
        changed = {file: apply(made.texts[file], edits) for file, edits in made.edits.items()}
        assert path in changed
        family = [file for file in made.texts if document(made.texts[file], str(file)).valid]
        before = _graphs(shipped, [file.stem for file in family])
        with with_texts({file.resolve(): inner for file, inner in changed.items()}):
            assert _graphs(shipped, [file.stem for file in family]) == before


def test_a_selection_with_many_stars_is_compared_in_bounded_time() -> None:
    """Backtracking would try every way to divide the name among them."""
    stars = "*".join("a" * 13) + "b"
    text = PARENT.replace('"stack"', f'"{"a" * 40}"').replace('"stack.x"', f'"{"a" * 40}.x"')
    text = text.replace(
        '"outputs": {"y": "head.y"},',
        f'"outputs": {{"y": "head.y"}}, "init": [{{"select": "{stars}.**", "normal": 0.1}}],',
        1,
    )

    assert any(one.name == "first" for one in names(document(text, "parent.json")))


def test_files_that_cannot_be_read_do_not_stop_a_renaming(tmp_path: Path) -> None:
    """Such as the lock of an editor, a link to nothing."""
    (tmp_path / "parent.json").write_text(PARENT)
    (tmp_path / ".#b.json").symlink_to(tmp_path / "nothing")
    (tmp_path / "b.json").symlink_to(tmp_path / "nothing")
    child = {"format": 1, "name": "c", "extends": "parent"}
    (tmp_path / "c.json").write_text(json.dumps(child))

    assert [*dependents(tmp_path / "parent.json", {}, [tmp_path])] == [tmp_path / "c.json"]


@pytest.mark.parametrize("params", ['"a"', "[1]"])
def test_params_of_another_type_do_not_stop_the_engine(params: str, tmp_path: Path) -> None:
    """A finding reports them; selections of patches are still matched with the parent."""
    (tmp_path / "parent.json").write_text(PARENT)
    child = f'{{"format": 1, "name": "c", "extends": "parent", "params": {params}, "patch": []}}'

    assert "nodes" in document(child, str(tmp_path / "child.json")).unpatched
