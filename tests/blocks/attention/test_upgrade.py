"""Upgrades of attention@1 and grouped_query_attention@1, and of what refers to their weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from weft.blocks.attention.parts.upgrade import upgrade
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.codegen.build import build
from weft.runtime.importing.plan import assigned
from weft.runtime.importing.table import Table
from weft.specs.load import load, load_child, loaded
from weft.specs.upgrade import FORMATS, older_blocks
from weft.specs.upgrade import upgrade as upgrade_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("params", "fill"),
    [
        ({"position": "none", "window": None, "head_gates": False}, {}),
        ({"position": "alibi"}, {"position": {"use": "alibi@1"}}),
        ({"position": "rotary"}, {"position": {"use": "rotary@1"}}),
        (
            {"position": "rotary", "rotary_base": "=base"},
            {"position": {"use": "rotary@1", "params": {"base": "=base"}}},
        ),
        (
            {"position": "relative_bias", "buckets": 8, "causal": True},
            {"position": {"use": "relative_bias@1", "params": {"buckets": 8, "causal": True}}},
        ),
        (
            {"position": "relative_key", "reach": 3, "causal": "=causal"},
            {"position": {"use": "relative_keys@1", "params": {"reach": 3, "causal": "=causal"}}},
        ),
        (
            {"window": 5, "head_gates": True},
            {
                "mask": {"use": "window@1", "params": {"distance": 5}},
                "output": {"use": "head_gates@1"},
            },
        ),
    ],
    ids=str,
)
def test_params_become_blocks_in_slots(params: dict[str, Any], fill: dict[str, Any]) -> None:
    """The other params keep their names and values."""
    made = upgrade({"use": "attention@1", "params": {"heads": 2, "key_bias": False, **params}})

    kept = {name: params[name] for name in params if name == "causal"}
    assert made["params"] == {"heads": 2, "key_bias": False, **kept}
    assert made.get("fill", {}) == fill


@pytest.mark.parametrize("name", ["position", "head_gates"])
def test_a_block_chosen_by_an_expression_is_not_upgraded(name: str) -> None:
    """Which block fills the slot would depend on the value; the checker reports the old block."""
    with pytest.raises(ValueError, match=f"'{name}' is an expression"):
        upgrade({"params": {name: "=choice"}})


def one(use: dict[str, Any], tie: list[list[str]] | None = None) -> dict[str, Any]:
    """Return a spec of two attentions."""
    return {
        "format": 2,
        "name": "two",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"y": "second.y"},
        "nodes": {
            "first": {**use, "in": {"x": "x"}},
            "second": {**use, "in": {"x": "first.y"}},
        },
        **({"tie": tie} if tie else {}),
    }


OLD = {"heads": 2, "causal": True, "position": "relative_bias", "head_gates": True, "window": 3}
NEW = {
    "use": "attention@2",
    "params": {"heads": 2, "causal": True},
    "fill": {
        "position": {"use": "relative_bias@1", "params": {"causal": True}},
        "mask": {"use": "window@1", "params": {"distance": 3}},
        "output": {"use": "head_gates@1"},
    },
}


def test_an_old_spec_opens_with_its_ties() -> None:
    """The tied table has another path now."""
    tie = [["first.relative_bias.weight", "second.relative_bias.weight"]]
    old = check(loaded(one({"use": "attention@1", "params": OLD}, tie)).form, registry())

    assert old.ties == (("first.position.weight", "second.position.weight"),)
    new = check(loaded(one(NEW, [list(old.ties[0])])).form, registry())
    assert old.weights() == new.weights()
    assert {"first.query.weight", "first.key.bias", "first.out.weight"} <= old.weights().keys()


def test_grouped_query_attention_has_fewer_key_heads() -> None:
    """Both older blocks become one."""
    use = {"use": "grouped_query_attention@1", "params": {"heads": 4, "kv_heads": 2}}
    graph, findings = analyse(loaded(one(use)).form, registry())

    assert findings == []
    assert graph is not None
    assert graph.weights()["first.key.weight"] == (4, 8)


def test_patches_for_the_older_block_apply_to_the_shipped_specs() -> None:
    """Selected by the old key; params of version 1 then change the slots."""
    child = {
        "name": "child",
        "patch": [
            {"select": "encoder.**[use=attention@1]", "set": {"params.position": "rotary"}},
            {"select": "decoder.*.self_attention/f", "set": {"params.window": 4}},
        ],
    }
    spec = load_child(load("transformer-base"), child, "child.json")

    graph, findings = analyse(spec.form, registry(), spec.overrides)

    assert findings == []
    assert graph is not None
    encoder, decoder = (graph.root.nodes[i].body for i in _stacks(graph))
    own = encoder.nodes[0].part.fill["f"]
    assert own.fill["position"].key == "rotary@1"
    assert decoder.nodes[0].part.fill["f"].fill["mask"].arguments == {"distance": 4}
    assert decoder.nodes[1].part.fill["f"].fill == {}


def _stacks(graph: Any) -> list[int]:
    names = [node.name for node in graph.root.nodes]
    return [names.index("encoder"), names.index("decoder")]


def test_a_patch_file_is_rewritten_with_its_selection() -> None:
    """`weft migrate` names the current block where a patch names the old one."""
    patch = [{"select": "**[use=grouped_query_attention@1]", "set": {"params.heads": 8}}]

    made, changes = upgrade_file({"format": 2, "patch": patch}, FORMATS, older_blocks(registry()))

    assert made["patch"][0]["select"] == "**[use=attention@2]"
    assert changes == ["/patch/0/select: grouped_query_attention@1 is now attention@2"]


def test_a_checkpoint_with_the_old_paths_opens(tmp_path: Path) -> None:
    """Weights that moved are found, and the model computes the same, bit for bit."""
    graph = check(loaded(one(NEW)).form, registry())
    model = build(graph, seed=3).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    old = {"position.weight": "relative_bias.weight", "output.weight": "head_gate"}
    weights = {}
    for path, weight in weights_of(model, graph).items():
        name, _, rest = path.partition(".")
        weights[f"{name}.{old.get(rest, rest)}"] = weight
    assert "first.head_gate" in weights

    opened = open_checkpoint(save(tmp_path / "old", Contents(graph=graph, weights=weights)))

    x = torch.randn(2, 5, 8)
    assert torch.equal(opened.build()(x=x)["y"], model(x=x)["y"])


def test_an_import_table_with_the_old_paths_finds_its_weights() -> None:
    """A pattern that matches nothing is read with the current name of its weight."""
    table = Table.model_validate(
        {
            "format": 3,
            "name": "own",
            "doc": "",
            "spec": "t5",
            "model_type": ["own"],
            "params": {},
            "weights": {"layers.{i}.f.relative_bias.weight": "their.{i}.bias"},
        }
    )

    plan, without = assigned(table, "own.json", ["layers.3.f.position.weight"])

    assert without == []
    assert plan["layers.3.f.position.weight"].weight.names == ("their.3.bias",)
