"""The objective of a run: a graph whose inputs are columns and whose outputs are losses; no torch.

Its sizes are those of the columns, as far as they are known before the data is read.  If the data
tell another size of a column, the objective is type-checked again; otherwise once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType, sizes_of_inputs
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import Finding, InputError, SpecError, did_you_mean, nearest_shipped, pointer
from ...specs.form import UseNode, holds_spec, kind_of
from ...specs.inherit import parent_of
from ...specs.load import FOLDERS, OVERRIDES, LoadedSpec, SpecFile, load
from ...specs.lost_settings import NO_SETTING, LostSettings
from ...specs.reader import read_file, shipped_names
from ..checkpoint.curve import SCALAR
from ..data.columns.column import Column, inputs_of
from ..data.columns.column_settings import TextSettings
from ..data.columns.fitting import Fitting
from ..spec.check import graph_of, with_blocks
from ..system.strangers import json_in
from .run import Run

OBJECTIVES = "objectives"
"""Folder of `specs/` that contains the shipped objectives."""
CHECKPOINT = "checkpoint"
"""Key of a param of a run that holds the model of a checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """The objective of a run, type-checked for the columns of the run."""

    loaded: LoadedSpec
    """Its spec."""
    params: Mapping[str, Any]
    """Overrides of its params, with the specs of checkpoints."""
    checkpoints: Mapping[str, Path]
    """Param to the checkpoint whose model it holds."""
    columns: Mapping[str, ValueType]
    """Types of the inputs that the columns and `values` fill, as far as they are known."""
    values: frozenset[str] = frozenset()
    """The inputs that `values` of the run fill."""
    graph: Graph

    @classmethod
    def of(
        cls,
        run: Run,
        source: str,
        blocks: Iterable[BlockType] = (),
        lost: LostSettings = NO_SETTING,
    ) -> Objective:
        """Return the objective of a run, with the sizes that are known before the data is read.

        Args:
            run: the run.
            source: its file.
            blocks: block types that the objective may use besides the installed ones.
            lost: settings of the run that could not be read, so that their sizes are unknown.

        Raises:
            InputError: there is no such objective, or a checkpoint cannot be read.
            SpecError: the objective has mistakes, or a column does not fill one of its inputs.
        """
        params, checkpoints = _opened_params(run, source)
        loaded = with_blocks(load(objective_file(run, source), kind=OBJECTIVES), blocks)
        columns, complete = planned_inputs(run, lost)
        if unread := [name for name in run.values if name not in loaded.recovered.inputs]:
            raise SpecError([_unread(name, loaded, source) for name in unread])
        return cls(
            loaded=loaded,
            params=params,
            checkpoints=checkpoints,
            columns=columns,
            values=frozenset(run.values),
            graph=graph_of_inputs(loaded, params, columns, complete=complete),
        )

    def with_columns(self, columns: Mapping[str, Column]) -> Objective:
        """Return the objective with the sizes of prepared columns.

        Raises:
            SpecError: the objective has mistakes, or a column does not fill one of its inputs.
        """
        types = {**dict.fromkeys(self.values, SCALAR), **inputs_of(columns)}
        if types == self.columns:
            return self
        return replace(self, columns=types, graph=graph_of_inputs(self.loaded, self.params, types))

    def base(self, params: Mapping[str, int]) -> Graph:
        """Return the graph of the objective with other sizes of the model that it trains.

        Raises:
            InputError: the model has no such param, or is not well-formed with these sizes.
        """
        node = self.graph.spec.nodes.get(self.graph.deploy or "")
        name = node.use.removeprefix("=").strip() if isinstance(node, UseNode) else ""
        changed: dict[str, Any] = dict(self.params)
        if name in self.graph.spec.params:
            model = changed.get(name, self.graph.spec.params[name])
            model = {"spec": model} if isinstance(model, str) else dict(model)
            changed[name] = {**model, "params": {**model.get("params", {}), **params}}
        else:
            changed |= params
        declared = deployed_graph(self.graph).params
        for key in params:
            if key not in declared:
                problem = f"'{deployed_graph(self.graph).name}' has no param '{key}'"
                raise InputError(problem, location=pointer(key), help=did_you_mean(key, declared))
        try:
            return graph_of_inputs(self.loaded, changed, self.columns, complete=False)
        except SpecError as error:
            first = error.findings[0]
            raise InputError(
                f"the base model has a mistake: {first.problem}", location="", help=first.help
            ) from error

    @property
    def weights(self) -> dict[str, Path]:
        """The checkpoint of each node whose param holds the model of one."""
        return {
            name: self.checkpoints[node.use.removeprefix("=").strip()]
            for name, node in self.graph.spec.nodes.items()
            if isinstance(node, UseNode) and node.use.removeprefix("=").strip() in self.checkpoints
        }


