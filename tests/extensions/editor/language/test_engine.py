"""What the engine answers an editor: findings, completion, types, names and formatting.

`|` in a text is the place of the cursor.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.extensions.editor.language.completion import Item, complete
from weft.extensions.editor.language.definitions import apply, definition, references
from weft.extensions.editor.language.document import document
from weft.extensions.editor.language.hover import hover
from weft.extensions.editor.language.problems import findings, fix_all
from weft.extensions.editor.language.rename import rename
from weft.extensions.editor.language.symbols import symbols
from weft.specs.findings import InputError
from weft.specs.reader import SHIPPED
from weft.specs.text_edits import TextEdit

BASE = SHIPPED / "models" / "transformer-base.json"
TEXT = BASE.read_text()
CHILD = """{
  "format": 1,
  "extends": "transformer-base",
  "name": "child",
  "patch": [{"select": "**/f[use=attention@1]", "expect": 3, "set": {"params.kv_heads": 2}}]
}
"""


def _at(old: str, new: str, text: str = TEXT) -> tuple[str, int]:
    """Return a text with its first `old` replaced by `new`, and the offset of `|` in it."""
    assert old in text
    made = text.replace(old, new, 1)
    return made.replace("|", "", 1), made.index("|")


def _items(old: str, new: str, text: str = TEXT) -> dict[str, Item]:
    made, offset = _at(old, new, text)
    return {item.label: item for item in complete(made, offset, str(BASE.parent / "mine.json"))}


def _after(old: str, new: str, label: str, text: str = TEXT) -> str:
    """Return the text after an item is chosen."""
    made, _ = _at(old, new, text)
    item = _items(old, new, text)[label]
    return apply(made, [TextEdit(item.start, item.end, item.new)])


def test_every_prefix_of_a_spec_can_be_asked_about() -> None:
    """No keystroke makes the engine fail."""
    for end in range(0, len(TEXT), 397):
        text = TEXT[:end]
        findings(text, str(BASE))
        complete(text, end, str(BASE))
        hover(text, end, str(BASE))


def test_a_finding_has_the_range_of_its_key_and_a_fix_that_mends_it() -> None:
    """Editors underline the range and offer the fix."""
    text, _ = _at('"heads": "=heads"', '"hedas|": "=heads"')
    [first, *_] = findings(text, str(BASE))
    assert (first.code, first.severity, text[first.start : first.end]) == (
        "N04",
        "error",
        '"hedas"',
    )
    [fix] = first.fixes
    assert '"heads": "=heads"' in apply(text, list(fix.edits))
    assert apply(text, fix_all(text, str(BASE))) == TEXT


def test_a_finding_in_a_parent_is_shown_at_its_name(tmp_path: Path) -> None:
    """It has no place in the text of the child."""
    (tmp_path / "parent.json").write_text(TEXT.replace("linear@1", "liner@1"))
    text = CHILD.replace("transformer-base", "parent")
    found = findings(text, str(tmp_path / "child.json"))
    assert {text[one.start : one.end] for one in found} == {'"parent"'}
    assert "parent.json" in found[0].message


def test_wires_are_completed_by_type_and_without_cycles() -> None:
    """`memory` reads [B S 512]: the target is on another axis, masks are of another kind."""
    found = _items('"memory": "encoder.x"', '"memory": "|"')
    assert set(found) == {"source_embedding.y", "source_position.y", "encoder.x"}
    assert found["encoder.x"].detail == "f[B S 512]"
    cycle = _items('{"x": "source_position.y", "mask"', '{"x": "|", "mask"')
    assert "encoder.x" not in cycle
    assert "source_position.y" in cycle


def test_a_wire_that_is_not_begun_gets_its_quotes() -> None:
    """The text is broken there."""
    made = _after('"memory": "encoder.x"', '"memory": |', "encoder.x")
    assert made == TEXT


def test_blocks_are_completed_by_what_fits_the_wires_and_the_slot() -> None:
    """A mask block is not a node, and an embedding takes ids."""
    node = _items('"use": "linear@1"', '"use": "|"')
    assert node["linear@1"].rank == 0
    assert not {"embedding@1", "window_mask@1"} & node.keys()
    slot = _items('"use": "feed_forward@1"', '"use": "|"')
    assert {"feed_forward@1", "gated_feed_forward@1"} <= slot.keys()
    assert "embedding@1" not in slot


def test_params_are_completed_with_their_defaults_and_values() -> None:
    """Those that are set already are left out."""
    keys = _items('{"heads": "=heads"', '{"|", "heads": "=heads"')
    assert "heads" not in keys
    assert keys["causal"].detail == "default false"
    made = _after('{"heads": "=heads"', '{|, "heads": "=heads"', "causal")
    assert '{"causal": false, "heads"' in made
    values = _items('"order": "post"', '"order": "|"')
    assert [label for label, item in values.items() if item.rank == 0] == [
        '"post"',
        '"pre"',
        '"sandwich"',
    ]
    numbers = _items('"heads": "=heads"', '"heads": "|"')
    assert numbers["=heads"].rank < numbers["=dropout"].rank


def test_a_size_that_fits_the_wire_is_completed() -> None:
    """A key is written with it, and it is the first of the values; a kernel is no width."""
    block = '{"use": "feed_forward@1", "params": {"d_ff": "=d_ff", "dropout": "=relu_dropout"}}'
    new = '{"use": "convolution@1", "params": {|}}'
    made = _after(block, new, "d_out")
    assert made.count('"convolution@1", "params": {"d_out": "=d_model"}') == 1
    assert '"params": {"kernel": 3}' in _after(block, new, "kernel")
    values = _items(block, '{"use": "gru@1", "params": {"d_hidden": |}}')
    assert min(values.values(), key=lambda item: item.rank).new == '"=d_model"'


def test_a_word_of_an_expression_is_completed_alone() -> None:
    """The rest of the expression stays."""
    assert '"d_k": "=d_model//layers"' in _after('d_model//heads"', 'd_model//hea|"', "layers")


def test_patches_are_completed_from_the_parent() -> None:
    """A selection reads the parent's nodes, and `set` the params of what it selects."""
    keys = _items('"params.kv_heads": 2', '"|"', CHILD)
    assert "params.lora" in keys
    assert "params.d_ff" not in keys
    assert "encoder.*.self_attention/f" in _items("**/f[use=attention@1]", "|", CHILD)
    assert "transformer-base" in _items('"transformer-base"', '"|"', CHILD)


