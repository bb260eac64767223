"""Forms: other implementations of blocks that an exporter cannot follow as they are.

torch's ONNX exporter traces Python: it unrolls a loop over positions as often as its example has
positions, and it fixes shapes that depend on the example's data.  A block whose module would be
exported wrongly names a replacement for one method (`BlockType.onnx_form`).
"""

from __future__ import annotations

from dataclasses import replace

from ..ir.graph import Graph, Part
from ..ir.traverse import visits


def onnx_forms(graph: Graph) -> Graph:
    """Return a graph whose blocks have the forms that the ONNX exporter can follow.

    Args:
        graph: a checked graph.
    """
    forms = {
        visit.module: visit.part.block.onnx_form
        for visit in visits(graph.root, "weights")
        if isinstance(visit.part, Part) and visit.part.block.onnx_form
    }
    return replace(graph, execution=replace(graph.execution, forms=forms))
