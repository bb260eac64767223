"""Checking a run before any of its data is read: its spec, files and settings.

The settings themselves are validated when the run is read (`run.py`).  Everything else that can be
known without the data is reported here, all of it at once; `weft check RUN` prints it, and
`weft train` refuses to begin.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...specs.findings import Finding, InputError, SpecError
from ...specs.load import LoadedSpec
from ..data.shards.corpus import Corpus
from ..spec.check import graph_of, with_blocks
from .checks.conflicts import conflicts
from .checks.disk import disk_space
from .checks.effects import without_effect
from .checks.files import start_checkpoint, text_files
from .checks.model import limits, model_settings, partition, ports, selections
from .objective.check import check_objective_run, graph_of_objective_run
from .objective.settings import ObjectiveRun
from .run import Run, spec_of


def check_run(
    run: Run | ObjectiveRun,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
) -> list[Finding]:
    """Return everything that is wrong with a run, as far as it is known without its data.

    Args:
        run: the run.
        source: its file, or its name.
        blocks: block types that the run's spec may use besides the installed ones.
        shortened: whether the number of updates was overridden, as one does to try a run: it may
            then end before dropout begins.
        folder: folder of the run; default: `outputs/NAME`.
    """
    if isinstance(run, ObjectiveRun):
        if wrong := check_objective_run(run, source, blocks):
            return wrong
        whole = graph_of_objective_run(run, source, blocks)
        space = disk_space(run, whole, folder or Path("outputs") / run.name)
        return [replace(one, source=source) for one in space]
    found = [
        *without_effect(run, shortened=shortened),
        *conflicts(run),
        *text_files(run.data),
        *start_checkpoint(run),
    ]
    try:
        graph = graph_of_run(run, source, blocks)
    except SpecError as error:
        return [*(replace(one, source=source) for one in found), *error.findings]
    except InputError as error:
        found.append(Finding(code="R02", at="/spec", problem=error.problem, help=error.help))
    else:
        found += [
            *ports(run, graph),
            *limits(run, graph),
            *model_settings(run, graph),
            *selections(run, graph),
            *partition(run, graph),
            *disk_space(run, graph, folder or Path("outputs") / run.name),
        ]
    return [replace(one, source=source) for one in found]


def refuse_wrong_run(
    run: Run | ObjectiveRun,
    source: str,
    blocks: Iterable[BlockType] = (),
    *,
    shortened: bool = False,
    folder: Path | None = None,
) -> None:
    """Raise an error if anything is wrong with a run; arguments as of `check_run`.

    Raises:
        SpecError: `check_run` found something.
    """
    if found := check_run(run, source, blocks, shortened=shortened, folder=folder):
        raise SpecError(found)


def graph_of_run(run: Run | ObjectiveRun, source: str, blocks: Iterable[BlockType] = ()) -> Graph:
    """Return the graph of a run, with the vocabulary size requested for its tokenizers.

    Raises:
        InputError: there is no such spec.
        SpecError: the spec is wrong.
    """
    if isinstance(run, ObjectiveRun):
        return graph_of_objective_run(run, source, blocks)
    return graph_of(loaded_of_run(run, source, blocks))


def loaded_of_run(run: Run, source: str, blocks: Iterable[BlockType] = ()) -> LoadedSpec:
    """Return the spec of a run with the run's params; arguments and errors as of `graph_of_run`."""
    loaded = with_blocks(spec_of(run, source), blocks)
    sizes = dict.fromkeys(("vocab", "source_vocab", "target_vocab"), run.tokenizer.vocab_size)
    known = {name: size for name, size in sizes.items() if name in loaded.form.params}
    return replace(loaded, overrides={**known, **run.params})


def refuse_long_pairs(graph: Graph, corpora: Iterable[Corpus]) -> None:
    """Raise an error if a pair is longer than the model has positions.

    Args:
        graph: graph of the model.
        corpora: prepared training and validation pairs.

    Raises:
        InputError: a pair is too long; the help names the filter that drops it.
    """
    most = min(position_limits(graph), default=None)
    lengths = (getattr(c, side) for c in corpora for side in ("source_lengths", "target_lengths"))
    longest = max((int(one.max(initial=0)) for one in lengths), default=0) + 1
    if most is not None and longest > most:
        raise InputError(
            f"the longest sentence has {longest} tokens, end token included, but '{graph.name}'"
            f" has {most} positions",
            place="/data/filter/max_length",
            help=f"set data.filter.max_length to {most - 1} (it does not drop validation pairs),"
            " or give the spec more positions",
        )
