"""The graph of a run's objective, with the sizes that are known before its data is read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ....extensions.parsing.trees.columns.types import types_of
from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.value_type import ValueType
from ....specs.findings import pointer
from ....specs.load import load
from ....specs.recovery.settings import NO_SETTING, LostSettings
from ...data.columns.column import BATCH
from ...data.columns.objective import graph_of_inputs
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
from ...spec.check import with_blocks
from ..run import Run
from .context import OBJECTIVES, objective_file, opened_params


def graph_of_run(
    run: Run,
    source: str,
    blocks: Iterable[BlockType] = (),
    lost: LostSettings = NO_SETTING,
) -> Graph:
    """Return the graph of a run's objective, with the sizes that are known before the data is read.

    Args:
        run: the run.
        source: its file.
        blocks: block types that the objective may use besides the installed ones.
        lost: settings of the run that could not be read, so that their sizes are unknown.

    Raises:
        InputError: there is no such objective, or a checkpoint cannot be read.
        SpecError: the objective has mistakes, or a column does not fill one of its inputs.
    """
    params, _ = opened_params(run, source)
    loaded = with_blocks(load(objective_file(run, source), kind=OBJECTIVES), blocks)
    given, complete = planned_inputs(run, lost)
    return graph_of_inputs(loaded, params, given, complete=complete)


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
    types: dict[str, ValueType] = {}
    complete, sized = True, True
    for name, column in run.data.columns.items():
        unknown = lost.covers(pointer("data", "columns", name))
        planned = None if unknown else _planned(run, name, column)
        complete = complete and planned is not None
        types |= planned or {}
        if isinstance(column, TextSettings):
            wrong = lost.inside(pointer("tokenizers", column.tokenizer))
            sized = sized and not wrong and column.tokenizer in run.tokenizers
    if not sized:  # some sizes without the others might contradict each other
        types = {
            n: replace(one, size=None) if one.kind == "ids" else one for n, one in types.items()
        }
    return types, complete


def _planned(run: Run, name: str, column: ColumnSettings) -> Mapping[str, ValueType] | None:
    """Return the types of the inputs of one column; None if they are unknown."""
    time = (BATCH, column.of if isinstance(column, TagsSettings) else name)
    found: dict[str, ValueType] | None = None
    match column:
        case TextSettings():
            found = {name: ValueType("ids", time, _pieces(run, column.tokenizer))}
        case TreeSettings():
            types = types_of(column.decoder) if column.decoder != "sequence" else {}
            found = {f"{name}_{key}": type_ for key, type_ in types.items()}
        case ClassSettings() | TagsSettings():
            size = len(column.classes) if column.classes else None
            axes = time if isinstance(column, TagsSettings) else (BATCH,)
            found = {name: ValueType("label", axes, size)}
        case NumberSettings():
            found = {name: ValueType("f", (BATCH,))}
        case ImageSettings():
            found = {name: ValueType("f", (BATCH, *column.size))}
        case AudioSettings():
            found = {name: ValueType("f", time), f"{name}_mask": ValueType("mask", time)}
    return found


def _pieces(run: Run, tokenizer: str) -> int | None:
    """Return the number of pieces of a tokenizer, or the least number of symbols; None if unknown.

    Spelled symbols have the pieces of their spelling too.
    """
    own = run.tokenizers.get(tokenizer)
    if isinstance(own, SymbolSettings) and own.spelling is not None:
        own = run.tokenizers.get(own.spelling)
    return own.vocab_size if isinstance(own, PieceSettings) else None
