"""The weights that a training takes from another checkpoint: which, and where they go.

Weights whose paths and shapes are equal are copied, unless lines of the run say otherwise.  Entries
of weights that belong to a class or to a piece of a tokenizer follow its name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from ...graphs.diff.diff import diff
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import sizes_of_inputs
from ...graphs.passes.freeze import trained_weights
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import Finding, InputError, SpecError
from ..checkpoint.checkpoint import Checkpoint, deployed, graph_in, open_checkpoint
from ..checkpoint.mapping.plan import TransferPlan, planned
from ..checkpoint.tokenizers import (
    classes_by_column,
    is_trained,
    tokenizers_of,
    vocabularies_by_column,
)
from ..checkpoint.transfer import Renumbered, Renumbering, carry_over
from ..data.columns.column import Column
from ..data.columns.labels import CLASSES, LabelColumn
from ..data.columns.text import TextColumn
from ..data.prepare import Prepared
from ..system.strangers import checkpoint_in
from .objective import Objective, graph_of_inputs
from .run import Run, Start

Axes = Mapping[str, tuple[int, ...]]
"""Path of a weight to its axes with an entry for each class or piece."""
SHOWN = 10
"""New classes that the log names."""
_AT = "/start/weights"


@dataclass(frozen=True, slots=True)
class StartPlan:
    """What a training takes from another checkpoint."""

    settings: Start
    graph: Graph
    """Graph of what trains."""
    columns: Mapping[str, Column]
    """Prepared columns."""
    files: Mapping[str, bytes]
    """Files of the columns, such as tokenizers."""
    axes: Mapping[tuple[str, ...], Axes | None]
    """Columns with the same classes or pieces to the axes of weights that count them; None if the
    run fixes their number."""

    @property
    def folder(self) -> Path:
        """Folder of the checkpoint."""
        return checkpoint_in(Path(self.settings.checkpoint))

    def fill(self, model: nn.Module, log: Callable[[str], None]) -> None:
        """Initialize a model with the weights of the checkpoint that fit its graph.

        Args:
            model: a new model of the graph.
            log: called with lines about what was carried over.

        Raises:
            InputError: the checkpoint cannot be opened, or has another tokenizer.
            SpecError: a line does not fit.
        """
        checkpoint = self._opened()
        if self.settings.vocabulary == "same":
            self._refuse_other_tokenizers(checkpoint)
        graph, below, plan = _target(self.settings, checkpoint.graph, self.graph)
        renumbering = self._renumbering(checkpoint, below, log)
        inside = model.get_submodule(below.removesuffix("."))
        transfer, copied = carry_over(
            inside, checkpoint.weights, checkpoint.graph, graph, renumbering, plan
        )
        share = f"{100 * copied / max(1, transfer.after):.1f} %"
        log(
            f"starting from {self.folder}: {copied:,} of {transfer.after:,} parameters ({share})"
            " carried over"
        )

    def frozen(self) -> set[str]:
        """Return the paths of the weights that come from the checkpoint and do not train."""
        if not self.settings.freeze:
            return set()
        checkpoint = self._opened(verify=False)
        graph, below, plan = _target(self.settings, checkpoint.graph, self.graph)
        renumbered = self._renumbering(checkpoint, below, lambda _: None)
        paths = _complete(checkpoint.graph, graph, plan) - renumbered.keys()
        return {f"{below}{path}" for path in paths}

    def _opened(self, *, verify: bool = True) -> Checkpoint:
        checkpoint = open_checkpoint(self.folder, self.graph.blocks, verify=verify)
        return deployed(checkpoint) if self.settings.weights else checkpoint

    def _refuse_other_tokenizers(self, checkpoint: Checkpoint) -> None:
        vocabularies = {n: file for n, file in self.files.items() if not n.endswith(CLASSES)}
        if any(file not in checkpoint.tokenizers.values() for file in vocabularies.values()):
            has = "another" if checkpoint.tokenizers else "no"
            raise InputError(
                f"the checkpoint to start from has {has} tokenizer",
                location=str(self.folder),
                help="give the run the data and tokenizer settings of that checkpoint, or its"
                ' tokenizer as {"type": "file", "path": ...}, or write "vocabulary": "by_piece" in'
                " 'start'",
            )

    def _renumbering(
        self, checkpoint: Checkpoint, below: str, log: Callable[[str], None]
    ) -> Renumbering:
        """Return the weights whose entries have other numbers in the checkpoint.

        Args:
            checkpoint: the checkpoint.
            below: beginning of the paths that are filled.
            log: called with a line for each column whose numbers differ.

        Raises:
            InputError: names differ, and the run fixes their number, so that it is not known which
                weights count them.
        """
        renumbering: dict[str, dict[int, Renumbered]] = {}
        labels = classes_by_column(checkpoint)
        pieces = self._pieces_of(checkpoint)
        for group, axes in self.axes.items():
            column = self.columns[group[0]]
            trained = labels if isinstance(column, LabelColumn) else pieces
            names = _names_of(column)
            before = trained.get(
                group[0], next(iter(trained.values())) if len(trained) == 1 else ()
            )
            if not trained or names == before:
                continue
            what = "classes" if isinstance(column, LabelColumn) else "pieces"
            if axes is None:
                raise InputError(
                    f"the {what} of '{group[0]}' differ from those of the checkpoint, and the run"
                    " fixes their number in the model",
                    location=str(self.folder),
                    help=f"leave out the number of {what} in 'params': it follows the column",
                )
            numbers = {name: number for number, name in enumerate(before)}
            renumbered = Renumbered(len(before), tuple(map(numbers.get, names)))
            for path, places in axes.items():
                if path.startswith(below):
                    entry = renumbering.setdefault(path.removeprefix(below), {})
                    entry.update(dict.fromkeys(places, renumbered))
            fresh = [name for name in names if name not in numbers]
            log(
                f"{what} of '{group[0]}': the weights of {len(names) - len(fresh):,} of"
                f" {len(names):,} follow their names"
                + "".join(f"; '{name}' is new" for name in fresh[:SHOWN])
                + f"; and {len(fresh) - SHOWN:,} more" * (len(fresh) > SHOWN)
            )
        return renumbering

    def _pieces_of(self, checkpoint: Checkpoint) -> dict[str, tuple[str, ...]]:
        """Return the pieces of each text column of the checkpoint."""
        if self.settings.vocabulary == "same":
            return {}
        if not checkpoint.tokenizers:  # as of some imported models: every piece is a new one
            return {"": ()}
        if is_trained(checkpoint):
            vocabularies = vocabularies_by_column(checkpoint)
        else:
            vocabularies = dict(zip(("source", "target"), tokenizers_of(checkpoint), strict=True))
        pieces = {n: tuple(v.pieces(range(v.vocab_size))) for n, v in vocabularies.items()}
        return dict(list(pieces.items())[:1]) if len({*pieces.values()}) == 1 else pieces


def plan_start(settings: Start, objective: Objective, prepared: Prepared) -> StartPlan:
    """Return what a training takes from another checkpoint.

    Args:
        settings: the checkpoint and more.
        objective: the objective with the sizes of its columns.
        prepared: prepared data.

    Raises:
        InputError: the checkpoint cannot be opened.
        SpecError: a line does not fit the shapes of the weights, which are known now.
    """
    groups: dict[str, list[str]] = {}
    for name, column in prepared.columns.items():
        if isinstance(column, LabelColumn):
            groups[f"={name}"] = [name]
        elif isinstance(column, TextColumn) and settings.vocabulary == "by_piece":
            groups.setdefault(column.settings.tokenizer, []).append(name)
    axes = {}
    for columns in groups.values():
        read = tuple(name for name in columns if name in objective.graph.inputs)
        if read:
            axes[read] = _axes(objective, read, len(_names_of(prepared.columns[read[0]])))
    plan = StartPlan(settings, objective.graph, prepared.columns, prepared.files, axes)
    if settings.weights:
        old = deployed_graph(graph_in(plan.folder, plan.graph.blocks))
        _target(settings, old, plan.graph)
    return plan


def _target(
    settings: Start, old: Graph, graph: Graph, *, sized: bool = True
) -> tuple[Graph, str, TransferPlan | None]:
    """Return the graph that is filled, the beginning of its paths, and the plan of lines.

    Fine-tuning begins with another objective's weights: then it is the model that is filled.

    Args:
        settings: the lines.
        old: graph of the checkpoint.
        graph: graph of what trains.
        sized: whether its sizes are known.

    Raises:
        SpecError: a line does not fit.
    """
    below, plan = "", None
    if graph.deploy is not None and old.deploy is None:
        graph, below = deployed_graph(graph), f"{graph.deploy}."
    if settings.weights:
        plan = planned(settings.weights, old, graph, "", _AT, sized=sized)
    return graph, below, plan


def _names_of(column: Column) -> tuple[str, ...]:
    """Return the names of the classes or pieces of a column, in the order of their numbers."""
    if isinstance(column, LabelColumn):
        return column.classes
    if isinstance(column, TextColumn):
        return tuple(column.vocabulary.pieces(range(column.vocabulary.vocab_size)))
    return ()


def _axes(objective: Objective, columns: Collection[str], count: int) -> Axes | None:
    """Return the axes of an objective's weights that count the classes or pieces of columns.

    They are those that are one longer in the graph for one more.

    Args:
        objective: the objective with the sizes of its columns.
        columns: columns with the same classes or pieces.
        count: their number.

    Returns:
        The axes; None if the params fix the number, so that there is no such graph.
    """
    graph, params, types = objective.graph, objective.params, objective.columns
    spec = objective.loaded.recovered
    more = {name: replace(types[name], size=count + 1) for name in columns}
    sizes = sizes_of_inputs(spec.inputs, spec.params, more)
    fixed = {key: size for key, size in sizes.items() if key in params}
    try:
        longer = graph_of_inputs(objective.loaded, {**params, **fixed}, {**types, **more})
    except SpecError:
        return None
    after = longer.weights()
    return {
        path: tuple(axis for axis, size in enumerate(shape) if after[path][axis] == size + 1)
        for path, shape in graph.weights().items()
        if path in after and after[path] != shape and len(after[path]) == len(shape)
    }


def _complete(old: Graph, new: Graph, plan: TransferPlan | None) -> set[str]:
    """Return the paths of the weights of a graph that come from another one completely."""
    transfer = diff(old, new).weight_transfer
    return {*(transfer if plan is None else plan.applied(transfer, old)).carried}


def start_fits(run: Run, objective: Objective, blocks: Iterable[BlockType]) -> Iterator[Finding]:
    """Yield what is wrong with the lines of `start`, and a finding if it freezes all weights.

    Args:
        run: the run, whose checkpoint exists.
        objective: its objective; without the sizes of its columns, shapes are not compared.
        blocks: block types that the checkpoint may use besides the installed ones.
    """
    start = run.start
    if start is None or not (start.weights or start.freeze):
        return
    try:
        old = graph_in(checkpoint_in(Path(start.checkpoint)), blocks)
        old = deployed_graph(old) if start.weights else old
        sized = all(
            type_.size is not None for type_ in objective.columns.values() if type_.kind == "ids"
        )
        model, below, plan = _target(start, old, objective.graph, sized=sized)
    except SpecError as error:
        yield from error.findings
        return
    except InputError as error:
        yield Finding(code="R02", at="/start", problem=error.problem, help=error.help)
        return
    if start.freeze and start.vocabulary == "same" and sized:
        others = {f"{below}{path}" for path in _complete(old, model, plan)}
        try:
            trains = trained_weights(objective.graph, run.freeze, run.train, others)
        except InputError:
            return  # a finding of its own
        if not trains:
            problem = "all weights come from the checkpoint and are frozen, so nothing trains"
            help_ = "draw some with null in 'weights', or name weights that train in 'train'"
            yield Finding(code="R04", at="/start/freeze", problem=problem, help=help_)
