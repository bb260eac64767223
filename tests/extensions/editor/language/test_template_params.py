"""Params of templates and numbers of copies in the editor: names, renaming, completion, hover."""

from __future__ import annotations

import pytest
from weft.extensions.editor.language.completion import complete
from weft.extensions.editor.language.definitions import apply, definition
from weft.extensions.editor.language.document import document
from weft.extensions.editor.language.hover import hover
from weft.extensions.editor.language.names import name_at
from weft.extensions.editor.language.rename import rename

TEXT = """{
  "format": 1,
  "name": "stack",
  "params": {"width": 4, "d": 8},
  "axes": {"B": "batch", "T": "time"},
  "inputs": {"x": "f[B T d]"},
  "outputs": {"y": "plain.x"},
  "blocks": {
    "layer": {
      "params": {"width": null, "depth": "=2*width"},
      "inputs": {"x": "f[B T d]"},
      "outputs": {"x": "up.y"},
      "nodes": {
        "down": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=width"}},
        "up": {"use": "linear@1", "in": {"x": "down.y"}, "params": {"d_out": "=d + 0*depth"}}
      }
    }
  },
  "nodes": {
    "many": {
      "repeat": 3, "index": "copy", "block": "layer", "carry": ["x"], "in": {"x": "x"},
      "params": {"width": "=copy + width"}
    },
    "plain": {"use": "layer", "in": {"x": "many.x"}, "params": {"width": "=width"}}
  }
}
"""


def place(before: str, word: str) -> int:
    """Return the offset of a word after a text."""
    return TEXT.index(word, TEXT.index(before) + len(before))


@pytest.mark.parametrize(
    ("before", "old", "new", "changed"),
    [
        ('"layer": {', "width", "size", 5),
        ('"d_out": "', "width", "size", 5),
        ('"name": "stack"', "width", "wide", 3),
        ('"index": "', "copy", "i", 2),
    ],
    ids=["the template's param", "where it is read", "the spec's param", "the index"],
)
def test_a_renaming_keeps_names_of_other_scopes(
    before: str, old: str, new: str, changed: int
) -> None:
    """The param of the template, that of the spec, and the index have names of their own."""
    renaming = rename(TEXT, place(before, old), new, "/nowhere/stack.json")
    [edits] = renaming.edits.values()

    assert len(edits) == changed
    assert document(apply(TEXT, list(edits)), "/nowhere/stack.json").valid


def test_the_definition_of_a_param_is_that_of_its_scope() -> None:
    """The one in the template, and not that of the spec."""
    found = definition(TEXT, place('"d_out": "', "width"), "/nowhere/stack.json")

    assert found is not None
    assert found.start == TEXT.index("width", TEXT.index('"layer": {'))


def test_completion_offers_the_params_of_a_template_and_the_number_of_the_copy() -> None:
    """In the params of the repeat, and in a node of the template."""
    values = complete(TEXT, place('"width": "', "=copy") + 1, "/nowhere/stack.json")
    inside = complete(TEXT, place('"d_out": "', "=width") + 1, "/nowhere/stack.json")
    keys = complete(
        TEXT, place('"in": {"x": "many.x"}, "params": {"', "width"), "/nowhere/stack.json"
    )

    assert "=copy" in {item.label for item in values}
    assert "=depth" in {item.label for item in inside}
    assert "=copy" not in {item.label for item in inside}
    assert {item.label for item in keys} >= {"width", "depth"}


def test_a_hover_says_what_sets_a_param_of_a_template() -> None:
    """Its value differs from use to use."""
    about = hover(TEXT, place('"layer": {', "width"), "/nowhere/stack.json")
    number = hover(TEXT, place('"width": "', "copy"), "/nowhere/stack.json")

    assert "which each use sets" in getattr(about, "markdown", "")
    assert "number of the copy" in getattr(number, "markdown", "")


def test_an_index_is_a_name_of_its_repeat() -> None:
    """It is defined where `index` gives it."""
    name = name_at(document(TEXT, "/nowhere/stack.json"), place('"index": "', "copy"))

    assert name is not None
    assert (name.kind, name.scope, name.defines) == ("index", "/nodes/many", True)


def test_a_renaming_follows_a_rule_for_copies() -> None:
    """A key of `instead` may read a param."""
    node = '"repeat": 3, "index": "copy", '
    text = TEXT.replace(node, f'{node}"instead": {{"=width == copy": "layer"}}, ')
    offset = text.index("width", text.index('"params"'))
    renaming = rename(text, offset, "wide", "/nowhere/stack.json")
    [edits] = renaming.edits.values()

    assert '{"=wide == copy": "layer"}' in apply(text, list(edits))
