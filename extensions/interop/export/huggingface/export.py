"""Export to a folder that Hugging Face's library opens, checked by importing it again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..... import example_inputs
from .....plugin import Checkpoint, InputError, new_folder, write_marker, write_tensors
from ...importing.hf import Imported, import_hf, spec_of
from ...importing.tensors import WEIGHTS
from ..vocabulary import original_config, original_names, tokens_of
from .card import generation_config, write_card, write_json
from .fit import Fit, chosen
from .tensors import assembled, reordered
from .tokenizer import tokenizer_files

CLOSE = 1e-5
"""Largest allowed difference of outputs, relative to the largest output."""
NEAR = 1e-3
"""The same if weights lose bits, or the architecture has another `eps` of norms."""


@dataclass(frozen=True, slots=True)
class CheckedHuggingFace:
    """Result of importing an export again and comparing it with the model."""

    table: str
    """The table that was read backwards."""
    architecture: str
    """The class of the other library."""
    tensors: int
    """Number of tensors in the folder."""
    same: bool
    """Whether all weights are the same after importing the export."""
    difference: float
    """Largest difference of outputs, relative to the largest output."""
    notes: tuple[str, ...]
    """What the export changed, and what it lacks."""

    @property
    def report(self) -> str:
        """The result as text."""
        weights = "are the same" if self.same else "differ in their last bits"
        return "\n".join(
            [
                f"{self.architecture}, {self.tensors} tensors, by the table {self.table}",
                f"imported again: weights {weights}, outputs differ by {self.difference:.2g}",
                *(f"note: {note}" for note in self.notes),
            ]
        )


def export_huggingface(
    checkpoint: Checkpoint,
    out: Path | str,
    *,
    table: str | Path | None = None,
    scores: Mapping[str, Any] = {},
) -> CheckedHuggingFace:
    """Write a checkpoint as a folder for Hugging Face's library, and import it again to check it.

    Args:
        checkpoint: an opened checkpoint, without LoRA.
        out: the folder; an older export there is replaced.
        table: name or path of the import table to read backwards; default: the one that fits.
        scores: report of `weft evaluate --json` for the model card.

    Raises:
        InputError: no table describes the model, a weight has no counterpart, the path exists and
            is not an export, or the export does not compute what the model does; then nothing is
            written.
    """
    tokens = tokens_of(checkpoint)
    fit = chosen(checkpoint.graph, tokens, table, original_config(checkpoint))
    weights = target_weights(checkpoint, fit)
    tensors = assembled(
        fit.table,
        fit.source,
        weights,
        fit.configuration(),
        ties=fit.graph.ties,
        names=original_names(checkpoint, fit.table.name),
    )
    sizes = [
        int(type_.size or 0) for type_ in checkpoint.graph.inputs.values() if type_.kind == "ids"
    ]
    files, notes = tokenizer_files(checkpoint, fit.table, max(sizes, default=0))
    settings, more = generation_config(checkpoint, tokens)
    notes = [*fit.notes, *notes, *more]
    with new_folder(Path(out)) as folder:
        write_json(folder / "config.json", {**fit.config, "dtype": "float32"})
        if settings:
            write_json(folder / "generation_config.json", settings)
        write_tensors(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        for name, data in files.items():
            (folder / name).write_bytes(data)
        again = import_hf(folder, fit.source)
        lost = _lost(again.weights, weights)
        notes += [
            f"{path}: {count} values change in their last bits" for path, count in lost.items()
        ]
        allowed = NEAR if fit.alignment.small or lost else CLOSE
        difference = _compare(checkpoint, again, fit, allowed)
        write_card(
            checkpoint,
            folder,
            kind=fit.table.model_type[0],
            cls=fit.table.architectures[0] if fit.table.architectures else "AutoModel",
            notes=notes,
            scores=scores,
        )
        write_marker(folder, checkpoint.graph, "huggingface", {"table": fit.table.name})
    return CheckedHuggingFace(
        table=fit.name,
        architecture=str((fit.config.get("architectures") or [fit.name])[0]),
        tensors=len(tensors),
        same=not lost,
        difference=difference,
        notes=tuple(notes),
    )


def target_weights(checkpoint: Checkpoint, fit: Fit) -> dict[str, Tensor]:
    """Return the weights of the table's graph, from those of the checkpoint.

    Raises:
        InputError: features cannot be reordered as the architecture needs it.
    """
    stored = {path: group[0] for group in checkpoint.graph.ties for path in group}
    weights: dict[str, Tensor] = {}
    for path, shape in fit.graph.weights().items():
        theirs = fit.alignment.weights.get(path)
        if theirs is None:
            weights[path] = torch.zeros(shape)
        else:
            weights[path] = checkpoint.weights[stored.get(theirs, theirs)].float()
    if fit.alignment.positions:
        file = spec_of(fit.spec, fit.source)
        return reordered(weights, file, fit.graph, fit.alignment.positions[0])
    return weights


def _lost(restored: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> dict[str, int]:
    """Return the number of values of each weight that an import does not give back.

    Raises:
        InputError: a weight is another one.
    """
    lost = {}
    for path, tensor in expected.items():
        other = restored[path]
        if torch.equal(other, tensor):
            continue
        if not torch.allclose(other, tensor, rtol=1e-6, atol=1e-6):
            raise InputError(
                f"importing the export gives another '{path}'",
                help="the table cannot be read backwards; report this",
            )
        lost[path] = int((other != tensor).sum())
    return lost


def _compare(checkpoint: Checkpoint, again: Imported, fit: Fit, allowed: float) -> float:
    """Return the largest relative difference of the outputs on random inputs.

    Raises:
        InputError: it is too large.
    """
    inputs = example_inputs(checkpoint.graph)
    theirs = {name: inputs[other] for name, other in fit.alignment.inputs.items()}
    with torch.no_grad():
        expected, outputs = checkpoint.build()(**inputs), again.build()(**theirs)
    names = fit.alignment.outputs.items()
    pairs = [(expected[other].double(), outputs[name].double()) for name, other in names]
    worst = max(
        float((ours - other).abs().max() / ours.abs().max().clamp(min=1e-30))
        for ours, other in pairs
    )
    if not worst <= allowed:
        raise InputError(
            f"the export computes something else: outputs differ by {worst:.2g}, relative to the "
            f"largest, and at most {allowed:g} is allowed",
            help="choose another table with --as; weft fits lists them",
        )
    return worst
