"""Values of templates and repeats that do not move: computed once, before the first step.

A spec of two sequences, T that is decoded and S that is read: a layer of the decoder reads the
layer of the encoder beside it (He et al. 2018, Layer-Wise Coordination).
"""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.graphs.ir.graph import Graph
from weft.graphs.ir.traverse import moving_ports
from weft.graphs.passes.unpad import unpad_decoding
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

NODES = dict[str, Any]
READS = {"x": "f[B T 8]", "memory": "f[B S 8]", "mask": "mask[B S]"}


def sublayer(wires: dict[str, str], **params: Any) -> dict[str, Any]:
    """Return a residual attention whose block is in a slot."""
    fill = {"f": {"use": "attention@1", "params": {"heads": 2, **params}}}
    return {"use": "sublayer@1", "params": {"order": "pre"}, "fill": fill, "in": wires}


ENCODER = sublayer({"x": "memory", "mask": "mask"})
DECODER = sublayer({"x": "x"}, causal=True)
CROSS = sublayer({"x": "self.y", "memory": "encoder.y", "mask": "mask"})
BOTH = {
    "inputs": READS,
    "outputs": {"x": "cross.y", "memory": "encoder.y", "unused": "encoder.y"},
    "nodes": {"encoder": ENCODER, "self": DECODER, "cross": CROSS},
}
"""One layer of the encoder and one of the decoder, which reads it."""


def spec_of(
    nodes: NODES, output: str = "stack.x", blocks: dict[str, Any] | None = None, **keys: Any
) -> dict[str, Any]:
    """Return a spec over the inputs `x`, `memory` and `mask`."""
    return {
        "format": 1,
        "name": "layerwise",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": READS,
        "outputs": {"y": output},
        "blocks": {"both": BOTH} if blocks is None else blocks,
        "nodes": nodes,
        "step": {"axis": "T"},
        **keys,
    }


def stack(**keys: Any) -> dict[str, Any]:
    """Return a repeat of three layers."""
    wires = {"x": "x", "memory": "memory", "mask": "mask"}
    return {"repeat": 3, "block": "both", "carry": ["x", "memory"], "in": wires, **keys}


def inside(template: str, **keys: Any) -> dict[str, Any]:
    """Return a template that contains another one as its node `inner`."""
    node = {**stack(block=template), **keys}
    outputs = {"x": "inner.x", "memory": "inner.memory"}
    return {"inputs": READS, "outputs": outputs, "nodes": {"inner": node}}


FINAL = sublayer({"x": "stack.memory", "mask": "mask"})
LAST = sublayer({"x": "stack.x", "memory": "final.y", "mask": "mask"})
THREE = {
    "inputs": {**READS, "notes": "f[B S 8]"},
    "outputs": {"x": "last.y", "memory": "encoder.y", "notes": "take.y"},
    "nodes": {
        "encoder": ENCODER,
        "take": sublayer({"x": "notes", "memory": "encoder.y", "mask": "mask"}),
        "self": DECODER,
        "cross": CROSS,
        "last": sublayer({"x": "cross.y", "memory": "take.y", "mask": "mask"}),
    },
}
SWAPPED = {**THREE, "outputs": {"x": "last.y", "memory": "take.y", "notes": "encoder.y"}}
WIDE = {
    **BOTH,
    "nodes": {
        **BOTH["nodes"],
        "encoder": {"use": "linear@1", "params": {"d_out": 8}, "in": {"x": "memory"}},
    },
}
ONCE = {"use": "both", "in": {"x": "x", "memory": "memory", "mask": "mask"}}
COLLECTED = {
    "pick": {
        "use": "slice@1",
        "params": {"axis": "layer", "index": 1},
        "in": {"x": "stack.memory"},
    },
    "last": sublayer({"x": "stack.x", "memory": "pick.y", "mask": "mask"}),
}
NOTES = {
    "carry": ["memory", "notes", "x"],
    "in": {"x": "x", "memory": "memory", "mask": "mask", "notes": "memory"},
}
SPECS: dict[str, dict[str, Any]] = {
    "carried": spec_of({"stack": stack()}),
    "one copy": spec_of({"stack": stack(repeat=1)}),
    "shared weights": spec_of({"stack": stack(share=True)}),
    "other copies": spec_of(
        {"stack": stack(instead={"1": "wide"})}, blocks={"both": BOTH, "wide": WIDE}
    ),
    "once": spec_of({"stack": ONCE}),
    "read afterwards": spec_of({"stack": stack(), "final": FINAL, "last": LAST}, "last.y"),
    "once, read afterwards": spec_of({"stack": ONCE, "final": FINAL, "last": LAST}, "last.y"),
    "in a template": spec_of(
        {"stack": {**ONCE, "use": "outer"}, "final": FINAL, "last": LAST},
        "last.y",
        {"both": BOTH, "outer": inside("both")},
    ),
    "repeated repeats": spec_of(
        {"stack": stack(block="outer", repeat=2)},
        blocks={"both": BOTH, "outer": inside("both", repeat=2)},
    ),
    "three carried": spec_of({"stack": stack(**NOTES, block="three")}, blocks={"three": THREE}),
    "swapped": spec_of({"stack": stack(**NOTES, block="three")}, blocks={"three": SWAPPED}),
    "collected": spec_of({"stack": stack(carry=["x"], collect=["memory"]), **COLLECTED}, "last.y"),
}


