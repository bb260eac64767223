"""Model card of an export: README.md with the drawing, the data's digest and the scores."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from .....plugin import Checkpoint, Graph, fingerprint
from .fit import Fit

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


def model_card(
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
    shown = f"![{graph.name}]({picture})\n\n" if picture else ""
    return _TEXT.format(
        kind=fit.table.model_type[0],
        name=graph.name,
        doc=graph.doc,
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
    lines = [f"| {key} | `{value}` |" for key, value in rows.items() if value]
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
    lines = [f"| {name} | {value} | {sign} |" for name, (value, sign) in rows.items()]
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
                    (f"{value:.4g}", f"`{signs[name]}`" if name in signs else ""),
                )
        return
    for name, inner in report.items():
        yield from _rows(inner, f"{name} ")


def _validation(checkpoint: Checkpoint) -> dict[str, str]:
    """Return the numbers of the last validation in the history of a run."""
    path = checkpoint.folder / "metrics.jsonl"
    if not path.is_file():
        return {}
    last: dict[str, Any] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
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
