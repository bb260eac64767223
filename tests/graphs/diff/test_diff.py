"""Tests of diffs: every change is found, and the diff converts one graph to the other."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.diff.changes import Change, Kind
from weft.graphs.diff.diff import diff
from weft.graphs.diff.text import rows
from weft.graphs.draw.diff import diff_picture
from weft.graphs.ir.canonical import canonical
from weft.specs.load import load

from .apply import apply
from .edited import BASE, SHIPPED, Json, graph_of, renamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.diff.diff import GraphDiff
    from weft.graphs.ir.graph import Graph


PAGE = Path(__file__).parents[3] / "docs" / "format.md"


def changed(change: Callable[[Json], Any]) -> GraphDiff:
    """Return the diff caused by an edit of transformer-base's full form."""
    return diff(graph_of(BASE), graph_of(edited(change)))


def edited(change: Callable[[Json], Any]) -> Json:
    """Return transformer-base's full form after an edit."""
    spec = copy.deepcopy(BASE)
    change(spec)
    return spec


def rendered(found: GraphDiff) -> list[str]:
    """Return the lines of a diff."""
    return [str(row) for row in rows(found.changes)]


@pytest.mark.integration
@pytest.mark.parametrize("name", SHIPPED)
def test_a_graph_does_not_differ_from_itself(name: str) -> None:
    """There is no change, and every weight is carried over."""
    spec = load(name)
    found = diff(check(spec.form, registry()), check(spec.form, registry()))

    assert found.equal
    assert found.changes == ()
    assert found.weight_transfer.sizes()["carried"] == found.parameters[0] == found.parameters[1]
    assert "the same graph\n" in found.render()


def test_a_changed_param_is_listed_at_its_slot() -> None:
    """The path is that of the slot, in every copy."""
    found = changed(
        lambda s: s["blocks"]["encoder_layer"]["nodes"]["feed_forward"]["fill"]["f"][
            "params"
        ].update(d_ff=1024)
    )

    assert rendered(found) == ["~ encoder.*.feed_forward/f  d_ff 2048 -> 1024"]
    assert not found.equal
    assert found.parameters == (63_082_496, 63_082_496 - 6 * (2 * 512 * 1024 + 1024))


def test_an_inserted_node_is_added_and_its_reader_rewired() -> None:
    """One line for the node and one for the wire, in execution order."""

    def insert(spec: Json) -> None:
        spec["nodes"]["memory_norm"] = {"use": "layer_norm@1", "in": {"x": "encoder.x"}}
        spec["nodes"]["decoder"]["in"]["memory"] = "memory_norm.y"

    assert rendered(changed(insert)) == [
        "+ memory_norm  layer_norm@1, reads encoder.x",
        "> decoder  memory reads memory_norm.y, was encoder.x",
    ]


def test_another_block_is_listed_with_the_differing_params() -> None:
    """Params with the same name and value are not listed."""

    def learned(spec: Json) -> None:
        spec["nodes"]["source_position"]["use"] = "learned_position@1"
        spec["nodes"]["source_position"]["params"] = {"dropout": 0.1, "max_length": 99}

    assert rendered(changed(learned)) == [
        "~ source_position  use sinusoidal_position@1 -> learned_position@1, max_length 99"
    ]


def test_a_removed_node_is_listed_with_its_block() -> None:
    """Its readers are rewired."""

    def skip(spec: Json) -> None:
        del spec["nodes"]["target_position"]
        spec["nodes"]["decoder"]["in"]["x"] = "target_embedding.y"

    assert rendered(changed(skip)) == [
        "- target_position  sinusoidal_position@1, read target_embedding.y",
        "> decoder  x reads target_embedding.y, was target_position.y",
    ]


def test_a_copy_with_another_template_is_listed_by_number() -> None:
    """Only the differences in that copy are listed."""

    def split(spec: Json) -> None:
        spec["blocks"]["last"] = copy.deepcopy(spec["blocks"]["decoder_layer"])
        spec["blocks"]["last"]["nodes"]["self_attention"]["params"]["order"] = "pre"
        spec["nodes"]["decoder"]["instead"] = {"5": "last"}

    assert rendered(changed(split)) == [
        "~ decoder.5  template as the others -> last",
        "~ decoder.5.self_attention  order post -> pre",
    ]


def test_a_changed_repetition_is_listed_at_the_repeat() -> None:
    """Copies and shared weights; paths below a shared repeat have no index."""

    def share(spec: Json) -> None:
        spec["nodes"]["encoder"] |= {"repeat": 4, "share": True}
        spec["blocks"]["encoder_layer"]["nodes"]["self_attention"]["params"]["dropout"] = 0.2

    assert rendered(changed(share)) == [
        "~ encoder  copies 6 -> 4, share true",
        "~ encoder.self_attention  dropout 0.1 -> 0.2",
    ]


