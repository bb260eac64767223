"""The graph of an objective with the sizes of its columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.value_type import ValueType, sizes_of_inputs
from ....specs.findings import Finding, SpecError, pointer
from ....specs.form import holds_spec
from ....specs.load import OVERRIDES, LoadedSpec, load
from ...spec.check import graph_of, with_blocks
from .column import Column
from .fitting import Fitting


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
    loaded = with_blocks(load(name, kind="objectives"), blocks)
    return graph_of_inputs(loaded, params, inputs_of(columns))


def inputs_of(columns: Mapping[str, Column]) -> dict[str, ValueType]:
    """Return the types of all inputs that columns fill, by name."""
    return {name: type_ for column in columns.values() for name, type_ in column.inputs.items()}


def graph_of_inputs(
    loaded: LoadedSpec,
    params: Mapping[str, Any],
    given: Mapping[str, ValueType],
    *,
    complete: bool = True,
) -> Graph:
    """Return the graph of an objective, whose sizes follow the inputs that columns fill.

    Args:
        loaded: the objective.
        params: overrides of its params; they take precedence over sizes.
        given: inputs that columns fill, and their types.
        complete: whether no other inputs are filled, so that a missing one is a mistake.

    Raises:
        SpecError: the objective has mistakes, or no column fills one of its inputs.
    """
    # Missing columns come first, because the sizes of the objective follow its inputs.
    if complete and (found := _missing(loaded, given)):
        raise SpecError(found)
    sizes = sizes_of_inputs(loaded.recovered.inputs, loaded.recovered.params, given)
    overrides = {**sizes, **with_defaults(loaded, params)}
    try:
        graph = graph_of(replace(loaded, overrides=overrides))
    except SpecError as error:
        if not (own := _other_sizes(loaded, overrides, sizes)):
            raise
        # Each wire to and from such a model is also a mistake, of which this is the cause.
        rest = [one for one in error.findings if one.code != "T03"]
        raise SpecError([*own, *rest]) from None
    if complete and (found := _misfits(loaded, graph, given)):
        raise SpecError(found)
    return graph


def _other_sizes(
    loaded: LoadedSpec, overrides: Mapping[str, Any], sizes: Mapping[str, Any]
) -> list[Finding]:
    """Return a finding for each size of a held model that its columns do not have.

    Args:
        loaded: the objective.
        overrides: overrides of its params.
        sizes: params that are sizes of the inputs, as the columns give them.
    """
    found = []
    for name, value in {**loaded.recovered.params, **overrides}.items():
        own = value.get("params") if holds_spec(value) else None
        found += [
            Finding(
                code="T03",
                at=pointer("params", name, "params", key),
                problem=f"'{key}' of the model is {size}, but its columns have {sizes[key]}",
                help="remove it: it follows the columns",
                source=OVERRIDES if name in overrides else loaded.source,
            )
            for key, size in (own.items() if isinstance(own, dict) else ())
            if isinstance(size, int) and isinstance(sizes.get(key), int) and size != sizes[key]
        ]
    return found


def with_defaults(loaded: LoadedSpec, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides of an objective's params, in which models without a spec are completed.

    `{"params": {"dropout": 0.3}}` changes params of the model that the objective holds by default.

    Args:
        loaded: the objective.
        params: overrides of its params.
    """
    made = dict(params)
    for name, value in params.items():
        default = loaded.recovered.params.get(name)
        if not isinstance(default, dict) or not holds_spec(default):
            continue
        if isinstance(value, dict) and value.keys() <= {"params", "patch"}:
            inner = {**default.get("params", {}), **value.get("params", {})}
            made[name] = {**default, **value, "params": inner}
    return made


def _misfits(loaded: LoadedSpec, graph: Graph, given: Mapping[str, ValueType]) -> list[Finding]:
    """Return a finding for each input of an objective that a column fills with another type."""
    found = []
    for name, type_ in graph.inputs.items():
        problem = ""
        if given[name].kind != type_.kind or len(given[name].axes) != len(type_.axes):
            problem = f"the column fills the input '{name}' with {given[name]}, not {type_}"
        elif isinstance(type_.size, int) and _size(given[name]) > type_.size:
            problem = (
                f"the column of input '{name}' has values up to {given[name].size},"
                f" but the objective reads values below {type_.size}"
            )
        if problem:
            found.append(_misfit(loaded, name, problem, "change the type of the column", given))
    if not found:
        help_ = "write an axis such as S, S+1 or 4*S, and give each column an axis of its own"
        found = [
            _misfit(loaded, name, f"{problem}: {graph.inputs[name]}", help_, given)
            for name, problem in Fitting.of(graph, given).problems()
        ]
    return found


def _missing(loaded: LoadedSpec, given: Mapping[str, ValueType]) -> list[Finding]:
    """Return a finding for each input of an objective that no column fills."""
    help_ = "add a column of this name to 'data.columns'"
    return [
        _misfit(loaded, name, f"no column fills the input '{name}' of the objective", help_, given)
        for name in loaded.recovered.inputs
        if name not in given
    ]


def _misfit(
    loaded: LoadedSpec, name: str, problem: str, help_: str, given: Mapping[str, ValueType]
) -> Finding:
    """Return the finding about an input of an objective."""
    return loaded.place(
        Finding(
            code="R06",
            at=pointer("inputs", name),
            problem=problem,
            evidence=(f"the columns fill {', '.join(given) or 'nothing'}",),
            help=help_,
        )
    )


def _size(type_: ValueType) -> int:
    """Return the size of a type; 0 if it is not known."""
    return type_.size if isinstance(type_.size, int) else 0
