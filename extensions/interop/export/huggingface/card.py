"""What every folder for Hugging Face's library has: model card, picture and generation settings.

A checkpoint may come from a stranger: what the card repeats of it is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .....graphs.draw.diagram import draw
from .....plugin import (
    PREDICTORS,
    Checkpoint,
    Graph,
    InputError,
    fingerprint,
    position_limits,
    search_of,
    special_tokens_of,
)
from .....specs.escaping import markdown, markdown_code
from ...importing.generation import written_generation

PICTURE = "model.svg"
_TEXT = """---
library_name: transformers
tags: [weft, {kind}]
---

# {name}

{doc}

{picture}## Use

```python
from transformers import {cls}

model = {cls}.from_pretrained({arguments})
```

{notes}

## Origin

{origin}

{scores}"""


def write_card(
    checkpoint: Checkpoint,
    folder: Path,
    *,
    kind: str,
    cls: str,
    notes: Sequence[str],
    scores: Mapping[str, Any],
    custom: bool = False,
) -> None:
    """Write a model card and a drawing into a folder.

    Args:
        checkpoint: the exported checkpoint.
        folder: the folder of the export.
        kind: type of the model.
        cls: class of the library that opens it.
        notes: what the export changed.
        scores: report of `weft evaluate --json`, with `scores` and `signatures`; may be empty.
        custom: whether the folder has the code of the model.
    """
    graph = checkpoint.graph
    picture = _draw(graph, folder)
    text = _TEXT.format(
        kind=json.dumps(kind),
        name=markdown(graph.name),
        doc=markdown(graph.doc),
        picture=f"![The model]({picture})\n\n" if picture else "",
        cls=cls,
        arguments='".", trust_remote_code=True' if custom else '"."',
        notes="\n".join(f"- {markdown(note)}" for note in notes),
        origin=_origin(checkpoint, graph),
        scores=_scores(checkpoint, scores),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


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


def _rows(report: Any, before: str = "") -> Iterator[tuple[str, tuple[str, str]]]:
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


def generation_config(
    checkpoint: Checkpoint, tokens: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the content of `generation_config.json`, and notes on settings without counterpart.

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


def _draw(graph: Graph, folder: Path) -> str:
    """Draw the model; return the file's name, or an empty string without Graphviz."""
    try:
        return draw(graph, folder / PICTURE).name
    except InputError:
        return ""


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object into a file."""
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
