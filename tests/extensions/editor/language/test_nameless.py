"""Tests of the digest of a graph that does not depend on the names inside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from weft.extensions.editor.language.nameless import nameless
from weft.runtime.spec.check import graph_of
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

if TYPE_CHECKING:
    from collections.abc import Callable


SPEC = """{
  "format": 1,
  "name": "small",
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
        "second": {
          "use": "sublayer@1",
          "in": {"x": "first.y"},
          "fill": {"f": {"use": "inner"}}
        }
      }
    },
    "inner": {
      "inputs": {"x": "f[B T width]"},
      "outputs": {"y": "map.y"},
      "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=width"}}}
    }
  },
  "nodes": {
    "table": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": "=width"}},
    "stack": {"repeat": "=copies", "block": "layer", "carry": ["x"], "in": {"x": "table.y"}},
    "head": {"use": "linear@1", "in": {"x": "stack.x"}, "params": {"d_out": 10}}
  }
}"""
NODES = '"nodes": {\n    "table"'
TIED = (NODES, '"tie": [["table.weight", "head.weight"]],\n  ' + NODES)
TIED_INSIDE = (
    NODES,
    '"tie": [["stack.0.first.weight", "stack.1.second.f.map.weight"]],\n  ' + NODES,
)
ZEROS = (NODES, '"init": [{"select": "stack.0.first", "zeros": true}],\n  ' + NODES)


@pytest.fixture
def digest() -> Callable[..., str]:
    """Return a function that maps changes of the text to the digest of the changed spec."""

    def made(*changes: tuple[str, str]) -> str:
        text = SPEC
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        return nameless(graph_of(loaded(json.loads(text))), {"T", "L"})

    return made


@pytest.mark.parametrize("tied", [(), (TIED_INSIDE,)], ids=["plain", "tied"])
@pytest.mark.parametrize(
    "changes",
    [
        [('"small"', '"other"')],
        [("first", "up"), ("map", "product")],
        [('"layer"', '"level"'), ('"inner"', '"deep"')],
        [("stack", "body"), ("table", "words")],
        [("width", "d"), ("copies", "n")],
        [('"T"', '"L"'), ("B T", "B L")],
    ],
    ids=lambda changes: changes[0][0] if isinstance(changes, list) else None,
)
def test_names_do_not_count(
    digest: Callable[..., str], tied: tuple[tuple[str, str], ...], changes: list[tuple[str, str]]
) -> None:
    """Those of the spec, of nodes, templates and params, and of the axes that are left out."""
    assert digest(*tied, *changes) == digest(*tied)


def test_what_is_computed_counts(digest: Callable[..., str]) -> None:
    """Params, wires, ports, ties and initial values, also of one copy or inside a slot."""
    other = (ZEROS[0], ZEROS[1].replace("stack.0", "stack.1"))
    inner = (TIED_INSIDE[0], TIED_INSIDE[1].replace("stack.1", "stack.2"))
    different = [
        digest(),
        digest(('"d_out": 10', '"d_out": 11')),
        digest(('"y": "head.y"', '"y": "head.y", "z": "stack.x"')),
        digest(('"y": "head.y"', '"y": "head.y", "z": "table.y"')),
        digest(('"outputs": {"y": "head', '"outputs": {"scores": "head')),
        digest(('"copies": 3', '"copies": 4')),
        digest(('"use": "sublayer@1",', '"use": "sublayer@1", "params": {"order": "pre"},')),
        digest(('"d_model": "=width"}}', '"d_model": "=width"}, "frozen": true}')),
        *(digest(change) for change in (TIED, TIED_INSIDE, inner, ZEROS, other)),
    ]

    assert len({*different}) == len(different)


@pytest.mark.parametrize("name", ["translation", "r-drop-translation", "distillation"])
def test_objectives_have_the_digests_of_their_models(name: str) -> None:
    """Another value of a param is another objective, whose models stay what they are."""
    path = str(shipped_names("objectives")[name])

    def digest(**params: Any) -> str:
        return nameless(graph_of(load(path, params)))

    assert digest() == digest()
    assert digest() != digest(label_smoothing=0.2)
