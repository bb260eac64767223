"""The part of a model that writes one of its inputs before the answer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.blocks.registry import registry
from weft.graphs.ir.graph import Graph
from weft.graphs.passes.writing import written_before
from weft.specs.findings import InputError

PUBLISHED = Path(__file__).parents[3] / "examples/published/deliberation.json"


def changed(folder: Path, *patch: object) -> Graph:
    """Return the graph of the published model with a patch."""
    model = {"format": 1, "extends": PUBLISHED.stem, "name": "changed", "patch": [*patch]}
    shutil.copy(PUBLISHED, folder)
    file = folder / "changed.json"
    file.write_text(json.dumps(model))
    return weft.load(file).graph()


def formula(y: str, **wires: str) -> dict[str, Any]:
    """Return a node that computes a formula."""
    return {"use": "elementwise@1", "in": wires, "params": {"y": y}}


def node(name: str, value: object) -> dict[str, Any]:
    """Return a patch that adds a node."""
    return {"select": "/", "set": {f"nodes.{name}": value}}


def wires(name: str, **values: str) -> dict[str, Any]:
    """Return a patch that sets wires of a node."""
    return {"select": name, "set": {f"in.{port}": value for port, value in values.items()}}


SECOND = {
    "select": "/",
    "set": {
        "axes.Q": "time",
        "inputs.plan": "ids:vocab[B Q]",
        "outputs.plan_logits": "plan_head.y",
        "nodes.plan_embedding": {"share": "target_embedding", "in": {"ids": "plan"}},
        "nodes.plan_head": {"share": "head", "in": {"x": "plan_embedding.y"}},
        "nodes.planned": {
            "use": "pool@1",
            "in": {"x": "plan_embedding.y"},
            "params": {"kind": "mean"},
        },
        "nodes.with_plan": formula("x + z", x="draft_position.y", z="planned.y"),
    },
}
"""A plan, which the draft reads."""
PLAN, DRAFT = ("plan", "plan_logits"), ("draft", "draft_logits")
WRONG: dict[str, tuple[list[tuple[str, str]], list[dict[str, Any]], str]] = {
    "later words": (
        [DRAFT],
        [
            node(
                "ahead", {"use": "shift@1", "in": {"x": "draft_position.y"}, "params": {"by": -1}}
            ),
            wires("first_decoder", x="ahead.y"),
        ],
        "cannot be written token by token: the graph cannot be decoded along R",
    ),
    "a tag of each word": (
        [DRAFT],
        [
            {"select": "/", "set": {"inputs.tags": "ids:vocab[B R]"}},
            node("tag", {"share": "target_embedding", "in": {"ids": "tags"}}),
            node("sum", formula("x + z", x="draft_position.y", z="tag.y")),
            wires("first_decoder", x="sum.y"),
        ],
        "because 'tags' has a value for each of its tokens",
    ),
    "the other order": (
        [DRAFT, PLAN],
        [SECOND, wires("first_decoder", x="with_plan.y")],
        "the draft 'draft' depends on the draft 'plan', which is written after it",
    ),
}
"""Drafts, patches of the model, and what is wrong."""


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_written_before_the_answer_is_named(tmp_path: Path, case: str) -> None:
    """The error says which input or output, and a way out."""
    drafts, patch, problem = WRONG[case]
    model = changed(tmp_path, *patch)

    with pytest.raises(InputError) as raised:
        written_before(model, drafts, registry())

    assert problem in raised.value.problem
    assert raised.value.help


def test_a_draft_may_read_an_earlier_draft(tmp_path: Path) -> None:
    """The first part reads the plan alone, and the second one all but the answer."""
    model = changed(tmp_path, SECOND, wires("first_decoder", x="with_plan.y"))

    parts = written_before(model, [PLAN, DRAFT], registry())

    assert {port: part.graph.step_axis for port, part in parts.items()} == {
        "plan": "Q",
        "draft": "R",
    }
    assert {port: {*part.graph.inputs} for port, part in parts.items()} == {
        "plan": {"plan"},
        "draft": {"draft", "plan", "source", "source_mask"},
    }
    assert [part.masks for part in parts.values()] == [(), ("draft_mask",)]


def test_the_weights_of_a_part_have_their_paths_in_the_model(tmp_path: Path) -> None:
    """The head has the weights of the embedding, and the second decoder is not a part of it."""
    model = changed(tmp_path)

    weights = written_before(model, [DRAFT], registry())["draft"].graph.weights()

    assert weights.items() <= model.weights().items()
    nodes = {path.partition(".")[0] for path in weights}
    assert nodes == {"source_embedding", "encoder", "first_decoder"}
