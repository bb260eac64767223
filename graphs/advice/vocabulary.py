"""Whether the output of a decoder has a score for each symbol that it may generate."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ...specs.findings import pointer
from ..ir.graph import Graph
from ..ir.value_type import ValueType
from .remark import Remark, scores_in, vocabularies

_FEW = 4
"""Number of special symbols, such as begin and end, that may be only read or only generated."""


def missing_projection(graph: Graph) -> Iterator[Remark]:
    """Yield the first output on the step axis if none has the size of the generated vocabulary.

    An output may also have the width of an input of activations along this axis: then the model
    generates these, and the ids are a condition of them.
    """
    axis = graph.step_axis
    sizes = vocabularies(graph, axis)
    along = {port: type_ for port, type_ in graph.outputs.items() if axis in type_.axes}
    if axis is None or not sizes or not along:
        return
    widths = {type_.axes[-1] for type_ in graph.inputs.values() if _generated(type_, axis)}
    if any(scores_in(t) in widths or _scores(t, sizes) for t in along.values()):
        return
    port, type_ = next(iter(along.items()))
    wanted = " or ".join(map(str, sorted(map(str, sizes))))
    yield Remark(
        at=pointer("outputs", port),
        problem=f"output '{port}' does not have a score for each of the {wanted} symbols",
        evidence=(f"given  {type_}",),
        help=f"end the model with a map to {wanted} values, such as 'linear@1'",
    )


def _generated(type_: ValueType, axis: str) -> bool:
    """Return whether a type is of activations along an axis."""
    return type_.kind == "f" and axis in type_.axes[:-1]


def _scores(type_: ValueType, sizes: Collection[object]) -> bool:
    """Return whether a type has a score for each symbol of one of the vocabularies."""
    size = scores_in(type_)
    whole = [one for one in sizes if isinstance(one, int)]
    return size in sizes or (isinstance(size, int) and any(abs(size - n) <= _FEW for n in whole))