def test_changes_of_the_complete_spec_have_no_path() -> None:
    """Outputs, ties and the axis of decoding."""

    def whole(spec: Json) -> None:
        del spec["step"]
        spec["outputs"]["states"] = "decoder.x"
        spec["tie"] = [["source_embedding.weight", "target_embedding.weight"]]

    found = changed(whole)

    assert sorted(rendered(found)) == [
        "+ output states decoder.x",
        "+ tie source_embedding.weight = target_embedding.weight",
        "- decodes along T",
        "- tie source_embedding.weight = target_embedding.weight = head.weight",
    ]


def test_a_template_in_two_places_is_listed_once() -> None:
    """The other place is named after the first."""
    twice = copy.deepcopy(BASE)
    wires = {"x": "encoder.x", "mask": "source_mask"}
    twice["nodes"]["second"] = {**twice["nodes"]["encoder"], "in": wires}
    twice["nodes"]["decoder"]["in"]["memory"] = "second.x"
    other = copy.deepcopy(twice)
    other["blocks"]["encoder_layer"]["nodes"]["feed_forward"]["params"]["order"] = "pre"

    assert rendered(diff(graph_of(twice), graph_of(other))) == [
        "~ encoder.*.feed_forward (and second.*.feed_forward)  order post -> pre"
    ]


def test_a_template_with_another_name_and_the_same_nodes_is_compared_inside() -> None:
    """The new name is one line; the nodes inside are not listed as new."""
    found = changed(lambda s: renamed(s, ("encoder_layer", "reading_layer")))

    assert rendered(found) == ["~ encoder  template encoder_layer -> reading_layer"]


def test_a_changed_doc_is_not_a_difference() -> None:
    """It is in `changes`, which must be complete, but not in the text."""
    found = changed(lambda s: s.update(doc="Other words."))

    assert found.equal
    assert [change.name for change in found.changes] == ["doc"]
    assert "the same graph; only names and docs of the specs differ" in found.render()


def test_totals_are_printed_below_the_changes() -> None:
    """Before, after and growth, and the number of weights that carry over."""
    found = changed(lambda s: s["nodes"]["encoder"].update(repeat=12))

    last = found.render().splitlines()[-3:]
    assert last[0] == "parameters 63,082,496 -> 81,996,800 (+30.0 %)"
    assert last[1].startswith("FLOPs      ")
    assert last[1].endswith(" %), one forward pass of B=1 S=32 T=32")
    assert last[2] == "weights    63,082,496 of 81,996,800 carried over (76.9 %)"
    # A layer reads 32 positions: four projections, the scores, the sums, and two wide maps.
    layer = 2 * 32 * (4 * 512 * 512 + 2 * 32 * 512 + 2 * 512 * 2048)
    assert found.flops[1] - found.flops[0] == 6 * layer


def test_text_of_a_spec_is_escaped() -> None:
    """Neither a terminal nor a picture interprets text from a spec."""
    found = diff(graph_of(BASE), graph_of(BASE))
    bad = Change(kind="param", path="head", name="x", after="\x1b[31m<b>\n", node="head")

    hostile = replace(found, changes=(bad,))

    assert rendered(hostile) == ["~ head  x �[31m<b>�"]
    drawn = diff_picture(graph_of(BASE), graph_of(BASE), hostile).source
    assert "x �[31m&lt;b&gt;" in drawn
    assert "\x1b" not in drawn + hostile.render()


# Renames.


def test_renames_are_recognized_and_their_weights_carry_over() -> None:
    """For nodes, nodes in templates, and inputs; no weight is lost."""
    names = [("source_embedding", "words"), ("cross_attention", "reading"), ("source", "text")]
    found = changed(lambda s: renamed(s, *names, ("encoder", "reader")))

    assert rendered(found) == [
        "> input text was source",
        "> words  was source_embedding",
        "> reader  was encoder",
        "> decoder.*.reading  was cross_attention",
    ]
    sources = found.weight_transfer.sources
    assert sources["words.weight"] == "source_embedding.weight"
    assert sources["reader.3.feed_forward.norm.bias"] == "encoder.3.feed_forward.norm.bias"
    query = "decoder.5.{}.f.query.weight"
    assert sources[query.format("reading")] == query.format("cross_attention")
    assert [found.weight_transfer.new, found.weight_transfer.lost] == [{}, {}]


def test_every_node_may_be_renamed_at_once() -> None:
    """Nodes are matched by wiring, not by name."""
    everything = [(name, f"n{index}") for index, name in enumerate(sorted(BASE["nodes"]))]

    found = changed(lambda s: renamed(s, *everything))

    assert {change.kind for change in found.changes} == {"renamed", "tie"}
    assert sum(change.kind == "renamed" for change in found.changes) == len(BASE["nodes"])


