"""Export to a folder that Hugging Face's library opens, checked by importing it again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..... import example_inputs
from .....graphs.draw.diagram import draw
from .....plugin import (
    PREDICTORS,
    Checkpoint,
    Graph,
    InputError,
    fingerprint,
    new_folder,
    position_limits,
    search_of,
    special_tokens_of,
    write_marker,
    write_tensors,
)
from .....specs.escaping import markdown, markdown_code
from ...importing.generation import written_generation
from ...importing.hf import Imported, import_hf, spec_of
from ...importing.tensors import WEIGHTS
from ..vocabulary import original_config, tokens_of
from .fit import Fit, chosen
from .tensors import assembled, reordered
from .tokenizer import tokenizer_files

_TEXT = """---
library_name: transformers
tags: [weft, {kind}]
---

# {name}

{doc}

{picture}## Use

```python
from transformers import {cls}

model = {cls}.from_pretrained(".")
```

{notes}

## Origin

{origin}

{scores}"""


def _model_card(
    checkpoint: Checkpoint,
    fit: Fit,
    notes: list[str],
    scores: Mapping[str, Any],
    *,
    picture: str = "",
) -> str:
    """Return the text of a model card.

    Args:
        checkpoint: the exported checkpoint.
        fit: table and configuration of the export.
        notes: what the export changed.
        scores: report of `weft evaluate --json`, with `scores` and `signatures`; may be empty.
        picture: file of the drawing in the folder.
    """
    graph = checkpoint.graph
    cls = fit.table.architectures[0] if fit.table.architectures else "AutoModel"
    shown = f"![{markdown(graph.name)}]({picture})\n\n" if picture else ""
    return _TEXT.format(
        kind=json.dumps(fit.table.model_type[0]),
        name=markdown(graph.name),
        doc=markdown(graph.doc),
        picture=shown,
        cls=cls,
        notes="\n".join(f"- {note}" for note in notes),
        origin=_origin(checkpoint, graph),
        scores=_scores(checkpoint, scores),
    )


def _origin(checkpoint: Checkpoint, graph: Graph) -> str:
    """Return where the weights come from: a run and its data, or an import."""
    rows = {
        "parameters": f"{graph.parameters():,}",
        "fingerprint of the graph": fingerprint(graph),
        "written by": f"weft {version('weft')}",
    }
    run, state = checkpoint.run, checkpoint.state
    if run:
        rows["run"] = str(run.get("name", ""))
        rows["updates"] = str(state.get("update", ""))
    if digest := state.get("data"):
        rows["SHA-256 of the prepared training data"] = str(digest)
    if imported := state.get("imported"):
        rows["imported by the table"] = str(imported.get("table"))
    lines = [f"| {key} | {markdown_code(value)} |" for key, value in rows.items() if value]
    return "\n".join(["| | |", "|---|---|", *lines])


def _scores(checkpoint: Checkpoint, scores: Mapping[str, Any]) -> str:
    """Return the scores of an evaluation, or else those of the last validation."""
    rows = dict(_rows(scores))
    title = "## Scores\n\n"
    if not rows:
        rows = {name: (value, "") for name, value in _validation(checkpoint).items()}
        title += "Of the last validation of the run:\n\n"
    if not rows:
        return ""
    lines = [f"| {markdown(name)} | {value} | {sign} |" for name, (value, sign) in rows.items()]
    return title + "\n".join(["| metric | score | signature |", "|---|---|---|", *lines]) + "\n"


def _rows(report: Any, before: str = "") -> Any:
    """Yield name, score and signature of each metric of a report, also of several test sets."""
    if not isinstance(report, Mapping):
        return
    scores = report.get("scores")
    if isinstance(scores, Mapping):
        signs = report.get("signatures") or {}
        for name, value in scores.items():
            if isinstance(value, int | float):
                yield (
                    f"{before}{name}",
                    (f"{value:.4g}", markdown_code(str(signs[name])) if name in signs else ""),
                )
        return
    for name, inner in report.items():
        yield from _rows(inner, f"{name} ")


def _validation(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the numbers of the last validation in the history of a run."""
    last: dict[str, Any] = {}
    for line in checkpoint.metrics.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and event.get("type") == "valid":
            last = event
    skipped = ("type", "update", "seconds", "epoch")
    return {
        key: f"{value:.4g}"
        for key, value in last.items()
        if key not in skipped and isinstance(value, int | float)
    }


LONGEST = 511
"""Maximum length of an output, where that of the search depends on the length of the source."""


def _generation_config(
    checkpoint: Checkpoint, tokens: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the content of `_generation_config.json`, and notes on settings without counterpart.

    Args:
        checkpoint: the exported checkpoint.
        tokens: its begin, end and padding ids, as far as they are known.
    """
    graph = checkpoint.graph
    if graph.step_axis is None:
        return {}, []
    imported = checkpoint.state.get("imported", {})
    special_ids = dict(tokens)
    if not imported:
        # These ids are never written by Weft's search.
        try:
            special = special_tokens_of(checkpoint)
            special_ids["never"] = {special.begin, special.pad, *special.never} - {special.end}
        except InputError:
            pass
    ids = [type_ for type_ in graph.inputs.values() if type_.kind == "ids"]
    predict = checkpoint.run.get("predict") or {"type": "beam", **imported.get("search", {})}
    return written_generation(
        special_ids,
        search_of(PREDICTORS.parse(predict, str(checkpoint.folder))),
        imported.get("generate", {}),
        decodes=len(ids) > 1 or len(graph.inputs) > 1,
        longest=min([LONGEST, *(limit - 1 for limit in position_limits(graph))]),
    )


CLOSE = 1e-5
"""Largest allowed difference of outputs, relative to the largest output."""
NEAR = 1e-3
"""The same if weights lose bits, or the architecture has another `eps` of norms."""
PICTURE = "model.svg"


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
    tensors = assembled(fit.table, fit.source, weights, fit.configuration())
    sizes = [
        int(type_.size or 0) for type_ in checkpoint.graph.inputs.values() if type_.kind == "ids"
    ]
    files, notes = tokenizer_files(checkpoint, fit.table, max(sizes, default=0))
    settings, more = _generation_config(checkpoint, tokens)
    notes = [*fit.notes, *notes, *more]
    with new_folder(Path(out)) as folder:
        _write_json(folder / "config.json", {**fit.config, "dtype": "float32"})
        if settings:
            _write_json(folder / "generation_config.json", settings)
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
        picture = _draw(checkpoint, folder)
        card = _model_card(checkpoint, fit, notes, scores, picture=picture)
        (folder / "README.md").write_text(card, encoding="utf-8")
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
    pairs = [(expected[other], outputs[name]) for name, other in fit.alignment.outputs.items()]
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


def _draw(checkpoint: Checkpoint, folder: Path) -> str:
    """Draw the model; return the file's name, or an empty string without Graphviz."""
    try:
        return draw(checkpoint.graph, folder / PICTURE).name
    except InputError:
        return ""


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
