"""Forward passes over raw rows, in batches of similar length.

Axes: B rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...specs.findings import InputError
from ..data.tokenizer import PAD
from .predictor import Context, Row, values

POSITIONS = 16_384
"""Maximum positions of a batch, including padding."""
ROWS = 256
"""Maximum rows of a batch."""


@dataclass(frozen=True, slots=True)
class Passed:
    """Outputs of the models for a batch."""

    rows: list[int]
    """Places of the rows in the input."""
    inputs: Mapping[str, Tensor]
    """Inputs of the models."""
    outputs: list[Mapping[str, Tensor]]
    """Outputs of each model."""

    def probabilities(self, name: str) -> Tensor:
        """Return the mean over models of the softmax of an output, in float32."""
        return torch.stack([one[name].float().softmax(-1) for one in self.outputs]).mean(0)

    def mean(self, name: str) -> Tensor:
        """Return the mean over models of an output, in float32."""
        return torch.stack([one[name].float() for one in self.outputs]).mean(0)


def input_columns(context: Context) -> list[str]:
    """Return the columns that fill inputs of the models.

    Raises:
        InputError: an input is neither filled by a column nor the mask of one.
    """
    found = []
    inputs = context.graph.inputs
    for name, type_ in inputs.items():
        source = context.fed(name)
        column = _owner(source, context)
        if column is not None:
            found.append(column)
        elif type_.kind != "mask" or _masked(name, context) is None:
            raise InputError(
                f"no column fills the input '{name}' of the model",
                place=f"{context.graph.source}#/inputs",
                help=f"known columns: {', '.join(context.columns)}",
            )
    return list(dict.fromkeys(found))


def _owner(name: str, context: Context) -> str | None:
    """Return the column that collates a tensor: NAME, or the longest column of NAME_FIELD."""
    if name in context.columns:
        return name
    owners = [column for column in context.columns if name.startswith(f"{column}_")]
    return max(owners, key=len, default=None)


def _masked(mask: str, context: Context) -> str | None:
    """Return the input of ids that a mask belongs to: `source` of `source_mask`."""
    ids = [name for name, type_ in context.graph.inputs.items() if type_.kind == "ids"]
    if mask.removesuffix("_mask") in ids:
        return mask.removesuffix("_mask")
    return ids[0] if len(ids) == 1 else None


def check_output(context: Context, name: str, predictor: str) -> None:
    """Raise if the models lack an output.

    Raises:
        InputError: the output does not exist.
    """
    outputs = context.graph.outputs
    if name not in outputs:
        raise InputError(
            f"the predictor '{predictor}' needs an output '{name}'",
            place=f"{context.graph.source}#/outputs",
            help=f"set 'output' to one of {', '.join(outputs)}",
        )


def passes(context: Context, rows: Sequence[Row], *, equal: bool = False) -> Iterator[Passed]:
    """Yield the outputs for batches of rows, longest first.

    Args:
        context: models and columns.
        rows: raw values.
        equal: whether a batch contains only rows of equal length, so that nothing is padded.
    """
    names = input_columns(context)
    encoded = {
        name: [context.columns[name].encode(values(row, name, at)) for at, row in enumerate(rows)]
        for name in names
    }
    lengths = [tuple(_length(encoded[name][at]) for name in names) for at in range(len(rows))]
    order = sorted(range(len(rows)), key=lambda at: (max(lengths[at], default=1), lengths[at]))
    order.reverse()
    device = next(context.models[0].parameters()).device
    while order:
        longest = max(1, *lengths[order[0]])
        count = min(ROWS, max(1, POSITIONS // longest))
        if equal:
            count = min(count, sum(lengths[at] == lengths[order[0]] for at in order))
        places, order = order[:count], order[count:]
        tensors: dict[str, Tensor] = {}
        for name in names:
            tensors |= context.columns[name].collate([encoded[name][at] for at in places])
        yield _passed(context, places, tensors, device)


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
    context: Context, places: list[int], tensors: Mapping[str, Tensor], device: torch.device
) -> Passed:
    """Run the models on a batch."""
    inputs: dict[str, Tensor] = {}
    for name, type_ in context.graph.inputs.items():
        source = context.fed(name)
        if source in tensors:
            value = tensors[source].to(device)
            # A mask that the objective computes from ids is fed by the column of these ids.
            of_ids = type_.kind == "mask" and value.dtype != torch.bool
            inputs[name] = value != PAD if of_ids else value
    for name in context.graph.inputs:
        if name not in inputs:
            ids = _masked(name, context)
            if ids is None or ids not in inputs:
                raise InputError(
                    f"no column fills the input '{name}' of the model",
                    place=f"{context.graph.source}#/inputs",
                    help=f"the columns fill {', '.join(tensors)}",
                )
            inputs[name] = inputs[ids] != PAD
    with torch.autocast(device.type, torch.bfloat16, enabled=context.half):
        outputs = [model(**inputs) for model in context.models]
    return Passed(places, inputs, outputs)
