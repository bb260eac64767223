"""Steps of every block that can decode: their results, and the state that they keep."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels.decode_state import Capacity, State
from weft.blocks.registry import registry
from weft.graphs.cost.decode_state import blocks_without_formula, state_by_node
from weft.graphs.cost.flops import sizes_in
from weft.graphs.ir.block_type import BlockType
from weft.runtime.codegen.build import build
from weft.runtime.decode.stepper import reorder
from weft.specs.findings import SpecError

from .cases import PRIMES, STEPPED, drawn, graph_of, part_of, scattered


@pytest.mark.integration
@pytest.mark.parametrize("block", STEPPED.values(), ids=STEPPED.keys())
def test_stepping_equals_the_parallel_forward(block: BlockType) -> None:
    """Several positions at a time give the parallel result, also after beams are reordered."""
    sentences, beams, length, turn = 2, 3, 5, 3
    graph = graph_of(block, steps=True)
    model = scattered(build(graph).eval()).double()
    inputs = drawn(graph, {"B": sentences * beams, "T": length, "S": 4})
    inputs = {n: v.double() if v.is_floating_point() else v for n, v in inputs.items()}
    moving = {name: inputs[name] for name, t in graph.inputs.items() if "T" in t.axes}
    fixed = {name: value[::beams] for name, value in inputs.items() if name not in moving}
    parents = torch.tensor([2, 0, 0, 3, 5, 4])
    rebuilt = {
        name: torch.cat([value[parents, :turn], value[:, turn:]], 1)
        for name, value in moving.items()
    }
    spread = {name: value.repeat_interleave(beams, 0) for name, value in fixed.items()}
    expected_before, expected_after = model(**moving, **spread), model(**rebuilt, **spread)

    for together in (1, 3):
        capacity = Capacity(sentences, beams, length, torch.float64, torch.device("cpu"))
        state = model.begin(capacity, **fixed)
        for position in range(0, length, together):
            if position == turn:
                reorder(state, parents, position)
            those = slice(position, position + together)
            some = {name: value[:, those] for name, value in moving.items()}
            stepped = model.step(**some, state=state, position=position)

            expected = expected_before if position < turn else expected_after
            here = {
                port: value[:, those]
                for port, value in expected.items()
                if graph.outputs[port].kind != "loss"
            }
            torch.testing.assert_close(stepped, here, rtol=0, atol=1e-12)


@pytest.mark.integration
def test_a_node_that_rotates_counts_positions() -> None:
    """Its time axis comes after the heads, so the tests above do not step it."""
    graph = graph_of(registry().get("rotary@1") or pytest.fail("gone"), steps=True)
    model = build(graph).eval()
    query_BHTK = torch.randn(2, 2, 5, 4, generator=torch.Generator().manual_seed(1))
    state = model.begin(Capacity(2, 1, 5, torch.float32, torch.device("cpu")))

    steps = [
        model.step(query=query_BHTK[:, :, at : at + 1], state=state, position=at)["y"]
        for at in range(5)
    ]

    torch.testing.assert_close(torch.cat(steps, 2), model(query=query_BHTK)["y"])


DTYPES = {"float32": torch.float32, "bool": torch.bool, "int64": torch.int64}


@pytest.mark.integration
@pytest.mark.exact
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("block", STEPPED.values(), ids=STEPPED.keys())
def test_state_formulas_equal_the_tensors_that_decoding_keeps(
    block: BlockType, dtype: torch.dtype
) -> None:
    """Names, shapes and dtypes after the last step, for every size of an axis, and all bytes."""
    graph = graph_of(block, steps=True)
    part, model = part_of(graph), build(graph).eval().to(dtype)

    for sizes in (PRIMES[0], {"B": 3, "T": 7, "S": 5}):
        inputs = drawn(graph, sizes)
        inputs = {n: v.to(dtype) if v.is_floating_point() else v for n, v in inputs.items()}
        moving = {name for name, t in graph.inputs.items() if "T" in t.axes}
        fixed = {name: value for name, value in inputs.items() if name not in moving}
        capacity = Capacity(sizes["B"], 1, sizes["T"], dtype, torch.device("cpu"))
        with torch.inference_mode():
            state = model.begin(capacity, **fixed)
            for position in range(sizes["T"]):
                here = slice(position, position + 1)
                some = {name: inputs[name][:, here] for name in moving}
                model.step(**some, state=state, position=position)

        assert sum(state_by_node(graph, sizes, dtype.itemsize).values()) == bytes_of(state)
        if block.steps:
            assert block.state is not None
            wanted = {
                name: (one.shape, {**DTYPES, "float": dtype}[one.dtype])
                for name, one in block.state(
                    part.arguments, sizes_in(part, sizes), frozenset(part.inputs)
                ).items()
            }
            kept = {name: t for group in state["node"] for name, t in group.items()}
            assert {name: (tuple(t.shape), t.dtype) for name, t in kept.items()} == wanted


def bytes_of(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, Tensor):
        return state.nbytes
    inner = state if isinstance(state, State) else state.values()
    return sum(map(bytes_of, inner))


def test_every_block_with_steps_declares_its_state() -> None:
    """And the tests above decode with each of them that fills no slot."""
    stepping = [block for block in registry() if block.steps]

    assert stepping == [block for block in registry() if block.state is not None]
    assert {block.key for block in stepping if not block.fills} <= STEPPED.keys()
    assert all(blocks_without_formula(graph_of(b, steps=True)) == [] for b in STEPPED.values())


def test_a_block_that_changes_the_axis_is_not_decodable() -> None:
    """Positions of an output with another length do not correspond to input positions."""
    with pytest.raises(SpecError, match=r"output 'y' is .* with 2 positions before those of T"):
        graph_of(registry().get("prepend@1") or pytest.fail("gone"), steps=True)