@dataclass(frozen=True, slots=True)
class Objectives:
    """Objectives of the runs of one plan, of which many differ in other settings alone."""

    checked: dict[tuple[str, ...], Objective] = field(default_factory=dict)
    """Each objective by all that it depends on."""

    def of(self, run: Run, source: str) -> Objective:
        """Return the objective of a run, type-checked once; see `Objective.of`."""
        written = {"params", "tokenizers", "values"}
        settings = run.model_dump(mode="json", include=written, by_alias=True)
        columns = run.data.model_dump(mode="json", include={"columns"}, by_alias=True)
        key = (source, run.objective, json.dumps([settings, columns], default=repr))
        if key not in self.checked:
            self.checked[key] = Objective.of(run, source)
        return self.checked[key]


def objective_file(run: Run, source: str) -> str:
    """Return the objective of a run: a shipped one, or a file in the run's folder.

    Raises:
        InputError: there is none of this name.
    """
    path = _named(run.objective, source, OBJECTIVES)
    if path is None:
        near = nearest_shipped(run.objective, known_objectives(run, source), OBJECTIVES)
        raise InputError(
            f"no objective '{run.objective}'",
            location=f"{source}#/objective",
            help=near if near.startswith("did") else f"name a file in the run's folder; {near}",
        )
    return str(path)


def known_objectives(run: Run, source: str) -> list[str]:
    """Return what a run could name as its objective: shipped ones, and files in its folder."""
    ending = ".json" if run.objective.endswith(".json") else ""
    beside = {path.stem for path in Path(source).parent.glob("*.json")} - {Path(source).stem}
    return [f"{name}{ending}" for name in beside] + list(shipped_names(OBJECTIVES))


def _named(name: str, source: str, *folders: str) -> Path | None:
    """Return the file of the spec or objective that a run names, in its folder or shipped.

    A run often has the name of its model, so another run in the folder does not hide a shipped
    file.

    Args:
        name: what the run names.
        source: file of the run.
        folders: folders of `specs/` with the shipped files.
    """
    path = parent_of(name, Path(source), *folders)
    shipped = shipped_names(*folders).get(name)
    if path is None or shipped is None or path == shipped:
        return path
    try:
        return shipped if kind_of(read_file(path)[0]) == "run" else path
    except (InputError, SpecError):  # reported where the file is loaded
        return path


def _opened_params(run: Run, source: str) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return the params of a run with the specs of checkpoints, and these checkpoints by param.

    A param `{"checkpoint": FOLDER}` holds the model of a checkpoint with its weights, and
    `{"spec": NAME}` a spec in the folder of the run, or a shipped one.

    Args:
        run: the run.
        source: its file.

    Raises:
        InputError: a folder is not a checkpoint.
    """
    params, folders = dict(run.params), {}
    for name, value in run.params.items():
        if isinstance(value, dict) and isinstance(value.get("spec"), str):
            file = _named(value["spec"], source, *FOLDERS)
            if file is not None:
                params[name] = {**value, "spec": SpecFile(file)}
        if not isinstance(value, dict) or CHECKPOINT not in value:
            continue
        folder = Path(str(value[CHECKPOINT]))
        location = f"#{pointer('params', name, CHECKPOINT)}"
        if value.keys() != {CHECKPOINT}:
            raise InputError(
                "a param with 'checkpoint' has no other keys", location=location, help="remove them"
            )
        try:
            spec, _ = json_in(folder, "spec.json")
        except InputError as error:
            raise InputError(
                f"'{folder}' is not a checkpoint: {error.problem}",
                location=location,
                help="name a folder such as outputs/RUN/averaged",
            ) from error
        params[name], folders[name] = {"spec": spec}, folder
    return params, folders


def planned_inputs(run: Run, lost: LostSettings = NO_SETTING) -> tuple[dict[str, ValueType], bool]:
    """Return the types of the inputs that the columns of a run will fill.

    Sizes that only the data tell are left out.

    Args:
        run: the run.
        lost: settings that could not be read; their columns and sizes are unknown.

    Returns:
        The types by input, and whether they are complete: an installed package may add columns of
        which nothing is known here.
    """
    types = dict.fromkeys(run.values, SCALAR)
    complete, sized = True, True
    for name, column in run.data.columns.items():
        unknown = lost.covers(pointer("data", "columns", name))
        planned = None if unknown else column.planned_inputs(name, run.tokenizers)
        complete = complete and planned is not None
        types |= planned or {}
        if isinstance(column, TextSettings):
            wrong = lost.inside(pointer("tokenizers", column.tokenizer))
            sized = sized and not (wrong or unknown) and column.tokenizer in run.tokenizers
    if not sized:  # some sizes without the others might contradict each other
        types = {
            name: replace(type_, size=None) if type_.kind == "ids" else type_
            for name, type_ in types.items()
        }
    return types, complete


def graph_of_inputs(
    loaded: LoadedSpec,
    params: Mapping[str, Any],
    types: Mapping[str, ValueType],
    *,
    complete: bool = True,
) -> Graph:
    """Return the graph of an objective, whose sizes follow the inputs that columns fill.

    Args:
        loaded: the objective.
        params: overrides of its params; they take precedence over sizes.
        types: inputs that columns fill, and their types.
        complete: whether no other inputs are filled, so that a missing one is a mistake.

    Raises:
        SpecError: the objective has mistakes, or no column fills one of its inputs.
    """
    # Missing columns come first, because the sizes of the objective follow its inputs.
    if complete and (findings := _missing(loaded, types)):
        raise SpecError(findings)
    sizes = sizes_of_inputs(loaded.recovered.inputs, loaded.recovered.params, types)
    overrides = {**sizes, **with_defaults(loaded, params)}
    try:
        graph = graph_of(replace(loaded, overrides=overrides))
    except SpecError as error:
        if not (wrong := _other_sizes(loaded, overrides, sizes)):
            raise
        # Each wire to and from such a model is also a mistake, of which this is the cause.
        others = [finding for finding in error.findings if finding.code != "T03"]
        raise SpecError([*wrong, *others]) from None
    if complete and (findings := _misfits(loaded, graph, types)):
        raise SpecError(findings)
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
    findings = []
    for name, value in {**loaded.recovered.params, **overrides}.items():
        inner = value.get("params") if holds_spec(value) else None
        findings += [
            Finding(
                code="T03",
                at=pointer("params", name, "params", key),
                problem=f"'{key}' of the model is {size}, but its columns have {sizes[key]}",
                help="remove it: it follows the columns",
                source=OVERRIDES if name in overrides else loaded.source,
            )
            for key, size in (inner.items() if isinstance(inner, dict) else ())
            if isinstance(size, int) and isinstance(sizes.get(key), int) and size != sizes[key]
        ]
    return findings


def with_defaults(loaded: LoadedSpec, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides of an objective's params, in which models without a spec are completed.

    `{"params": {"dropout": 0.3}}` changes params of the model that the objective holds by default.

    Args:
        loaded: the objective.
        params: overrides of its params.
    """
    completed = dict(params)
    for name, value in params.items():
        default = loaded.recovered.params.get(name)
        if not isinstance(default, dict) or not holds_spec(default):
            continue
        if isinstance(value, dict) and value.keys() <= {"params", "patch"}:
            inner = {**default.get("params", {}), **value.get("params", {})}
            completed[name] = {**default, **value, "params": inner}
    return completed


