"""Every block of the registry as the only node of a spec, with random weights and inputs.

Files in `variants/` add, as `VARIANTS`, uses whose ports or behavior differ from the example.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.block_type import BlockType
from weft.graphs.ir.graph import Graph, Part
from weft.graphs.ir.value_type import evaluate
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

VARIANTS: dict[str, BlockType] = {}
for _file in sorted((Path(__file__).parent / "variants").glob("*.py")):
    _names = runpy.run_path(str(_file))
    VARIANTS |= _names.get("VARIANTS", {})
NODES = [block for block in registry() if not block.fills]
"""Blocks that can be nodes; the others fill slots, and variants of their owners test them."""
CASES = {block.key: block for block in NODES} | VARIANTS
PRIMES = ({"B": 2, "T": 11, "S": 13}, {"B": 3, "T": 17, "S": 19})
"""Sizes of axes, each a different prime, so that no two can be confused."""
SMALL = {"B": 3, "T": 5, "S": 4}
UNSEEN = re.compile(r"(.*\.)?key\.bias")
"""A key bias shifts all scores of a query equally, which the softmax cancels."""


GRAPHS: dict[tuple[int, bool, str], Graph] = {}


def graph_of(block: BlockType, *, steps: bool = False, **params: Any) -> Graph:
    """Return a checked spec whose only node is the block's example; cached."""
    key = (id(block), steps, repr(params))
    if key not in GRAPHS:
        GRAPHS[key] = checked(block, params, steps=steps)
    return GRAPHS[key]


def checked(block: BlockType, params: Mapping[str, Any], *, steps: bool) -> Graph:
    """Return a spec whose only node is the block's example with the given params."""
    wired = dict(block.example_inputs)
    written = {**block.example, **params}
    signature = block.signature(block.params(**written), frozenset(wired))
    axes = sorted(set(re.findall(r"\b[A-Z]\w*", " ".join(wired.values()))))
    spec: dict[str, Any] = {
        "format": 1,
        "name": "one",
        "axes": {axis: "batch" if axis == "B" else "time" for axis in axes},
        "inputs": wired,
        "outputs": {p.name: f"node.{p.name}" for p in signature.outputs if not p.optional},
        "nodes": {
            "node": {
                "use": block.key,
                "params": written,
                "fill": dict(block.example_fill),
                "in": {port: port for port in wired},
            }
        },
    }
    if steps:
        spec["step"] = {"axis": "T"}
    return check(loaded(spec).form, registry(), checked=True)


def made(block: BlockType, **params: Any) -> tuple[Graph, nn.Module]:
    """Return the graph and module of the example, with random weights."""
    graph = graph_of(block, **params)
    return graph, scattered(build(graph).eval())


def scattered(model: nn.Module) -> nn.Module:
    """Draw every weight, so that no bias is zero and no scale is one."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return model


def drawn(graph: Graph, sizes: Mapping[str, int] = SMALL) -> dict[str, Tensor]:
    """Return random inputs of a graph."""
    generator = torch.Generator().manual_seed(2)
    values = {}
    for name, type_ in graph.inputs.items():
        shape = [evaluate(axis, sizes) for axis in type_.axes]
        if type_.kind in ("f", "score"):
            values[name] = torch.randn(shape, generator=generator)
        elif type_.kind == "ids":
            values[name] = torch.randint(int(type_.size or 0), shape, generator=generator)
        elif type_.kind == "label":  # -1 is the padding of labels
            values[name] = torch.randint(-1, int(type_.size or 0), shape, generator=generator)
        elif type_.kind == "len":
            values[name] = torch.randint(1, min(sizes.values()), shape, generator=generator)
        elif type_.kind == "pos":
            values[name] = torch.randint(min(sizes.values()), shape, generator=generator)
        elif type_.kind == "mask":
            values[name] = torch.rand(shape, generator=generator) > 0.4
            places = values[name].transpose(0, 1) if len(shape) > 1 else values[name]
            places[0], places[-1] = True, False
        elif type_.kind == "bias":
            values[name] = torch.randn(shape, generator=generator)
            values[name][..., 1] = float("-inf")
        else:
            pytest.fail(f"teach this test to draw values of kind '{type_.kind}'")
    return values


def part_of(graph: Graph) -> Part:
    """Return the part of the only node."""
    part = graph.root.nodes[0].part
    assert part is not None
    return part


def behavior(part: Part, axis: str) -> str:
    """Return the declared behavior of a part along an axis, including its slots."""
    ranks = ["pointwise", "causal", "full"]
    said = part.signature.behavior
    own = [
        said.get(name, "pointwise") for name, stands_for in part.axes.items() if stands_for == axis
    ]
    return max(
        [*own, *(behavior(inner, axis) for inner in part.fill.values()), ranks[0]], key=ranks.index
    )


def _as_long(graph: Graph) -> bool:
    return graph.outputs["y"].axes[:2] == graph.inputs[sequence(graph)].axes[:2]


def sequence(graph: Graph) -> str:
    """Return the name of the input whose positions a block mixes: x, its ids, or its values."""
    return next(name for name in ("x", "ids", "value", "key") if name in graph.inputs)


STEPPED = {
    name: block
    for name, block in CASES.items()
    if "T" in " ".join(block.example_inputs.values())
    and behavior(part_of(graph_of(block)), "T") != "full"
    and all("T" in t.axes or t.kind == "loss" for t in graph_of(block).outputs.values())
    and not (block.weighs or block.draws)
}
"""Cases that can decode: they do not look ahead, and output the axis that they read.

Losses and noise belong to objectives, which do not decode."""
