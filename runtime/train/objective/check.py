"""Checking a run of an objective before any of its data is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.value_type import ValueType
from ....graphs.passes.objective import deployed_graph
from ....graphs.passes.select import chosen
from ....specs.findings import Finding, InputError, SpecError, pointer
from ...data.columns.settings import (
    AudioSettings,
    ClassSettings,
    ColumnSettings,
    ImageSettings,
    NumberSettings,
    TagsSettings,
    TextSettings,
    TreeSettings,
)
from ...data.settings import PieceSettings, SymbolSettings
from ...data.treebank.columns.types import types_of
from ...spec.check import graph_of, with_blocks
from ..schedule import learning_rate
from .check_settings import effects, missing_files
from .context import objective_file, opened_params
from .graphs import sizes_of_columns, unfilled
from .settings import ObjectiveRun

_TAKEN = frozenset(
    {"auxiliary", "data_wait_share", "epoch", "mfu", "rate", "seconds", "tokens_per_second"}
) | {"samples", "type", "update"}
"""Values that the history of a run has besides losses and scores."""
_TIME = "T"
"""Stands for any time axis."""


def check_objective_run(
    run: ObjectiveRun,
    source: str,
    blocks: Iterable[BlockType] = (),
) -> list[Finding]:
    """Return everything that is wrong with a run, as far as it is known without its data.

    Args:
        run: the run.
        source: its file, or its name.
        blocks: block types that the run's objective may use besides the installed ones.
    """
    found = [*missing_files(run), *effects(run)]
    try:
        graph = graph_of_objective_run(run, source, blocks)
    except SpecError as error:
        return [*(replace(one, source=source) for one in found), *error.findings]
    except InputError as error:
        at = error.place.partition("#")[2] or "/objective"
        found.append(Finding(code="R02", at=at, problem=error.problem, help=error.help))
    else:
        found += [*_names(graph), *_of_graph(run, graph)]
    return [replace(one, source=source) for one in found]


def graph_of_objective_run(
    run: ObjectiveRun, source: str, blocks: Iterable[BlockType] = ()
) -> Graph:
    """Return the graph of a run's objective, with the sizes that are known before the data is read.

    Raises:
        InputError: there is no such objective, or a checkpoint cannot be read.
        SpecError: the objective has mistakes, or a column does not fill one of its inputs.
    """
    params, _ = opened_params(run, source)
    loaded = with_blocks(objective_file(run, source), blocks)
    given, complete = planned_inputs(run)
    sizes = sizes_of_columns(loaded.recovered.inputs, loaded.recovered.params, given)
    graph = graph_of(replace(loaded, overrides={**sizes, **params}))
    if complete and (found := list(unfilled(loaded, graph, given))):
        raise SpecError(found)
    return graph


def planned_inputs(run: ObjectiveRun) -> tuple[dict[str, ValueType], bool]:
    """Return the types of the inputs that the columns of a run will fill.

    Sizes that only the data tell are left out.

    Returns:
        The types by input, and whether they are complete: an installed package may add columns of
        which nothing is known here.
    """
    found: dict[str, ValueType] = {}
    complete = True
    for name, column in run.data.columns.items():
        made = _planned(run, name, column)
        complete = complete and made is not None
        found |= made or {}
    return found, complete


def _planned(
    run: ObjectiveRun, name: str, column: ColumnSettings
) -> Mapping[str, ValueType] | None:
    """Return the types of the inputs of one column; None if they are unknown."""
    time = ("B", _TIME)
    found: dict[str, ValueType] | None = None
    match column:
        case TextSettings():
            found = {name: ValueType("ids", time, _pieces(run, column.tokenizer))}
        case TreeSettings():
            types = types_of(column.decoder) if column.decoder != "sequence" else {}
            found = {f"{name}_{key}": type_ for key, type_ in types.items()}
        case ClassSettings() | TagsSettings():
            size = len(column.classes) if column.classes else None
            axes = time if isinstance(column, TagsSettings) else ("B",)
            found = {name: ValueType("label", axes, size)}
        case NumberSettings():
            found = {name: ValueType("f", ("B",))}
        case ImageSettings():
            found = {name: ValueType("f", ("B", *column.size))}
        case AudioSettings():
            found = {name: ValueType("f", time), f"{name}_mask": ValueType("mask", time)}
    return found


def _pieces(run: ObjectiveRun, tokenizer: str) -> int | None:
    """Return the number of pieces of a tokenizer, or the least number of symbols; None if unknown.

    Spelled symbols have the pieces of their spelling too.
    """
    own = run.tokenizers.get(tokenizer)
    if isinstance(own, SymbolSettings) and own.spelling is not None:
        own = run.tokenizers.get(own.spelling)
    return own.vocab_size if isinstance(own, PieceSettings) else None


def _names(graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each output whose name means something else in the history of a run."""
    several = len(graph.losses) > 1
    for name, type_ in graph.outputs.items():
        is_loss = type_.kind == "loss"
        if not (name in _TAKEN or (is_loss and several and name in {"loss", "nll"})):
            continue
        means = {"loss": "the sum of all losses", "nll": "a score"}.get(name, "another value")
        yield Finding(
            code="R04",
            at="/objective",
            problem=f"'{graph.name}' has an output '{name}', but in the history of a run this name"
            f" means {means}",
            help="rename the output, for example after its node",
        )


def _of_graph(run: ObjectiveRun, graph: Graph) -> Iterator[Finding]:
    """Yield a finding for each setting that the objective cannot fulfill."""
    if not graph.losses:
        yield Finding(
            code="R04",
            at="/objective",
            problem=f"'{graph.name}' has no output of kind 'loss', so it cannot train",
            help="name an objective, or add a loss to its outputs",
        )
    if graph.deploy is None:
        yield Finding(
            code="R04",
            at="/objective",
            problem=f"'{graph.name}' does not say which model training leaves behind",
            help='add "deploy" with the name of the node that contains it',
        )
    for key, selections in (
        ("freeze", run.freeze),
        ("activation_checkpointing", run.activation_checkpointing),
    ):
        texts = (selections,) if isinstance(selections, str) else selections
        for number, text in enumerate(texts):
            try:
                chosen(graph, text)
            except InputError as error:
                at = pointer(key, number)
                yield Finding(code="R03", at=at, problem=error.problem, help=error.help)
    if "auxiliary" in run.model_fields_set and not graph.root.unwired_losses():
        yield Finding(
            code="R01",
            at="/auxiliary",
            problem=f"the models of '{graph.name}' have no loss that the objective leaves unwired",
            help="remove it",
        )
    if run.parallel.tensor > 1:
        yield Finding(
            code="R04",
            at="/parallel/tensor",
            problem="the blocks of an objective cannot be partitioned yet",
            help="set it to 1; 'parallel.data' can be 'ddp' or 'fsdp'",
        )
    try:
        learning_rate(1, run.schedule, deployed_graph(graph).params.get("d_model"))
    except InputError as error:
        yield Finding(code="R04", at="/schedule", problem=error.problem, help=error.help)