def _misfits(loaded: LoadedSpec, graph: Graph, types: Mapping[str, ValueType]) -> list[Finding]:
    """Return a finding for each input of an objective that a column fills with another type."""
    findings = []
    for name, type_ in graph.inputs.items():
        problem = ""
        if types[name].kind != type_.kind or len(types[name].axes) != len(type_.axes):
            problem = f"the column fills the input '{name}' with {types[name]}, not {type_}"
        elif isinstance(type_.size, int) and _size(types[name]) > type_.size:
            problem = (
                f"the column of input '{name}' has values up to {types[name].size},"
                f" but the objective reads values below {type_.size}"
            )
        if problem:
            findings.append(_misfit(loaded, name, problem, "change the type of the column", types))
    if not findings:
        help_ = "write an axis such as S, S+1 or 4*S, and give each column an axis of its own"
        findings = [
            _misfit(loaded, name, f"{problem}: {graph.inputs[name]}", help_, types)
            for name, problem in Fitting.of(graph, types).problems()
        ]
    return findings


def _missing(loaded: LoadedSpec, types: Mapping[str, ValueType]) -> list[Finding]:
    """Return a finding for each input of an objective that no column fills."""
    help_ = "add a column of this name to 'data.columns', or an input of type f[] to 'values'"
    return [
        _misfit(loaded, name, f"no column fills the input '{name}' of the objective", help_, types)
        for name in loaded.recovered.inputs
        if name not in types
    ]


def _unread(name: str, loaded: LoadedSpec, source: str) -> Finding:
    """Return the finding about a value of a run that the objective does not read."""
    help_ = did_you_mean(name, loaded.recovered.inputs) or "remove it"
    problem = f"the objective '{loaded.recovered.name}' has no input '{name}'"
    return Finding(
        code="R01", at=pointer("values", name), problem=problem, help=help_, source=source
    )


def _misfit(
    loaded: LoadedSpec, name: str, problem: str, help_: str, types: Mapping[str, ValueType]
) -> Finding:
    """Return the finding about an input of an objective."""
    return loaded.place(
        Finding(
            code="R06",
            at=pointer("inputs", name),
            problem=problem,
            evidence=(f"the columns fill {', '.join(types) or 'nothing'}",),
            help=help_,
        )
    )


def _size(type_: ValueType) -> int:
    """Return the size of a type; 0 if it is not known."""
    return type_.size if isinstance(type_.size, int) else 0