def test_equal_nodes_are_matched_by_their_readers() -> None:
    """Two norms of one value are matched by their readers."""
    spec: Json = {
        "format": 1,
        "name": "twins",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "wide.y", "z": "slim.y"},
        "nodes": {
            "a": {"use": "layer_norm@1", "in": {"x": "x"}},
            "b": {"use": "layer_norm@1", "in": {"x": "x"}},
            "wide": {"use": "linear@1", "in": {"x": "a.y"}, "params": {"d_out": 9}},
            "slim": {"use": "linear@1", "in": {"x": "b.y"}, "params": {"d_out": 2}},
        },
    }
    other = copy.deepcopy(spec)
    renamed(other, ("a", "second"), ("b", "first"), ("wide", "broad"))

    found = diff(graph_of(spec), graph_of(other))

    names = {change.after: change.before for change in found.changes if change.kind == "renamed"}
    assert names == {"second": "a", "first": "b", "broad": "wide"}


def test_another_name_with_another_param_is_not_a_rename() -> None:
    """All other parts must be equal."""

    def change(spec: Json) -> None:
        renamed(spec, ("head", "scores"))
        spec["nodes"]["scores"]["params"]["bias"] = True

    kinds = [change.kind for change in changed(change).changes]
    assert "renamed" not in kinds
    assert {"added", "removed"} <= set(kinds)


# The page docs/format.md.


def test_the_page_shows_the_printed_output(tmp_path: Path) -> None:
    """The example in "Comparing specs", its output and the picture."""
    section = PAGE.read_text(encoding="utf-8").partition("## Comparing specs")[2]
    spec, text = re.findall(r"```(?:json complete|text)\n(.*?)```", section, re.DOTALL)[:2]
    path = tmp_path / "example.json"
    path.write_text(spec, encoding="utf-8")
    example = load(path)
    old, new = graph_of("transformer-base"), check(example.form, registry(), example.overrides)

    assert diff(old, new).render() == text


def test_the_page_names_every_kind_of_change() -> None:
    """The table has exactly the existing kinds."""
    section = PAGE.read_text(encoding="utf-8").partition("### As JSON")[2].partition("### ")[0]
    rows = re.findall(r"^\| ([a-z, ]+) \| ", section, re.MULTILINE)

    kinds = {kind for row in rows for kind in row.split(", ")} - {"kind"}
    assert kinds == set(get_args(Kind))


# Templates in slots.

SLOT: Json = {
    "format": 1,
    "name": "slot",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "a.y"},
    "blocks": {
        "mix": {
            "inputs": {"x": "f[B T 8]"},
            "outputs": {"y": "second.y"},
            "nodes": {
                "first": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}},
                "second": {"use": "linear@1", "in": {"x": "first.y"}, "params": {"d_out": 8}},
            },
        }
    },
    "nodes": {
        "a": {
            "use": "sublayer@1",
            "in": {"x": "x"},
            "params": {"order": "pre"},
            "fill": {"f": {"use": "mix"}},
        }
    },
}


def test_a_template_in_a_slot_is_compared_inside() -> None:
    """A changed param and a rename, at paths below the slot; the weights carry over."""
    other = copy.deepcopy(SLOT)
    renamed(other, ("first", "opening"))
    other["blocks"]["mix"]["nodes"]["second"]["params"]["bias"] = False

    found = diff(graph_of(SLOT), graph_of(other))

    assert rendered(found) == ["> a/f.opening  was first", "~ a/f.second  bias true -> false"]
    assert found.weight_transfer.sources["a.f.opening.weight"] == "a.f.first.weight"
    drawn = diff_picture(graph_of(SLOT), graph_of(other), found).source
    assert ">f.second: bias true -&gt; false</font>" in drawn


def test_a_template_gives_its_slot_to_a_block() -> None:
    """The replacement works in both directions."""
    other = copy.deepcopy(SLOT)
    del other["blocks"]
    other["nodes"]["a"]["fill"]["f"] = {"use": "linear@1", "params": {"d_out": 8}}

    assert rendered(diff(graph_of(other), graph_of(SLOT))) == ["~ a/f  use linear@1 -> mix"]


# Completeness: a diff converts one graph to the other.


def test_initial_weights_of_a_template_are_compared_and_kept() -> None:
    """Rules of a template are changes of it, and so are those that are added or removed."""

    def form(*rules: Json) -> Graph:
        def change(spec: Json) -> None:
            if rules:
                spec["blocks"]["encoder_layer"]["init"] = list(rules)

        return graph_of(edited(change))

    small, large = ({"select": "feed_forward", "normal": scale} for scale in (0.1, 0.2))
    for old, new in ((form(small), form(large)), (form(), form(small)), (form(small), form())):
        found = diff(old, new)

        assert not found.equal
        assert [(one.kind, one.name) for one in found.changes] == [("training", "init")]
        assert rendered(found)
        assert apply(found, canonical(old, models="templates")) == canonical(
            new, models="templates"
        )


def test_allowed_warnings_survive_a_diff() -> None:
    """They belong to the form."""
    one = graph_of(edited(lambda spec: spec.update(allow=["D03"])))
    form = canonical(one, models="templates")

    assert apply(diff(one, one), form) == form
