"""Forms of blocks that torch's ONNX exporter can follow for every length.

The exporter traces Python: it unrolls a loop over positions as often as its example has
positions, and it fixes shapes that depend on the example's data.  A block whose module would be
exported wrongly names a replacement for one method (`BlockType.onnx_form`), which is used only
while a graph is exported.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import nn

from ....blocks.registry import full_path
from ....graphs.ir.graph import Graph, Part
from ....graphs.ir.traverse import visits


@contextmanager
def onnx_forms(model: nn.Module, graph: Graph) -> Iterator[None]:
    """Replace methods of a module's blocks by forms that torch's exporter can follow.

    Args:
        model: built from the graph, or from a part of it; restored on exit.
        graph: names the blocks and their modules.
    """
    changed: list[tuple[nn.Module, str]] = []
    known = dict(model.named_modules())
    try:
        for visit in visits(graph.root, "weights"):
            form = visit.part.block.onnx_form if isinstance(visit.part, Part) else ""
            inner = known.get(visit.module)
            if form and inner is not None:
                method, _, path = form.partition("=")
                file, _, function = full_path(path).partition(":")
                replacement = getattr(importlib.import_module(file), function)
                # An attribute of the object hides the method of its class.
                setattr(inner, method, partial(replacement, inner))
                changed.append((inner, method))
        yield
    finally:
        for inner, method in changed:
            delattr(inner, method)
