"""The graph of an objective with the sizes of its columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.value_type import ValueType
from ....specs.findings import Finding, SpecError, pointer
from ....specs.load import LoadedSpec
from ...data.columns.column import Column
from ...spec.check import graph_of, with_blocks

_SIZED = re.compile(r"\s*[a-z]+(?::(?P<size>[^\[\]]+))?\[(?P<axes>[^\[\]]*)\]")


def objective_graph(
    name: str,
    params: Mapping[str, Any],
    columns: Mapping[str, Column],
    blocks: Iterable[BlockType] = (),
) -> Graph:
    """Return the graph of an objective, whose sizes follow the columns.

    Args:
        name: path or shipped name of the objective.
        params: overrides of its params; they take precedence over the sizes of columns.
        columns: prepared columns.
        blocks: block types that it may use besides the installed ones.

    Raises:
        SpecError: the objective has mistakes, or no column fills one of its inputs.
    """
    loaded = with_blocks(name, blocks)
    given = filled_inputs(columns)
    sizes = sizes_of_columns(loaded.recovered.inputs, loaded.recovered.params, given)
    graph = graph_of(replace(loaded, overrides={**sizes, **params}))
    if found := list(unfilled(loaded, graph, given)):
        raise SpecError(found)
    return graph


def filled_inputs(columns: Mapping[str, Column]) -> dict[str, ValueType]:
    """Return the types of all inputs that columns fill."""
    return {name: type_ for column in columns.values() for name, type_ in column.inputs.items()}


def sizes_of_columns(
    inputs: Mapping[str, str], params: Mapping[str, Any], given: Mapping[str, ValueType]
) -> dict[str, int]:
    """Return the params of an objective that are sizes of its inputs.

    A param that is the size of several inputs has the largest of their sizes.

    Args:
        inputs: input to its type, as the objective writes it.
        params: the params of the objective.
        given: inputs that columns fill, and their types.
    """
    found: dict[str, int] = {}
    for name, text in inputs.items():
        parts = _SIZED.match(text)
        if name not in given or parts is None:
            continue
        pairs = [(parts["size"], given[name].size)]
        pairs += zip(parts["axes"].split()[::-1], given[name].axes[::-1], strict=False)
        for word, size in pairs:
            if word in params and isinstance(size, int):
                found[word] = max(size, found.get(word, 0))
    return found


def unfilled(loaded: LoadedSpec, graph: Graph, given: Mapping[str, ValueType]) -> Iterable[Finding]:
    """Yield a finding for each input of an objective that no column fills as its type says."""
    for name, type_ in graph.inputs.items():
        at = pointer("inputs", name)
        problem, help_ = "", "change the type of the column"
        if name not in given:
            help_ = "add a column of this name to 'data.columns'"
            problem = f"no column fills the input '{name}' of the objective"
        elif given[name].kind != type_.kind or len(given[name].axes) != len(type_.axes):
            problem = f"the column fills the input '{name}' with {given[name]}, not {type_}"
        elif isinstance(type_.size, int) and _size(given[name]) > type_.size:
            problem = (
                f"the column of input '{name}' has values up to {given[name].size},"
                f" but the objective reads values below {type_.size}"
            )
        if problem:
            yield loaded.place(
                Finding(
                    code="R06",
                    at=at,
                    problem=problem,
                    evidence=(f"the columns fill {', '.join(given) or 'nothing'}",),
                    help=help_,
                )
            )


def _size(type_: ValueType) -> int:
    """Return the size of a type; 0 if it is not known."""
    return type_.size if isinstance(type_.size, int) else 0
