"""Tests of old formats: a file of every format opens with its original meaning."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.graphs.ir.canonical import fingerprint
from weft.runtime.spec.check import graph_of
from weft.specs.form import RepeatNode, Spec, Step, Template, UseNode
from weft.specs.load import FOLDERS, load
from weft.specs.reader import SHIPPED
from weft.specs.upgrade import FORMATS, older_blocks, upgrade, upgrade_format

LATER = {"allow", "output_types", "deploy", "losses", "frozen", "init", "segments"}
"""Keys that format 2 added."""
REWRITTEN = {
    "llama",
    "mistral",
    "parsing-aligned",
    "t5-1.1",
    "transformer-alibi",
    "transformer-gqa",
    "transformer-headgates",
    "transformer-local",
    "transformer-rotary",
    "transformer-t5-bias",
}
"""Specs that are written in another way today, with the same meaning: patches of attention@1 fill
slots of attention@2, and the positions of llama are a param."""
GOLDEN = Path(__file__).parents[1] / "golden" / "format-1"


def keys_in(value: Any) -> set[str]:
    """Return every key anywhere in a value."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set().union(*map(keys_in, value)) if isinstance(value, list) else set()


def without_docs(value: Any) -> Any:
    """Return a value with every `doc` key removed; the order of the other keys stays."""
    if isinstance(value, dict):
        return {key: without_docs(inner) for key, inner in value.items() if key != "doc"}
    return [without_docs(inner) for inner in value] if isinstance(value, list) else value


def test_a_spec_of_format_1_opens() -> None:
    """Sizes computed by hand; d is 8, with 2 heads of width 4, and 16 inside the maps."""
    spec = load(GOLDEN / "every-key.json")

    graph, findings = analyse(spec.form, registry(), spec.overrides)

    assert findings == []
    assert graph is not None
    norm = 8 + 8
    attention = 4 * (8 * 8 + 8) + norm
    feed_forward = (8 * 16 + 16) + (16 * 8 + 8) + norm
    sizes = {
        "source_embedding": 11 * 8,
        "target_embedding": 11 * 8,
        "head": 8 * 11,
        "source_position": (16 - 1) * 4 * 8,
        "target_position": (16 - 1) * 4 * 8,
        "encoder": 3 * (attention + feed_forward),
        "again": attention + feed_forward,
        "decoder": 2 * (2 * attention + feed_forward) + 2 * attention,
        "memory": norm + 8 * 8 + 8,
        "states": norm + 8 * 8 + 8,
    }
    assert {node.name: node.parameters() for node in graph.root.nodes} == sizes
    assert graph.parameters() == sum(sizes.values()) - 2 * 11 * 8 == 6040
    assert graph.step_axis == "T"
    assert {name: str(type_) for name, type_ in graph.outputs.items()} == {
        "logits": "f[B T 11]",
        "seen": "f[3 B T 8]",
    }


@pytest.mark.integration
@pytest.mark.parametrize(
    "path",
    sorted(path for folder in FOLDERS for path in (GOLDEN / folder).glob("*.json")),
    ids=lambda path: path.stem,
)
def test_a_spec_shipped_in_format_1_upgrades_to_the_shipped_spec(path: Path) -> None:
    """The upgrade gives the shipped file, key by key except for docs, and the same graph."""
    old = json.loads(path.read_text(encoding="utf-8"))
    shipped = SHIPPED / path.parent.name / path.name
    today = json.loads(shipped.read_text(encoding="utf-8"))

    made, changes = upgrade(old, FORMATS, older_blocks(registry(), registered=True))

    assert changes[0] == "/format: 1 is now 2"
    if path.stem not in REWRITTEN:
        assert without_docs(made) == without_docs(today)
    graphs = [graph_of(load(one)) for one in (path, shipped)]
    assert fingerprint(graphs[0]) == fingerprint(graphs[1])


