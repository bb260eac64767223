"""Inputs of the models that a search decodes: what fills them, besides the tokens it writes.

Axes: N sentences, S positions of the sources.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ...graphs.ir.graph import Graph


class Inputs(Protocol):
    """What fills the inputs of a model that a search decodes."""

    @property
    def written(self) -> str:
        """Input of the ids that the search writes."""

    @property
    def written_masks(self) -> tuple[str, ...]:
        """Masks of these ids."""

    def fixed(
        self, source_NS: Tensor, mask_NS: Tensor, others: Sequence[Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """Return the inputs that do not depend on what is written.

        Args:
            source_NS: ids of the sources, with end tokens and padding.
            mask_NS: which of them are not padding.
            others: for each sentence, encoded values of further columns by name.
        """


@dataclass(frozen=True, slots=True)
class UsualInputs:
    """Inputs by their usual names: `source` with `source_mask`, and `target`, which is written."""

    written: str = "target"
    written_masks: tuple[str, ...] = ("target_mask",)

    def fixed(
        self,
        source_NS: Tensor,
        mask_NS: Tensor,
        others: Sequence[Mapping[str, Any]],  # noqa: ARG002 - there are none
    ) -> dict[str, Tensor]:
        """Return the source and its mask."""
        return {"source": source_NS, "source_mask": mask_NS}


def batch_axis(graph: Graph, name: str) -> int:
    """Return the position of the batch axis of an input."""
    axes = graph.inputs[name].axes
    return next(i for i, axis in enumerate(axes) if graph.spec.axes.get(str(axis)) == "batch")
