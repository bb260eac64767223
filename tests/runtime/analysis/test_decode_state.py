"""Memory of decoding state, compared with hand calculations and with that of a model."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from weft.blocks.kernels.decode_state import Capacity, State
from weft.blocks.registry import registry
from weft.extensions.interop.export.flat import flat_graph
from weft.graphs.checker.check import check
from weft.graphs.cost.decode_state import state_by_node
from weft.graphs.cost.table import cost_table
from weft.graphs.ir.block_type import BlockType, Signature, port
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.specs.load import load, loaded

SIZES = {"B": 3, "S": 11, "T": 7}


def graph(name: str, **params: Any) -> Graph:
    """Return a shipped spec, checked."""
    return check(load(name).form, registry(), params)


def bytes_of(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, torch.Tensor):
        return state.nbytes
    capacities = state if isinstance(state, State | list | tuple) else state.values()
    return sum(map(bytes_of, capacities))


@pytest.mark.parametrize("each", [4, 2])
def test_the_transformer_keeps_keys_and_values(each: int) -> None:
    """Of 7 steps and of 11 source positions in six layers, and which of them are stored."""
    found = state_by_node(graph("transformer-base"), SIZES, each)

    assert {path: count for path, count in found.items() if count} == {
        "decoder.*.self_attention": 6 * 3 * 7 * 2 * 512 * each,
        "decoder.*.cross_attention": 6 * 3 * 11 * (2 * 512 * each + 1),
    }


def test_fewer_heads_of_keys_keep_less() -> None:
    """Two of eight key heads: a quarter of the memory."""
    found = state_by_node(graph("transformer-gqa"), SIZES)

    assert found["decoder.*.self_attention"] == 6 * 3 * 7 * 2 * 512 // 4 * 4


def test_a_recurrence_keeps_its_state_however_long() -> None:
    """One vector of 512 per sentence."""
    found = state_by_node(graph("gru-attention"), {**SIZES, "T": 1000})

    assert found["decoder"] == 3 * 512 * 4


@pytest.mark.parametrize("name", ["transformer-base", "transformer-shared", "gnmt-small"])
def test_the_bytes_equal_those_of_a_model(name: str) -> None:
    """The same state, allocated by a model."""
    vocab = 30
    made = graph(name, layers=2, d_model=32, vocab=vocab)
    model: Any = build(made).eval()
    source = torch.randint(vocab, (3, 11))
    capacity = Capacity(3, 1, 7, torch.float32, torch.device("cpu"))
    state = model.begin(capacity, source=source, source_mask=torch.ones_like(source).bool())

    found = state_by_node(made, SIZES)

    assert sum(found.values()) == bytes_of(state)


def test_a_constant_value_in_the_state_has_a_path() -> None:
    """A constant value that a node reads at every step."""
    made = graph("gnmt-small", layers=1, d_model=32, vocab=30)

    assert all(path for path in state_by_node(made, SIZES))


class Mixed(torch.nn.Module):
    """A block without `begin` that reads a memory: x plus the sum of the memory."""

    def forward(self, x: torch.Tensor, notes: torch.Tensor) -> torch.Tensor:
        """Return x [B, T, D] plus the sum of the notes [B, S, D]."""
        return x + notes.sum(1, keepdim=True)


MIXED = BlockType(
    name="mixed",
    doc="Add the sum of some notes.",
    source="this test",
    signature=lambda _, __: Signature(
        inputs=(port("x", "f[b t d]"), port("notes", "f[b s d]")),
        outputs=(port("y", "f[b t d]"),),
        behavior={"s": "full"},
    ),
    arguments=lambda _, __: {},
    module=Mixed,
)


def test_a_slot_without_steps_keeps_its_fixed_wires() -> None:
    """As does the residual block around it: the notes, and the keys and values beside them."""
    spec = {
        "format": 1,
        "name": "sides",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": {"x": "f[B T 8]", "notes": "f[B S 8]"},
        "outputs": {"y": "both.y"},
        "nodes": {
            "both": {
                "use": "parallel_sublayer@1",
                "in": {"x": "x", "notes": "notes"},
                "fill": {
                    "f": {"use": "attention@1", "params": {"heads": 2, "causal": True}},
                    "g": {"use": "mixed@1"},
                },
            }
        },
        "step": {"axis": "T"},
    }
    made = check(loaded(spec).form, registry([MIXED]))
    model: Any = build(made).eval()
    capacity = Capacity(3, 1, 7, torch.float32, torch.device("cpu"))
    state = model.begin(capacity, notes=torch.zeros(3, 11, 8))
    model.step(x=torch.zeros(3, 1, 8), state=state, position=0)

    found = state_by_node(made, SIZES)

    assert found == {"both": 3 * (7 * 2 * 8 + 11 * 8) * 4}
    assert bytes_of(state) == sum(found.values())


def test_activations_equal_the_outputs_of_blocks() -> None:
    """As measured by hooks in a running model."""
    made = graph("transformer-base", layers=2, d_model=32, heads=2, vocab=30)
    model = build(made).eval()
    seen: list[int] = []
    for path, about in flat_graph(made).nodes.items():
        if about["kind"] == "block":
            for below in ("", *(f".{slot}" for slot in about["node"].part.fill)):
                module = model.get_submodule(path + below)
                module.register_forward_hook(lambda *given: seen.append(given[2].nbytes))
    source, target = torch.randint(30, (3, 11)), torch.randint(30, (3, 7))
    model(source=source, source_mask=torch.ones_like(source).bool(), target=target)

    assert cost_table(made, SIZES).activation_bytes == sum(seen)
