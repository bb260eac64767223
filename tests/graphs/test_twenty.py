"""Test of twenty simultaneous mistakes: each is found once, without follow-up findings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.load import loaded

if TYPE_CHECKING:
    from collections.abc import Callable

# Edited pointer to the code of the finding and the wrong value.
MISTAKES: dict[str, tuple[str, Any]] = {
    "/params/heads": ("E05", 7),
    "/params/unread": ("W08", 3),
    "/params/one": ("E04", "=one+1"),
    "/step/axis": ("N05", "U"),
    "/blocks/decoder_layer/inputs/spare": ("W04", "mask[B S]?"),
    "/blocks/encoder_layer/nodes/idle": ("W03", {"use": "layer_norm@1", "in": {"x": "x"}}),
    "/nodes/misspelt": (
        "N01",
        {"use": "liner@1", "in": {"x": "encoder.x"}, "params": {"d_out": 2}},
    ),
    "/nodes/wrong_port": ("N03", {"use": "layer_norm@1", "in": {"xs": "encoder.x"}}),
    "/nodes/wrong_param": (
        "N04",
        {"use": "linear@1", "in": {"x": "encoder.x"}, "params": {"d_out": 4, "bais": False}},
    ),
    "/nodes/no_such_node": ("N02", {"use": "layer_norm@1", "in": {"x": "encodr.x"}}),
    "/nodes/no_such_output": ("N03", {"use": "layer_norm@1", "in": {"x": "encoder.z"}}),
    "/nodes/crooked": (
        "P01",
        {"use": "dropout@1", "in": {"x": "encoder.x"}, "params": {"dropout": 2}},
    ),
    "/nodes/wanting": ("W07", {"use": "linear@1", "in": {"x": "encoder.x"}}),
    "/nodes/unwired": ("W01", {"use": "layer_norm@1"}),
    "/nodes/masked": (
        "T02",
        {
            "use": "attention@1",
            "in": {"x": "encoder.x", "mask": "encoder.x"},
            "params": {"heads": 8},
        },
    ),
    "/nodes/crossed": (
        "T03",
        {
            "use": "attention@1",
            "in": {"x": "decoder.x", "mask": "source_mask"},
            "params": {"heads": 8},
        },
    ),
    "/nodes/slotless": (
        "W05",
        {"use": "layer_norm@1", "in": {"x": "encoder.x"}, "fill": {"f": {"use": "layer_norm@1"}}},
    ),
    "/nodes/empty": ("W05", {"use": "sublayer@1", "in": {"x": "encoder.x"}}),
    "/nodes/training": ("N09", {"use": "layer_norm@1", "in": {"x": "encoder.x"}}),
    "/tie/0/0": ("N07", "source_embedding.wieght"),
}
READ = ("misspelt", "wrong_port", "wrong_param", "no_such_node", "no_such_output", "crooked")
READ += ("wanting", "unwired", "masked", "crossed", "slotless", "empty", "training")


def test_twenty_mistakes_are_twenty_findings(edit: Callable[..., dict[str, Any]]) -> None:
    """In one run, each at its place."""
    edits = {pointer: value for pointer, (_, value) in MISTAKES.items()}
    # An output reads each faulty node, so that it is not also reported as unread.
    edits |= {f"/outputs/{name}": f"{name}.y" for name in READ}
    spec = loaded(edit(edits)).form

    graph, findings = analyse(spec, registry())

    assert graph is None
    assert len(MISTAKES) == 20
    assert len(findings) == 20, "\n".join(f"{f.code} {f.at} {f.problem}" for f in findings)
    assert sorted(f.code for f in findings) == sorted(code for code, _ in MISTAKES.values())
    for finding in findings:
        assert any(finding.at.startswith(pointer) for pointer in MISTAKES) or finding.code == "E05"
        assert finding.help
