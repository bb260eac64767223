"""Axes of weights with an entry for each class, such as the rows of a classifier's head."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.value_type import sizes_of_inputs
from ....specs.findings import SpecError
from ...data.columns.column import Column
from ...data.columns.labels import LabelColumn
from ...data.columns.objective import graph_of_inputs
from ...spec.check import with_blocks

Axes = Mapping[str, tuple[int, ...]]
"""Path of a weight to its axes with an entry for each class."""


def class_axes(
    name: str,
    params: Mapping[str, Any],
    columns: Mapping[str, Column],
    graph: Graph,
    blocks: Iterable[BlockType] = (),
) -> dict[str, Axes | None]:
    """Return the axes of an objective's weights that count the classes of each column of labels.

    They are those that are one longer in the graph for one class more.

    Args:
        name: path or shipped name of the objective.
        params: overrides of its params.
        columns: prepared columns.
        graph: the graph of the objective with these columns.
        blocks: block types that it may use besides the installed ones.

    Returns:
        The axes by column; None if the params fix the number of classes, so that there is no such
        graph.
    """
    given = {key: type_ for column in columns.values() for key, type_ in column.inputs.items()}
    objective = with_blocks(name, blocks)
    inputs, known = objective.recovered.inputs, objective.recovered.params
    found: dict[str, Axes | None] = {}
    for column, labels in columns.items():
        if not isinstance(labels, LabelColumn) or column not in graph.inputs:
            continue
        more = replace(given[column], size=len(labels.classes) + 1)
        sizes = sizes_of_inputs(inputs, known, {column: more})
        fixed = {key: size for key, size in sizes.items() if key in params}
        try:
            longer = graph_of_inputs(objective, {**params, **fixed}, {**given, column: more})
        except SpecError:
            found[column] = None
            continue
        after = longer.weights()
        found[column] = {
            path: tuple(axis for axis, size in enumerate(shape) if after[path][axis] == size + 1)
            for path, shape in graph.weights().items()
            if path in after and after[path] != shape and len(after[path]) == len(shape)
        }
    return found
