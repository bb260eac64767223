"""Forward passes over raw rows, in batches of similar length.

Axes: B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....specs.findings import InputError
from ..inputs import positions_of
from .columns import VocabularyColumn
from .feeding import Feeding
from .predictor import Context, Row, read_value

POSITIONS = 16_384
"""Maximum positions of a batch, including padding."""
ROWS = 256
"""Maximum rows of a batch."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Outputs of the models for a batch."""

    rows: list[int]
    """Places of the rows in the input."""
    tensors: Mapping[str, Tensor]
    """What the columns collated."""
    outputs: list[Mapping[str, Tensor]]
    """Outputs of each model."""

    def probabilities(self, name: str) -> Tensor:
        """Return the mean over models of the softmax of an output, in float32."""
        return torch.stack([outputs[name].float().softmax(-1) for outputs in self.outputs]).mean(0)

    def mean(self, name: str) -> Tensor:
        """Return the mean over models of an output, in float32."""
        return torch.stack([outputs[name].float() for outputs in self.outputs]).mean(0)


def check_output(context: Context, name: str, predictor: str) -> None:
    """Raise if the models lack an output.

    Raises:
        InputError: the output does not exist.
    """
    outputs = context.graph.outputs
    if name not in outputs:
        raise InputError(
            f"the predictor '{predictor}' needs an output '{name}'",
            location=f"{context.graph.source}#/outputs",
            help=f"set 'output' to one of {', '.join(outputs)}",
        )


def passes(
    context: Context, feeding: Feeding, rows: Sequence[Row], *, equal: bool = False
) -> Iterator[Passed]:
    """Yield the outputs for batches of rows, longest first.

    Args:
        context: models and columns.
        feeding: computes the inputs of the models.
        rows: raw values.
        equal: whether a batch contains only rows of equal length, so that nothing is padded.

    Raises:
        InputError: a value is missing or wrong.
    """
    names, device = feeding.columns, next(context.models[0].parameters()).device
    most = positions_of(*context.models)
    encoded = {
        name: [_encoded(context, name, row, at, most) for at, row in enumerate(rows)]
        for name in names
    }
    lengths = [tuple(_length(encoded[name][at]) for name in names) for at in range(len(rows))]
    order = sorted(range(len(rows)), key=lambda at: (max(lengths[at], default=1), lengths[at]))
    order.reverse()
    while order:
        longest = max(1, *lengths[order[0]])
        count = min(ROWS, max(1, POSITIONS // longest))
        if equal:
            count = min(count, sum(lengths[at] == lengths[order[0]] for at in order))
        places, order = order[:count], order[count:]
        tensors: dict[str, Tensor] = {}
        for name in names:
            tensors |= context.columns[name].collate([encoded[name][at] for at in places])
        yield _passed(context, places, tensors, feeding(tensors, device))


def _encoded(context: Context, name: str, row: Row, at: int, most: int | None) -> Any:
    """Return the value of a column in a row, encoded; a text is truncated to the positions.

    Args:
        context: models and columns.
        name: the column.
        row: raw values.
        at: index of the row, for messages.
        most: number of positions of the models; None if unlimited.

    Raises:
        InputError: the value is missing or wrong.
    """
    column = context.columns[name]
    encoded = read_value(row, name, at, column.encode)
    if most is None or not isinstance(column, VocabularyColumn) or len(encoded) <= most:
        return encoded
    if context.warn is not None:
        context.warn(at + 1, f"'{name}' has {len(encoded)} tokens, truncated to {most}")
    return column.truncated(encoded, most)


def _length(value: object) -> int:
    """Return the positions of an encoded value: of the longest of several arrays."""
    if isinstance(value, Mapping):
        return max(map(_length, value.values()), default=1)
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if shape else 1
    return len(value) if isinstance(value, Sequence) else 1


@torch.inference_mode()
def _passed(
    context: Context,
    places: list[int],
    tensors: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
) -> Passed:
    """Run the models on a batch."""
    device = next(context.models[0].parameters()).device.type
    with torch.autocast(device, torch.bfloat16, enabled=context.half):
        outputs = [model(**inputs) for model in context.models]
    return Passed(places, tensors, outputs)
