"""Attention whose decoding stores the vectors that keys and values are projected from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.attention.masks_module import Window
from weft.blocks.attention.multi_head import ATTENTION, AttentionParams
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.position.relative_module import TransformerXLPosition
from weft.blocks.position.rotary_module import Rotary

MASK = torch.tensor([[True, False, True, True, True, True], [True, True, True, False, True, True]])
PARTS: dict[str, dict[str, Any]] = {
    "none": {},
    "rotary": {"position": lambda: Rotary(4)},
    "window": {"mask": lambda: Window(2), "position": lambda: Rotary(2)},
    "relative": {"position": lambda: TransformerXLPosition(4, 4, 8)},
}
"""Parts in slots, whose positions must stay right when keys are projected again."""


def made(d_memory: int, parts: str, **how: Any) -> Attention:
    """Return causal attention with 4 heads of 2 kv heads, in float64."""
    slots = {slot: make() for slot, make in PARTS[parts].items()}
    found = Attention(
        8, d_memory, 4, 4, 3, kv_heads=2, causal=True, cache="inputs", **slots, **how
    ).double()
    for weight in found.parameters():
        nn.init.normal_(weight, std=0.5)
    return found.eval()


def stepped(attention: Attention, x: Tensor, counts: list[int], **wires: Tensor) -> Tensor:
    """Decode x in steps of several positions."""
    state = attention.begin(Capacity(2, 1, x.size(1), x.dtype, x.device))
    outputs, position = [], 0
    for count in counts:
        here = slice(position, position + count)
        own = {name: wire[:, here] for name, wire in wires.items()}
        outputs.append(attention.step(x[:, here], state=state, position=position, **own))
        position += count
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("counts", [[1] * 6, [3, 1, 2]], ids=str)
def test_steps_give_the_outputs_of_the_parallel_pass(
    parts: str, mask: Tensor | None, counts: list[int]
) -> None:
    """With a memory of width 5 that grows with x, as the compressed vector of latent attention."""
    attention = made(5, parts)
    x, memory = torch.randn(2, 6, 8).double(), torch.randn(2, 6, 5).double()
    wires = {"memory": memory} | ({} if mask is None else {"mask": mask})

    found = stepped(attention, x, counts, **wires)

    torch.testing.assert_close(found, attention(x, **wires), rtol=0, atol=1e-12)


def test_the_state_is_the_input_alone() -> None:
    """6 positions of 5 floats and no keys or values; the formula says so too."""
    attention = made(5, "none")

    state: Any = attention.begin(Capacity(2, 3, 6, torch.float32, torch.device("cpu")))

    assert {name: tuple(one.shape) for name, one in state.appended.items()} == {"input": (6, 6, 5)}
    assert ATTENTION.state is not None
    arguments = {"cache": "inputs", "d_memory": 5, "kv_heads": 2, "d_k": 4, "d_v": 3}
    kept = ATTENTION.state(arguments, {"b": 6, "t": 6}, frozenset({"x", "memory"}))
    assert {name: one.shape for name, one in kept.items()} == {"input": (6, 6, 5)}


def test_a_cache_that_nothing_is_added_to_is_refused() -> None:
    """Attention that is not causal stores keys and values of a fixed memory, or nothing."""
    with pytest.raises(ValueError, match="without 'causal'"):
        ATTENTION.arguments(AttentionParams(heads=2, cache="inputs"), {"d_model": 8})
