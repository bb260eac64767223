"""Masks from lengths, and unfolding, by hand."""

from __future__ import annotations

import pytest
import torch
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.blocks.residual.combine_module import LengthsToMask, Unfold
from weft.graphs.checker.check import analyse, check
from weft.specs.load import loaded


def test_lengths_become_a_mask() -> None:
    """Also one position at a time, for every beam of a sentence."""
    lengths, x = torch.tensor([3, 1]), torch.zeros(2, 4, 8)
    block = LengthsToMask()
    whole = block(lengths, x)

    assert whole.tolist() == [[True, True, True, False], [True, False, False, False]]
    state = block.begin(Capacity(2, 2, 4, torch.float32, torch.device("cpu")), lengths)
    for t in range(4):
        step = block.step(torch.zeros(4, 1, 8), state=state, position=t)
        assert torch.equal(step, whole[:, t : t + 1].repeat_interleave(2, 0))


@pytest.mark.parametrize("length", [2, 5])
def test_unfolding_adds_position_by_position_and_zeros_past_the_end(length: int) -> None:
    """Whichever of the two is longer; masked positions are zero, too."""
    memory = torch.tensor([[[1.0], [2.0], [4.0]]])
    mask = torch.tensor([[True, False, True]])
    x = torch.full((1, length, 1), 10.0)

    assert Unfold()(x, memory).flatten().tolist() == [11.0, 12.0, 14.0, 10.0, 10.0][:length]
    assert Unfold()(x, memory, mask).flatten().tolist() == [11.0, 10.0, 14.0, 10.0, 10.0][:length]


SPEC = {
    "format": 1,
    "name": "both",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"a": "f[B T 8]", "b": "f[B T 5]", "lengths": "len[B]"},
    "outputs": {"y": "read.y"},
    "nodes": {
        "join": {"use": "concatenate@1", "in": {"x": "a", "z": "b"}},
        "mask": {"use": "lengths_to_mask@1", "in": {"lengths": "lengths", "x": "join.y"}},
        "read": {
            "use": "attention@1",
            "in": {"x": "join.y", "mask": "mask.mask"},
            "params": {"heads": 1},
        },
    },
}


def test_widths_add_up_in_a_graph() -> None:
    """8 and 5 are 13, and the mask fits the joined sequence."""
    assert str(check(loaded(SPEC).form, registry()).outputs["y"]) == "f[B T 13]"


def test_lengths_for_a_mask_name_the_adapter() -> None:
    """The finding suggests the adapter block as a fix."""
    read = {**SPEC["nodes"]["read"], "in": {"x": "join.y", "mask": "lengths"}}
    nodes = {"join": SPEC["nodes"]["join"], "read": read}
    _, findings = analyse(loaded({**SPEC, "nodes": nodes}).form, registry())

    assert [(f.code, f.help) for f in findings] == [
        ("T02", "put a 'lengths_to_mask@1' on this wire")
    ]
