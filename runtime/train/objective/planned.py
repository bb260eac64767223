"""The graph of a run's objective, with the sizes that are known before its data is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ....graphs.ir.block_type import BlockType
from ....graphs.ir.graph import Graph
from ....graphs.ir.value_type import ValueType
from ....specs.findings import pointer
from ....specs.load import load
from ....specs.recovery.lost_settings import NO_SETTING, LostSettings
from ...data.columns.objective import graph_of_inputs
from ...data.columns.settings import TextSettings
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
        planned = None if unknown else column.planned_inputs(name, run.tokenizers)
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
