"""Late dropout: switching off everything in a model that drops values at random."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from ....blocks.kernels.dropout import Dropout
from ....graphs.ir.graph import Graph, Part
from ....graphs.ir.traverse import visits

LAYERS = {Dropout: "dropout", _DropoutNd: "p"}
"""Class of a dropout layer to the attribute with its probability."""


class Dropouts:
    """The probabilities in a model with which values, rows or layers are dropped.

    They are those of its dropout layers, and the floats that `BlockType.dropout` names.
    """

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        """Remember every probability of the model of a graph."""
        named = (
            (model.get_submodule(visit.module), name)
            for visit in visits(graph.root, "weights")
            if isinstance(visit.part, Part)
            for name in visit.part.block.dropout
        )
        floats = [(block, name) for block, name in named if isinstance(getattr(block, name), float)]
        floats += [
            (layer, name)
            for layer in model.modules()
            for kind, name in LAYERS.items()
            if isinstance(layer, kind)
        ]
        rates = {(module, name): getattr(module, name) for module, name in floats}
        self._rates: dict[tuple[nn.Module, str], float] = rates

    def set(self, *, active: bool) -> None:
        """Restore every probability, or set it to 0."""
        for (module, name), rate in self._rates.items():
            setattr(module, name, rate if active else 0.0)
