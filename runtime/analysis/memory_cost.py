"""Memory of a spec's decoding state.

The sizes are those of the state with which the model begins decoding, created on torch's
`meta` device, where tensors have shapes but no memory.  The costs that need no module are in
`graphs/cost/table.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ...blocks.kernels.decode_state import Capacity, State
from ...graphs.ir.dims import evaluate
from ...graphs.ir.graph import BlockNode, Graph, Scope, TemplateNode
from ...graphs.ir.value_type import ValueType
from ..codegen.build import build_empty
from ..codegen.decode import KEPT, kept_value

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def cache_by_node(
    graph: Graph, sizes: Mapping[str, int], precision: str = "float32"
) -> dict[str, int]:
    """Return the bytes of the decoding state by node.

    Args:
        graph: a checked graph.
        sizes: length of each axis of the graph; the step axis is the number of decoded positions,
            the batch axis the number of sentences, one hypothesis each.
        precision: a key of `DTYPES`.

    Returns:
        Path to bytes, for nodes with state and for constant values that are cached; empty for a
        graph without a step axis.
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
    found: dict[str, int] = {}
    for path, count in _state_bytes(state, graph.root, ""):
        found[path] = found.get(path, 0) + count
    return found


def _empty(type_: ValueType, sizes: Mapping[str, int], dtype: torch.dtype) -> Tensor:
    """Return a tensor on the meta device with the shape and dtype of a type."""
    shape = [evaluate(axis, sizes) for axis in type_.axes]
    if type_.kind in ("ids", "label", "len", "pos"):
        dtype = torch.int64
    elif type_.kind == "mask":
        dtype = torch.bool
    return torch.empty(shape, dtype=dtype, device="meta")


def _state_bytes(state: Mapping[str, Any], scope: Scope, prefix: str) -> Iterator[tuple[str, int]]:
    """Yield path and bytes of the state of the nodes of a scope."""
    nodes = {node.name: node for node in scope.nodes}
    for name, inner in state.items():
        if name.startswith(KEPT):
            yield prefix + kept_value(name)[0], _bytes(inner)
            continue
        node = nodes[name]
        if isinstance(node, BlockNode):
            yield prefix + name, _bytes(inner)
        elif isinstance(node, TemplateNode):
            yield from _state_bytes(inner, node.body, f"{prefix}{name}.")
        else:
            for index, body in node.copies():
                below = "" if node.share else f"{index}." if index in node.instead else "*."
                yield from _state_bytes(inner[index], body, f"{prefix}{name}.{below}")


def _bytes(state: Any) -> int:
    """Return the bytes of all tensors in a state."""
    if isinstance(state, Tensor):
        return state.nbytes
    if isinstance(state, State):
        return sum(_bytes(dict(capacity)) for capacity in state)
    inner = state.values() if isinstance(state, Mapping) else state
    return sum(map(_bytes, inner))
