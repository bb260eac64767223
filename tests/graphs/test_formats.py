"""Formats: a file of every format there has been opens, and means what it meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.form import RepeatNode, Spec, Step, Template, UseNode
from weft.specs.load import load

GOLDEN = Path(__file__).parents[1] / "golden"


def keys_in(value: Any) -> set[str]:
    """Return every key that stands anywhere in a value."""
    if isinstance(value, dict):
        return set(value).union(*map(keys_in, value.values()))
    return set().union(*map(keys_in, value)) if isinstance(value, list) else set()


def test_format_1_opens_for_ever() -> None:
    """Sizes worked out by hand; d is 8, with 2 heads of width 4, and 16 inside the maps."""
    held = load(GOLDEN / "format-1.json")

    graph, findings = analyse(held.form, registry(), held.overrides)

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


def test_the_golden_file_of_format_1_uses_every_key_of_its_form() -> None:
    """What it leaves out could be forgotten."""
    written = keys_in(json.loads((GOLDEN / "format-1.json").read_text(encoding="utf-8")))
    forms = (Spec, Template, UseNode, RepeatNode, Step)
    keys = {f.alias or name for form in forms for name, f in form.model_fields.items()}

    assert keys <= written