def test_words_of_format_1_are_upgraded_wherever_they_stand() -> None:
    """In templates, slots, block choices, and all that a patch writes or selects."""
    choice = {"use": "keep_to_bias@1"}
    old = {
        "format": 1,
        "params": {"adapter": choice, "keep": 3},
        "inputs": {"x_keep": "keep[B S]?", "keep": "ids:9[B S]", "note_keep": " keep [B T]"},
        "outputs": {"out_keep": "layer.seen_keep"},
        "blocks": {
            "layer": {
                "inputs": {"own_keep": "keep[B S]"},
                "outputs": {"seen_keep": "own_keep"},
                "nodes": {"keep": {"use": "lengths_to_keep@1", "in": {"own_keep": "keep.y"}}},
            }
        },
        "nodes": {
            "r": {"repeat": 2, "block": "layer", "carry": ["own_keep"], "collect": ["seen_keep"]},
            "f": {
                "use": "sublayer@1",
                "fill": {"f": choice},
                "in": {"x_keep": "x_keep", "y": "keep"},
            },
        },
        "patch": [
            {
                "select": "a.keep[port=own_keep][use=keep_to_bias@1]",
                "set": {"in.own_keep": "x_keep"},
            },
            {"select": "/", "set": {"inputs.new_keep": "keep[B S]"}, "port": "own_keep"},
            {"select": "n", "remove": ["in.own_keep", "params.keep"]},
            {"select": "n", "insert_after": {"m": {**choice, "in": {"own_keep": "@"}}}},
            {"select": "n", "replace": choice},
            {"select": "n", "set": {"use": "keep_to_bias@1", "in": {"own_keep": "a.own_keep"}}},
        ],
    }
    new_choice = {"use": "mask_to_bias@1"}
    new = {
        "format": 2,
        "params": {"adapter": new_choice, "keep": 3},
        "inputs": {"x_mask": "mask[B S]?", "keep": "ids:9[B S]", "note_mask": " mask [B T]"},
        "outputs": {"out_keep": "layer.seen_mask"},
        "blocks": {
            "layer": {
                "inputs": {"own_mask": "mask[B S]"},
                "outputs": {"seen_mask": "own_mask"},
                "nodes": {"keep": {"use": "lengths_to_mask@1", "in": {"own_mask": "keep.y"}}},
            }
        },
        "nodes": {
            "r": {"repeat": 2, "block": "layer", "carry": ["own_mask"], "collect": ["seen_mask"]},
            "f": {
                "use": "sublayer@1",
                "fill": {"f": new_choice},
                "in": {"x_mask": "x_mask", "y": "keep"},
            },
        },
        "patch": [
            {
                "select": "a.keep[port=own_mask][use=mask_to_bias@1]",
                "set": {"in.own_mask": "x_mask"},
            },
            {"select": "/", "set": {"inputs.new_mask": "mask[B S]"}, "port": "own_mask"},
            {"select": "n", "remove": ["in.own_mask", "params.keep"]},
            {"select": "n", "insert_after": {"m": {**new_choice, "in": {"own_mask": "@"}}}},
            {"select": "n", "replace": new_choice},
            {"select": "n", "set": {"use": "mask_to_bias@1", "in": {"own_mask": "a.own_mask"}}},
        ],
    }

    assert upgrade_format(old)[0] == new


@pytest.mark.parametrize("wrong", [3, None, [], "x", {"a": 3}, {"a": []}, [3], [{}]])
def test_an_invalid_file_of_format_1_does_not_crash(wrong: Any) -> None:
    """The reader rejects it afterwards, with a place."""
    for key in ("inputs", "outputs", "nodes", "blocks", "params", "patch"):
        made, _ = upgrade_format({"format": 1, key: wrong})

        assert made == {"format": 2, key: wrong}


def test_the_golden_file_of_format_1_uses_every_key_of_its_form() -> None:
    """The test would not cover an omitted key."""
    written = keys_in(json.loads((GOLDEN / "every-key.json").read_text(encoding="utf-8")))
    forms = (Spec, Template, UseNode, RepeatNode, Step)
    keys = {f.alias or name for form in forms for name, f in form.model_fields.items()}

    assert keys - LATER <= written
