"""Base class of parsing tasks whose models read words and predict in one forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ....graphs.ir.graph import Graph
from ....specs.findings import InputError
from ...data.batches import Batch
from ...data.treebank.columns.types import CHARACTERS
from ...data.treebank.words import Words
from ...train.checks.needs import Needs
from ...train.loss import LossSums, with_auxiliary
from ..translation import check_ports
from .task import Parsing


@dataclass(frozen=True, slots=True, kw_only=True)
class WordParsing(Parsing):
    """Base class of parsing tasks whose models read words."""

    words: Words = field(init=False)

    def __post_init__(self) -> None:
        """Derive the word inputs from the source vocabulary."""
        object.__setattr__(self, "words", Words(self.source))

    def check_sizes(self, graph: Graph, needs: Needs, outputs: Mapping[str, int]) -> None:
        """Check that a graph has the required inputs, outputs and sizes.

        Args:
            graph: the graph.
            needs: the required inputs and outputs.
            outputs: the number of scores of each output.

        Raises:
            InputError: an input or output is missing or has the wrong size.
        """
        check_ports(graph, needs)
        found = {
            "pieces": (graph.inputs["pieces"].size, self.source.vocab_size),
            "characters": (graph.inputs["characters"].size, CHARACTERS),
            **{name: (graph.outputs[name].axes[-1], size) for name, size in outputs.items()},
        }
        params = [name for name in self.sizes(self.source, self.target) if name in graph.params]
        for name, (in_graph, needed) in found.items():
            if in_graph != needed:
                raise InputError(
                    f"'{name}' of the spec has size {in_graph}, but the data has {needed}",
                    place=graph.source,
                    help=f"remove {', '.join(map(repr, params))} from the run's params",
                )

    def lost(self, nll: Tensor, batch: Batch, outputs: Mapping[str, Tensor]) -> LossSums:
        """Return the loss sums of a batch, given its summed nll and the model's outputs."""
        sums = LossSums(loss=nll, nll=nll.detach(), tokens=(batch.target != self.target.pad).sum())
        own = [outputs[name] for name in self.losses]
        return with_auxiliary(sums, own, self.settings.auxiliary)