@pytest.fixture(params=SPECS, ids=lambda name: name.replace(" ", "-"))
def graph(request: pytest.FixtureRequest) -> Graph:
    """Return each graph in turn."""
    return check(loaded(SPECS[request.param]).form, registry())


def inputs() -> dict[str, Tensor]:
    """Return two sentences, the second of which has padding."""
    draw = torch.Generator().manual_seed(4)
    x, memory = (torch.randn(2, length, 8, generator=draw) for length in (5, 6))
    mask = torch.arange(6) < torch.tensor([[6], [2]])
    return {"x": x, "memory": memory, "mask": mask}


@pytest.mark.parametrize("unpadded", [False, True], ids=["padded", "unpadded"])
def test_steps_give_the_outputs_of_the_forward_pass(graph: Graph, unpadded: bool) -> None:
    """For three beams, one position at a time; `begin` may leave out padding."""
    values, beams = inputs(), 3
    model: Any = build(unpad_decoding(graph) if unpadded else graph).eval()
    expected = model(**values)["y"].repeat_interleave(beams, 0)

    x = values.pop("x").repeat_interleave(beams, 0)
    state = model.begin(Capacity(2, beams, 5, x.dtype, x.device), **values)
    steps = [model.step(x=x[:, t : t + 1], state=state, position=t)["y"] for t in range(5)]

    torch.testing.assert_close(torch.cat(steps, 1), expected, rtol=1e-5, atol=1e-6)


def test_what_does_not_move_is_computed_once(graph: Graph) -> None:
    """It runs as often in `begin` as in a forward pass, and not at all in steps."""
    values = inputs()
    model: Any = build(graph).eval()
    runs = collections.Counter[str]()
    for path, module in model.named_modules():
        if path.rpartition(".")[2] in ("encoder", "take", "final", "pick"):
            module.register_forward_hook(lambda *_, path=path: runs.update([path]))
    model(**values)
    once = dict(runs)
    runs.clear()

    x = values.pop("x")
    state = model.begin(Capacity(2, 1, 5, x.dtype, x.device), **values)
    assert runs == once
    model.step(x=x[:, :1], state=state, position=0)
    assert runs == once


def findings(spec: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and place of each mistake of a spec."""
    return [(f.code, f.at) for f in analyse(loaded(spec).form, registry())[1] if f.level == "error"]


SHIFTED = {
    "inputs": {**READS, "notes": "f[B S 8]"},
    "outputs": {"x": "cross.y", "memory": "notes", "notes": "read.y"},
    "nodes": {
        "self": DECODER,
        "cross": sublayer({"x": "self.y", "memory": "memory", "mask": "mask"}),
        "read": sublayer({"x": "notes", "memory": "x"}),
    },
}
"""What `notes` reads from `x` is in `memory` one copy later."""


def test_carried_values_move_if_they_do_in_any_copy() -> None:
    """The first copy has a fixed memory, and the third does not."""
    spec = spec_of({"stack": stack(**NOTES, block="three")}, blocks={"three": SHIFTED})

    assert ("D01", "/blocks/three/nodes/read/fill/f") in findings(spec)
    del spec["step"]
    [node] = check(loaded(spec).form, registry()).root.nodes
    assert moving_ports(node, frozenset({"x"})) == {"x", "notes", "memory"}
    assert moving_ports(node, frozenset()) == frozenset()


def test_only_the_values_that_move_must_have_the_axis() -> None:
    """The same repeat with causal attention, whose memory reads the decoder, has the mistake."""
    template = {**BOTH, "outputs": {"x": "cross.y", "memory": "back.y"}}
    template["nodes"] = {**BOTH["nodes"], "back": sublayer({"x": "encoder.y", "memory": "cross.y"})}
    spec = spec_of({"stack": stack(block="back")}, blocks={"back": template})

    assert findings(SPECS["carried"]) == []
    assert ("D01", "/blocks/back/nodes/back/fill/f") in findings(spec)
