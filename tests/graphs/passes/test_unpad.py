"""Tests of unpadding plans, derived by hand from the ports of small specs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.passes.unpad import Place, UnpadPlan, plan_unpad
from weft.specs.load import loaded

IDS = {"tokens": "ids:9[B T]"}
EMBED = {"use": "embedding@1", "in": {"ids": "tokens"}, "params": {"d_model": 4}}
T3 = Place("T", 0, 3)


def plan(
    nodes: Mapping[str, Any],
    outputs: Mapping[str, str],
    inputs: Mapping[str, str] = IDS,
    blocks: Mapping[str, Any] | None = None,
) -> UnpadPlan:
    """Return the unpadding plan of a spec."""
    form: dict[str, Any] = {
        "format": 1,
        "name": "some",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": dict(inputs),
        "outputs": dict(outputs),
        "blocks": dict(blocks or {}),
        "nodes": dict(nodes),
    }
    return plan_unpad(check(loaded(form).form, registry(), {}))


def around(found: UnpadPlan) -> dict[str, tuple[dict[str, Place], dict[str, Place | None]]]:
    """Return the conversions around each block."""
    return {path: (dict(a.inputs), dict(a.outputs)) for path, a in found.blocks.items()}


def test_blocks_with_any_axes_run_unpadded() -> None:
    """For an embedding and a map, only the output is padded."""
    head = {"use": "linear@1", "in": {"x": "embed.y"}, "params": {"d_out": 9}}

    found = plan({"embed": EMBED, "head": head}, {"logits": "head.y"})

    assert found.axes == ("T",)
    assert found.boundary.inputs == {"tokens": Place("T", 0, 2)}
    assert found.boundary.outputs == {"logits": T3}
    assert found.blocks == {}


def test_a_block_that_names_its_axes_is_given_padded_values() -> None:
    """Each copy of a causal LSTM reads padded values, and its output is unpadded again."""
    layer = {
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "lstm.y"},
        "nodes": {"lstm": {"use": "lstm@1", "in": {"x": "x"}, "params": {"d_hidden": 4}}},
    }
    stack = {"repeat": 2, "block": "layer", "carry": ["x"], "in": {"x": "embed.y"}}

    found = plan({"embed": EMBED, "stack": stack}, {"y": "stack.x"}, blocks={"layer": layer})

    assert around(found) == {f"stack.{n}.lstm": ({"x": T3}, {"y": T3}) for n in range(2)}


def test_a_block_that_mixes_positions_needs_a_mask() -> None:
    """With `mask` it is unpadded; without, it stays padded, and the plan names the block."""
    nodes = {
        "embed": EMBED,
        "f": {"use": "attention@1", "in": {"x": "embed.y"}, "params": {"heads": 2}},
    }
    kept = {**nodes, "f": {**nodes["f"], "in": {"x": "embed.y", "mask": "mask"}}}

    without = plan(nodes, {"y": "f.y"})
    with_mask = plan(kept, {"y": "f.y"}, {**IDS, "mask": "mask[B T]"})

    assert (without.axes, without.blocks) == ((), {})
    assert without.why == "'f' (attention@1) reads all of T without a mask"
    assert (with_mask.axes, with_mask.masks) == (("T",), {"T": "mask"})
    assert around(with_mask) == {"f": ({"x": T3}, {"y": T3})}


def test_a_sublayer_with_drop_path_stays_padded() -> None:
    """A sub-layer that drops complete rows in training, and the sub-layer inside it."""

    def sublayer(drop_path: float) -> UnpadPlan:
        inner = {"use": "attention@1", "params": {"heads": 2, "causal": True}}
        node = {
            "use": "sublayer@1",
            "in": {"x": "embed.y"},
            "params": {"drop_path": drop_path},
            "fill": {"f": inner},
        }
        return plan({"embed": EMBED, "sub": node}, {"y": "sub.y"})

    assert around(sublayer(0.0)) == {"sub.f": ({"x": T3}, {"y": T3})}
    assert around(sublayer(0.5)) == {"sub": ({"x": T3}, {"y": T3})}


def test_collected_copies_are_unpadded_after_their_first_axis() -> None:
    """`collect` puts the axis of copies before the batch."""
    layer = {
        "inputs": {"x": "f[B T 4]"},
        "outputs": {"x": "map.y", "each": "map.y"},
        "nodes": {"map": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 4}}},
    }
    stack = {
        "repeat": 3,
        "block": "layer",
        "carry": ["x"],
        "collect": ["each"],
        "in": {"x": "embed.y"},
    }

    found = plan({"embed": EMBED, "stack": stack}, {"all": "stack.each"}, blocks={"layer": layer})

    assert found.boundary.outputs == {"all": Place("T", 1, 4)}


def test_values_of_a_longer_axis_stay_padded() -> None:
    """T + 1 is another axis, whose padding is unknown."""
    nodes = {
        "embed": EMBED,
        "front": {"use": "prepend@1", "in": {"x": "embed.y"}, "params": {"count": 1}},
    }

    found = plan(nodes, {"y": "front.y"})

    assert found.boundary.outputs == {"y": None}
    assert around(found)["front"][0] == {"x": T3}
    assert set(around(found)["front"][1].values()) == {None}
