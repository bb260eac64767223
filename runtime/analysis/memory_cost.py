"""Cost: what a spec costs to run, the memory of its decoding included.

What a decoder remembers is read off the state that the model itself begins with, made
on torch's `meta` device, where tensors have sizes and no memory.
Not here: the costs that need no module (`graphs/cost/table.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...blocks.kernels.decode_state import Capacity, State
from ...graphs.ir.dims import evaluate
from ...graphs.ir.graph import Graph, Scope
from ...graphs.ir.value_type import ValueType
from ..codegen.build import build_empty
from ..codegen.decode import KEPT, kept_value

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def cache_by_node(
    graph: Graph, sizes: Mapping[str, int], precision: str = "float32"
) -> dict[str, int]:
    """Return the bytes that decoding keeps from one step to the next.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to how long it is; that of the step axis is how far is
            decoded, and that of the batch how many sentences, one hypothesis each.
        precision: a key of `DTYPES`.

    Returns:
        Path to bytes, for the nodes that remember something and for the values that do
        not change and are kept; nothing for a graph that has no step axis.
    """
    axis = graph.step_axis
    if axis is None:
        return {}
    dtype, meta = DTYPES[precision], torch.device("meta")
    model: Any = build_empty(graph, device=meta).to(dtype).eval()
    batch = next((sizes[name] for name, kind in graph.spec.axes.items() if kind == "batch"), 1)
    fixed = {
        port: _empty(type_, sizes, dtype)
        for port, type_ in graph.inputs.items()
        if axis not in type_.axes
    }
    with torch.inference_mode():
        state = model.begin(Capacity(batch, 1, sizes[axis], dtype, meta), **fixed)
    held: dict[str, int] = {}
    for path, count in _held(state, graph.root, ""):
        held[path] = held.get(path, 0) + count
    return held


def _empty(type_: ValueType, sizes: Mapping[str, int], dtype: torch.dtype) -> Tensor:
    """Return a value of a type that has a shape and nothing in it."""
    shape = [evaluate(axis, sizes) for axis in type_.axes]
    if type_.kind in ("ids", "label", "len", "pos"):
        dtype = torch.int64
    elif type_.kind == "mask":
        dtype = torch.bool
    return torch.empty(shape, dtype=dtype, device="meta")


def _held(state: Mapping[str, Any], scope: Scope, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield path and bytes of what the nodes of a scope remember."""
    nodes = {node.name: node for node in scope.nodes}
    for name, held in state.items():
        if name.startswith(KEPT):
            yield prefix + kept_value(name)[0], _bytes(held)
            continue
        node = nodes[name]
        if node.part is not None:
            yield prefix + name, _bytes(held)
        elif node.repeat is None and node.body is not None:
            yield from _held(held, node.body, f"{prefix}{name}.")
        else:
            for index, body in node.copies():
                below = "" if node.share else f"{index}." if index in node.instead else "*."
                yield from _held(held[index], body, f"{prefix}{name}.{below}")


def _bytes(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, State):
        return sum(_bytes(dict(capacity)) for capacity in state)
    inner = state.values() if isinstance(state, Mapping) else state
    return sum(map(_bytes, inner))
