"""The commands `weft evaluate` and `weft average`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

from ....specs.files import write_beside
from ....specs.findings import InputError
from ... import api
from ...checkpoint.average import average_weights
from ...checkpoint.checkpoint import Contents, open_checkpoint, refuse_other_graph, save
from ...data.settings import DataSettings
from ...data.text_files import read_parallel
from ...tasks import translation
from ...tasks.registry import task_of
from ..opened import opened, two_sides, warn
from .evaluate_trees import evaluate_trees, one_file


def evaluate(options: Namespace) -> None:
    """Print BLEU, chrF and perplexity of one text or of the run's test sets."""
    model = opened(options)
    if model.task is not None and model.task.parses:
        evaluate_trees(options, model)
        return
    if options.trees or options.prm or options.each or options.constrained is not None:
        raise InputError(
            "--trees, --prm, --each and --constrained are for parsers; this model translates",
            place=options.checkpoint,
            help="give --source and --target, or --test",
        )
    reports = []
    texts = _texts(options, model)
    one_file(options, texts)
    for name, (sources, references) in texts.items():
        print(f"{name}: translating {len(sources):,} lines", file=sys.stderr)
        found = list(model.translator.translate(sources, warn=warn))
        scores = translation.score(found, references)
        unsmoothed = {**model.checkpoint.run, "loss": {"smoothing": 0.0}}
        task = task_of(unsmoothed, model.translator.source, model.translator.target)
        device = next(model.module.parameters()).device
        measured = task.perplexity(model.module, task.text_batches(sources, references), device)
        if options.out:
            lines = "".join(f"{line}\n" for line in found)
            write_beside(Path(options.out), lines.encode(), "file")
        reports.append(
            {
                "test": name,
                "lines": len(sources),
                "scores": scores.values,
                "signatures": scores.signatures,
                "perplexity": measured["perplexity"],
                "search": model.translator.search.model_dump(),
            }
        )
    if options.json:
        print(json.dumps(reports, indent=2))
        return
    for report in reports:
        print(_text(report))


def _text(report: dict[str, Any]) -> str:
    search = report["search"]
    setting = f"beam {search['beam']}, alpha {search['alpha']}"
    lines = [f"{report['test']}: {report['lines']:,} lines, {setting}"]
    names = {"bleu": "BLEU", "bleu_lc": "BLEU (lower-cased)", "chrf": "chrF"}
    for key, label in names.items():
        signature = report["signatures"][key]
        lines.append(f"  {label:18} {report['scores'][key]:6.2f}  {signature}")
    lines.append(
        f"  {'perplexity':18} {report['perplexity']:6.3f}  per target token, end token included"
    )
    return "\n".join(lines)


def _texts(options: Namespace, model: api.Model) -> dict[str, tuple[list[str], list[str]]]:
    """Return source and reference lines of the texts to evaluate, by name.

    Raises:
        InputError: no text is named, or only one of source and target.
    """
    if options.source or options.target:
        if not (options.source and options.target):
            raise InputError(
                "a text needs both source and target", help="give both --source and --target"
            )
        return {options.source: two_sides(options.source, options.target)}
    data = model.checkpoint.run.get("data")
    if data is None:
        raise InputError("the checkpoint names no data", help="give --source and --target")
    settings = DataSettings.model_validate(data)
    root = options.data_root or settings.root
    if not settings.test:
        raise InputError("the run has no test sets", help="give --source and --target")
    if options.test is not None and options.test not in settings.test:
        raise InputError(f"no test set '{options.test}'", help=f"known: {', '.join(settings.test)}")
    texts = {}
    for name, files in settings.test.items():
        if options.test in (None, name):
            pairs = list(read_parallel(files, root))
            texts[name] = ([source for source, _ in pairs], [target for _, target in pairs])
    return texts


def average(options: Namespace) -> None:
    """Write a checkpoint with the average weights of several checkpoints."""
    checkpoints = [open_checkpoint(folder) for folder in options.checkpoint]
    first = checkpoints[0]
    for other in checkpoints[1:]:
        refuse_other_graph(
            first.graph,
            other.graph,
            problem="the checkpoints have different graphs",
            place=f"{first.folder}, {other.folder}",
            help_="average checkpoints of one run",
        )
    contents = Contents(
        graph=first.graph,
        weights=average_weights([each.weights for each in checkpoints]),
        run=first.run,
        state={
            **checkpoints[-1].state,
            "averaged": [str(each.folder.name) for each in checkpoints],
        },
        tokenizers=first.tokenizers,
        metrics=checkpoints[-1].folder / "metrics.jsonl",
    )
    print(save(Path(options.out), contents))