def test_a_hover_shows_the_type_and_the_shape_of_a_wire() -> None:
    """32 positions by default."""
    text, offset = _at('"memory": "encoder.x"', '"memory": "enco|der.x"')
    found = hover(text, offset, str(BASE))
    assert found is not None
    assert "`f[B S 512]`" in found.markdown
    assert "shape (1, 32, 512) for B=1, S=32" in found.markdown
    assert "18,914,304 parameters" in found.markdown  # 6 layers of 4*(512**2+512) + ...
    assert text[found.start : found.end] == "encoder.x"


def test_a_hover_documents_params_and_blocks() -> None:
    """From the contract, and the value that an expression has."""
    text, offset = _at('"heads": "=heads"', '"he|ads": "=heads"')
    found = hover(text, offset, str(BASE))
    assert found is not None
    assert "Number of heads." in found.markdown
    assert "value `8`" in found.markdown
    text, offset = _at("attention@1", "atten|tion@1")
    assert "Vaswani" in getattr(hover(text, offset, str(BASE)), "markdown", "")


def test_definitions_are_found_in_the_text_and_in_parents() -> None:
    """A node of a patch's selection is defined in the parent."""
    text, offset = _at('"block": "encoder_layer"', '"block": "enc|oder_layer"')
    place = definition(text, offset, str(BASE))
    assert place is not None
    assert place.start == TEXT.index('"encoder_layer": {') + 1
    text, offset = _at("**/f[use=attention@1]", "encoder.*.self_att|ention/f", CHILD)
    place = definition(text, offset, str(BASE.parent / "mine.json"))
    assert place is not None
    assert place.path == str(BASE)
    assert place.text[place.start : place.end] == '"self_attention"'


@pytest.mark.parametrize(
    ("at", "new", "count"),
    [
        ('"source|_embedding": {', "words", 3),  # the key, a wire, a tie
        ('"encoder|_layer": {', "layer", 2),  # the key, a repeat
        ('"d_|model": 512', "width", 9),  # sizes of types and expressions, not params of blocks
        ('"inputs": {"|x": "f[B S', "value", 6),  # a carried port has one name
        ('"S|": "time"', "L", 7),  # the key, two inputs, four ports
    ],
)
def test_a_name_is_renamed_wherever_it_is_used(
    at: str, new: str, count: int, tmp_path: Path
) -> None:
    """The renamed spec is as valid as before."""
    text, offset = _at(at.replace("|", ""), at)
    made = rename(text, offset, new, str(tmp_path / "mine.json"))
    [edits] = made.edits.values()
    assert len(edits) == count == len(references(text, offset, str(BASE)))
    assert findings(apply(text, edits), str(BASE)) == []


@pytest.mark.parametrize(
    ("at", "new", "problem"),
    [
        ('"source|_embedding": {', "head", "is taken"),
        ('"source|_embedding": {', "a-b", "is not a name"),
        ('"source|_embedding": {', "training", "would be wrong"),
        ('"use": "linear|@1"', "mine", "no name to rename"),
    ],
)
def test_a_name_that_would_break_the_spec_is_refused(
    at: str, new: str, problem: str, tmp_path: Path
) -> None:
    """Nothing is changed then."""
    text, offset = _at(at.replace("|", ""), at)
    with pytest.raises(InputError, match=problem):
        rename(text, offset, new, str(tmp_path / "mine.json"))


def test_the_outline_has_nodes_inside_templates() -> None:
    """With what they use."""
    blocks = next(one for one in symbols(TEXT, str(BASE)) if one.name == "blocks")
    encoder = blocks.children[0]
    assert [(node.name, node.detail) for node in encoder.children] == [
        ("self_attention", "sublayer@1"),
        ("feed_forward", "sublayer@1"),
    ]


def test_an_answer_is_kept_until_the_text_changes() -> None:
    """An editor asks about one text many times."""
    assert document(TEXT, str(BASE)) is document(TEXT, str(BASE))
    assert document(TEXT + " ", str(BASE)) is not document(TEXT, str(BASE))
