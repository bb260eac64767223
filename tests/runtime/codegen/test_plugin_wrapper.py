"""A wrapper from another package, in a slot of a block with two slots: its wires arrive.

The wrapper takes any wires and passes them on, so its own Python signature names none of them.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity, State
from weft.blocks.registry import standard
from weft.graphs.checker.check import check
from weft.graphs.ir.block_type import BlockType, Port, Registry, Signature, Slot
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.value_type import parse_type
from weft.graphs.passes.unpad import unpad
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.specs.load import loaded

VECTORS, _ = parse_type("f[... d_model]", {})


class Doubled(nn.Module):
    """Twice what the block in the slot gives."""

    def __init__(self, d_model: int, *, f: nn.Module) -> None:
        """Store the block."""
        super().__init__()
        self.d_model, self.f = d_model, f

    def forward(self, x: Tensor, **wires: Any) -> Tensor:
        """Pass every wire on."""
        return 2 * self.f(x, **wires)

    def begin(self, capacity: Capacity, **wires: Any) -> State:
        """Pass every wire on."""
        inner: Any = self.f
        return inner.begin(capacity, **wires)

    def step(self, x: Tensor, **wires: Any) -> Tensor:
        """Pass every wire on."""
        inner: Any = self.f
        return 2 * inner.step(x, **wires)


WRAPPER = BlockType(
    name="doubled",
    doc="Twice what the block in its slot gives.",
    source="this test",
    signature=lambda _, __: Signature(
        inputs=(Port("x", VECTORS),),
        outputs=(Port("y", VECTORS),),
        slots=(Slot("f", Port("x", VECTORS), Port("y", VECTORS)),),
    ),
    module="a_package_with_a_wrapper:Doubled",
)
ATTENTION = {"use": "attention@1", "params": {"heads": 2}}
FEED_FORWARD = {"use": "feed_forward@1", "params": {"d_ff": 16}}


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package that has the wrapper's module."""
    package = ModuleType("a_package_with_a_wrapper")
    package.Doubled = Doubled  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, package.__name__, package)


def graph_with(f: dict[str, Any], g: dict[str, Any]) -> Graph:
    """Return a graph of two sub-layers side by side, wired to a memory and its mask."""
    value = {
        "format": 1,
        "name": "wrapped",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": {"x": "f[B T 8]", "memory": "f[B S 8]", "mask": "mask[B S]"},
        "outputs": {"y": "both.y"},
        "nodes": {
            "both": {
                "use": "parallel_sublayer@1",
                "in": {"x": "x", "memory": "memory", "mask": "mask"},
                "fill": {"f": f, "g": g},
            }
        },
        "step": {"axis": "T"},
    }
    return check(loaded(value).form, Registry([*standard(), WRAPPER]))


def batch(seed: int = 0) -> dict[str, Tensor]:
    """Return inputs of which the second row has padding in its memory."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(2, 3, 8, generator=generator),
        "memory": torch.randn(2, 5, 8, generator=generator),
        "mask": torch.arange(5) < torch.tensor([[5], [2]]),
    }


WRAPPED = [
    ({"use": "doubled@1", "fill": {"f": ATTENTION}}, FEED_FORWARD, "f"),
    (FEED_FORWARD, {"use": "doubled@1", "fill": {"f": ATTENTION}}, "g"),
    (
        {"use": "doubled@1", "fill": {"f": {"use": "doubled@1", "fill": {"f": ATTENTION}}}},
        FEED_FORWARD,
        "f",
    ),
]


@pytest.mark.parametrize(("f", "g", "slot"), WRAPPED, ids=["first", "second", "twice"])
def test_memory_and_mask_arrive(f: dict[str, Any], g: dict[str, Any], slot: str) -> None:
    """The output is computed from the attention by hand, with memory and mask."""
    graph = graph_with(f, g)
    model: Any = build(graph).eval()
    inputs = batch()

    found = model(**inputs)["y"]

    both = model.both
    read = both.norm(inputs["x"])
    wrapper = getattr(both, slot)
    factor, attention = 2, wrapper.f
    if isinstance(attention, Doubled):
        factor, attention = 4, attention.f
    attended = factor * attention(read, inputs["memory"], inputs["mask"])
    other = both.g if slot == "f" else both.f
    torch.testing.assert_close(found, inputs["x"] + attended + other(read))


@pytest.mark.parametrize(("f", "g", "slot"), WRAPPED, ids=["first", "second", "twice"])
def test_padding_in_the_memory_does_not_matter(
    f: dict[str, Any], g: dict[str, Any], slot: str
) -> None:
    """The mask reaches the attention, and what it allows does too."""
    del slot
    model: Any = build(graph_with(f, g)).eval()
    inputs = batch()
    padded, seen = inputs["memory"].clone(), inputs["memory"].clone()
    padded[1, 2:] = 100.0
    seen[1, 1] = 100.0

    found = model(**inputs)["y"]

    torch.testing.assert_close(model(**inputs | {"memory": padded})["y"], found)
    assert not torch.allclose(model(**inputs | {"memory": seen})["y"], found)


@pytest.mark.parametrize(("f", "g", "slot"), WRAPPED, ids=["first", "second", "twice"])
def test_steps_give_the_parallel_result(f: dict[str, Any], g: dict[str, Any], slot: str) -> None:
    """While decoding, memory and mask are taken from the state."""
    del slot
    model: Any = build(graph_with(f, g)).eval()
    inputs = batch()
    with torch.no_grad():
        expected = model(**inputs)["y"]
        capacity = Capacity(2, 1, 3, torch.float32, torch.device("cpu"))
        state = model.begin(capacity, memory=inputs["memory"], mask=inputs["mask"])

        steps = [
            model.step(x=inputs["x"][:, t : t + 1], state=state, position=t)["y"] for t in range(3)
        ]

    torch.testing.assert_close(torch.cat(steps, 1), expected)


def test_unpadded_training_passes_them_on_too() -> None:
    """The same outputs on rows without padding, in training mode."""
    graph = graph_with(*WRAPPED[0][:2])
    plain: Any = build(graph)
    inputs = batch()
    expected = plain(**inputs)["y"]

    model: Any = build(unpad(graph))

    torch.testing.assert_close(model(**inputs)["y"], expected)


def test_the_generated_code_names_the_ports_of_each_slot() -> None:
    """A reader sees which wires go where; nothing is looked up when the model runs."""
    model = build(graph_with(*WRAPPED[0][:2]))

    source = program_of(model).source

    assert "ports={'f': ('memory', 'mask')}" in source
    assert "stepping=('f',)" in source
