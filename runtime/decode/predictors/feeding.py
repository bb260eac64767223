"""Feeding: the inputs of models from the columns that their objective wires to them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ....blocks.registry import registry
from ....graphs.ir.traverse import root_moving, written_ids
from ....graphs.passes.feeding import feeding_by_name, feeding_graph
from ....graphs.passes.objective import source_among
from ....specs.findings import InputError
from ...codegen.build import build_empty
from ...data.columns.fitting import Fitting
from .columns import TableColumn
from .drafts import Draft, drafts_of
from .predictor import Context, PreparedColumn, PreparedText, Row, owner, read_value

if TYPE_CHECKING:
    from ....graphs.ir.graph import Graph
    from ..settings import DraftSettings


@dataclass(frozen=True, slots=True)
class Feeding:
    """Computes inputs of models from the tensors of columns."""

    module: nn.Module | None
    """From inputs of the objective to inputs of the models; None if there are none to compute."""
    reads: tuple[str, ...]
    """Inputs of the objective that it reads."""
    columns: tuple[str, ...]
    """Columns that fill them."""
    fitting: Fitting = field(default_factory=Fitting)
    """What they require of the lengths of these columns."""

    @classmethod
    def of(cls, context: Context, ports: Collection[str] | None = None) -> Feeding:
        """Return the feeding of inputs of the models.

        Args:
            context: models, columns and objective.
            ports: the inputs to compute; None for all.

        Raises:
            InputError: an input needs what only training has, or no column fills it.
        """
        model, objective = context.graph, context.objective
        ports = model.inputs if ports is None else ports
        if not ports:
            return cls(None, (), ())
        graph = _graph(context, ports)
        owners = {name: owner(name, context.columns) for name in graph.inputs}
        for name, column in owners.items():
            if column is None:
                raise InputError(
                    f"no column fills the input '{name}' of the "
                    + ("model" if objective is None else "objective"),
                    location=f"{(objective or model).source}#/inputs",
                    help=f"known columns: {', '.join(context.columns)}",
                )
        columns = tuple(dict.fromkeys(column for column in owners.values() if column is not None))
        tables = [column for column in context.columns.values() if isinstance(column, TableColumn)]
        types = {name: type_ for column in tables for name, type_ in column.inputs.items()}
        fitting = Fitting.of(graph, types)
        return cls(build_empty(graph).eval(), tuple(graph.inputs), columns, fitting)

    @torch.inference_mode()
    def __call__(
        self, tensors: Mapping[str, Tensor], device: torch.device | str = "cpu"
    ) -> dict[str, Tensor]:
        """Return the inputs of the models on a device.

        Args:
            tensors: inputs of the objective; it may have more than are read.
            device: where the models are.
        """
        if self.module is None:
            return {}
        read = self.fitting.fit({name: tensors[name].to(device) for name in self.reads})
        inputs: dict[str, Tensor] = self.module.to(device)(**read)
        return inputs


@dataclass(frozen=True, slots=True)
class Sources:
    """Inputs of a model that writes text, from the columns that its objective wires to them."""

    feeding: Feeding
    """Computes the inputs that do not depend on what is written."""
    columns: Mapping[str, PreparedColumn]
    source: str | None
    """Column of the text whose lines are translated: the only one, or of several `source` or the
    first by name; None if the model reads no text."""
    texts: tuple[str, ...]
    """All columns of text."""
    written: str
    written_masks: tuple[str, ...]
    location: str
    """Origin of the model, for messages."""
    drafts: tuple[Draft, ...] = ()
    """Write inputs before the answer, in this order."""

    @classmethod
    def of(
        cls, context: Context, *, steps: bool = True, drafts: Sequence[DraftSettings] = ()
    ) -> Sources:
        """Return what fills the inputs of a model that writes text.

        Args:
            context: models, columns and objective.
            drafts: inputs that are written before the answer.
            steps: whether the model writes token by token, in the input of ids with its step axis;
                if not, it writes in the inputs that the column of the answers fills.

        Raises:
            InputError: no input is written or several are, or another one cannot be filled.
        """
        graph = context.graph
        filled = context.filled
        later = {*(root_moving(graph) if steps and graph.step_axis is not None else ())}
        if not steps:
            later |= {n for n in graph.inputs if context.answers in _graph(context, [n]).inputs}
        answered = [name for name, column in filled.items() if column == context.answers]
        ids = [name for name in later if graph.inputs[name].kind == "ids"]
        written = written_ids(graph, answered) if steps else ids[0] if len(ids) == 1 else None
        if written is None:
            raise InputError(
                "this predictor needs a model with one input of ids "
                + ("of the step axis" if steps else f"that the column '{context.answers}' fills")
                + f", which it writes; '{graph.name}' has {len(ids)}",
                location=graph.source,
                help="use a predictor that fits the model, or declare the input"
                + (" and set 'step'" if steps else ""),
            )
        masks = tuple(sorted(name for name in later if graph.inputs[name].kind == "mask"))
        if others := sorted(later.difference([written], masks)):
            raise InputError(
                f"this predictor cannot fill the input '{others[0]}' of '{graph.name}', because it"
                " has a value for each token that is written",
                location=graph.source,
                help="compute it from the written tokens in the model, or leave it out",
            )
        written_before = drafts_of(context, drafts)
        fixed = graph.inputs.keys() - later
        fixed -= {name for draft in written_before for name in (draft.written, *draft.masks)}
        feeding = Feeding.of(context, fixed)
        texts = {
            column
            for name in fixed
            if graph.inputs[name].kind == "ids"
            and (column := owner(filled.get(name, ""), context.columns)) is not None
            and isinstance(context.columns[column], PreparedText)
        }
        location, texts_ = graph.source, tuple(sorted(texts))
        source = source_among(texts)
        return cls(
            feeding, context.columns, source, texts_, written, masks, location, written_before
        )

    @property
    def further(self) -> tuple[str, ...]:
        """The columns besides the source."""
        return tuple(name for name in self.feeding.columns if name != self.source)

    def fixed(
        self, source_NS: Tensor, mask_NS: Tensor, others: Sequence[Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """Return the inputs that do not depend on what is written; see `Inputs`."""
        tensors = {} if self.source is None else {self.source: source_NS}
        for name in self.further:
            tensors |= self.columns[name].collate([row[name] for row in others])
        inputs = self.feeding(tensors, source_NS.device)
        for draft in self.drafts:
            lengths = [self._longest(row) for row in others]
            inputs |= draft.write(inputs, source_NS, mask_NS, lengths)
        return inputs

    def encoded(self, row: Row, number: int) -> tuple[dict[str, Any], int]:
        """Return the encoded values of a row's further columns, and the tokens of the longest text.

        Raises:
            InputError: the row lacks a value, or it is invalid.
        """
        inputs = {
            name: read_value(row, name, number, self.columns[name].encode) for name in self.further
        }
        return inputs, self._longest(inputs)

    def _longest(self, inputs: Mapping[str, Any]) -> int:
        """Return the tokens of the longest text among the encoded values of a row."""
        return max((len(inputs[name]) for name in self.texts if name in inputs), default=0)

    def refuse_further(self, what: str) -> None:
        """Raise an error if the model reads more than a text.

        Args:
            what: what has one text for each answer only, such as `lines of text`.

        Raises:
            InputError: it does.
        """
        if self.further or self.source is None:
            read = ", ".join(f"'{name}'" for name in sorted(self.feeding.columns))
            raise InputError(
                f"the model reads the columns {read}, but {what} have one text each",
                location=self.location,
                help="use 'weft predict', or predict() in Python, with rows that have these"
                " columns",
            )


def _graph(context: Context, ports: Collection[str]) -> Graph:
    """Return the graph that computes inputs of the models."""
    names, graphs = frozenset(ports), context.feeding_graphs
    if names not in graphs:
        model, objective = context.graph, context.objective
        graphs[names] = (
            feeding_by_name(model, registry(model.blocks), names)
            if objective is None
            else feeding_graph(objective, names, registry(objective.blocks))
        )
    return graphs[names]
