"""The time of a forward pass by node, within limits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from .....graphs.cost.flops import default_sizes
from .....graphs.cost.table import cost_table
from .....graphs.ir.graph import Graph
from .....specs.findings import InputError

MOST_FLOPS = 10**12
"""Maximum FLOPs of a forward pass that is measured."""
MOST_BYTES = 2 * 2**30
"""Maximum bytes of the weights and of the outputs of all nodes."""
MOST_SECONDS = 10.0
"""Time after which a measurement is given up."""


def times(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Measure a forward pass on random inputs.

    Args:
        graph: a checked graph.
        sizes: axis to its length; the others have a default.

    Returns:
        `nodes`, the seconds of each node with all that is in it, by path as in a drawing;
        `seconds` of the complete pass; `passes`, the number of measured ones; and `device`.

    Raises:
        InputError: an axis is unknown, or the sizes are beyond a limit.
    """
    lengths = default_sizes(graph)
    if unknown := sorted({*sizes} - {*lengths}):
        help_ = f"the axes are {', '.join(lengths)}"
        raise InputError(f"no axis '{unknown[0]}'", location="sizes", help=help_)
    lengths |= sizes
    refuse_large(graph, lengths)
    # Computing needs torch.
    from .....runtime.analysis.measure import measure_forward  # noqa: PLC0415

    profile = measure_forward(graph, lengths, seconds=MOST_SECONDS)
    seconds: dict[str, float] = defaultdict(float)
    for path, spent in profile.nodes.items():
        ends = [index for index, sign in enumerate(path) if sign in "./"]
        for end in (*ends, len(path)):
            seconds[path[:end]] += spent.forward
    return {
        "nodes": dict(seconds),
        "seconds": profile.seconds,
        "passes": profile.updates,
        "device": profile.device,
    }


def refuse_large(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Refuse sizes at which a pass would take too long or too much memory.

    Raises:
        InputError: they are too large.
    """
    table = cost_table(graph, sizes)
    bytes_ = 4 * graph.parameters() + table.activation_bytes
    for unit, needed, most in (("GFLOP", table.flops, MOST_FLOPS), ("GB", bytes_, MOST_BYTES)):
        if needed > most:
            raise InputError(
                f"a forward pass at these sizes takes {needed / 1e9:,.1f} {unit}, and the studio"
                f" measures up to {most / 1e9:,.1f}",
                location="sizes",
                help="choose smaller sizes, or run 'weft cost SPEC --measure'",
            )
