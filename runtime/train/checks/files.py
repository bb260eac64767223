"""Files and folders that a run names: whether they exist, and whether their content fits."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

from ....graphs.ir.graph import Graph
from ....specs.findings import Finding, InputError, nearest, pointer
from ....specs.reader import RUNS, upgrade_format
from ...checkpoint.manifest import RESERVE
from ...data.readers.split import RecordSource, reader_of
from ...system.strangers import checkpoint_in, object_in
from ..recipe.groups import weight_groups
from ..retention import RESUMABLE, checkpoints
from ..run import Run


def wrong_files(run: Run) -> Iterator[Finding]:
    """Yield a finding for each file of a split that is missing, empty or outside the data root.

    Of text files, the first record is read as well.  Data that is prepared elsewhere is not
    fetched.
    """
    if run.data.prepared is not None:  # the files are with the prepared data
        return
    root = Path(run.data.root)
    sources = run.data.sources()
    if not root.is_dir() and not all(source.settings.fetched for source in sources.values()):
        yield Finding(
            code="R02",
            at="/data/root",
            problem=f"there is no folder '{run.data.root}'",
            help="set data.root to the folder of the files: --set data.root=DIR",
        )
        return
    for where, source in sources.items():
        if source.settings.fetched:
            continue
        at = pointer("data", *where, source.reader)
        try:
            files = reader_of(source, run.data.root).files()
        except InputError as error:
            yield Finding(code="R02", at=at, problem=error.problem, help=error.help)
            continue
        findings = [
            finding
            for name, path in files.items()
            for finding in _file(source, run.data.root, name, path, at)
        ]
        yield from findings or _first_records(run, source, at)


def _first_records(run: Run, source: RecordSource, at: str) -> Iterator[Finding]:
    """Yield a finding for each file whose first record cannot be read."""
    if not source.settings.quick:
        return
    reader = reader_of(source, run.data.root)
    fields = [column.from_ or name for name, column in run.data.columns.items()]
    existing = source.settings.fields()
    fields = [field for field in fields if existing is None or field in existing]
    for part, path in enumerate(reader.files().values()):
        if not path.is_file() or not fields or part >= reader.parts():
            return
        try:
            next(iter(reader.records(part, fields)), None)
        except InputError as error:
            yield Finding(
                code="R02",
                at=at,
                problem=error.problem,
                evidence=(error.location,) if error.location else (),
                help=error.help,
            )


def _file(source: RecordSource, root: str, name: str, path: Path, at: str) -> Iterator[Finding]:
    """Yield a finding if one file cannot be read."""
    at += source.settings.place_of(name)
    if path.is_dir() and not source.settings.folders_of_files:
        problem = f"'{name}' is a folder, not a file"
        yield Finding(code="R02", at=at, problem=problem, help="name the files in it")
        return
    if not path.exists():
        near = nearest(path.name, _names(path.parent))
        help_ = "name a file below data.root, or set data.root to its folder"
        yield Finding(
            code="R02",
            at=at,
            problem=f"'{root}' has no file '{name}'",
            help=f"did you mean '{Path(name).with_name(near)}'?" if near else help_,
        )
    elif path.is_file() and path.stat().st_size == 0:
        yield Finding(
            code="R02", at=at, problem=f"'{name}' is empty", help="name a file with content"
        )


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []


def start_checkpoint(run: Run) -> Iterator[Finding]:
    """Yield a finding if the checkpoint to start from is missing or has another tokenizer."""
    if run.start is None:
        return
    start = run.start.checkpoint
    folder = checkpoint_in(Path(start))
    required = ("spec.json", "state.json")
    weights = any((folder / name).exists() for name in ("weights.safetensors", "weights"))
    if not start or not weights or not all((folder / name).is_file() for name in required):
        yield Finding(
            code="R02",
            at="/start",
            problem=f"there is no checkpoint in '{start}'",
            help="give a folder such as outputs/RUN/averaged",
        )
        return
    if run.start.vocabulary == "by_piece":
        return
    trained = _tokenizers_in(folder)
    for name, tokenizer in run.tokenizers.items():
        settings, other = tokenizer.model_dump(mode="json"), trained.get(name, {})
        if settings["type"] == "file":
            continue
        for key in sorted(settings.keys() & other.keys()):
            if settings[key] != other[key]:
                yield Finding(
                    code="R04",
                    at="/start",
                    problem=f"the tokenizer '{name}' of '{start}' has another '{key}'",
                    evidence=(
                        f"given  {json.dumps(settings[key])}  by tokenizers.{name}.{key}",
                        f"wanted {json.dumps(other[key])}  by {folder / 'run.json'}",
                    ),
                    help="use the data and the tokenizer settings of that checkpoint, or write "
                    '{"checkpoint": ..., "vocabulary": "by_piece"}',
                )


def _tokenizers_in(folder: Path) -> dict[str, Any]:
    """Return the tokenizer settings of a checkpoint's run; none if they cannot be read."""
    try:
        tokenizers = upgrade_format(object_in(folder, "run.json"), RUNS)["tokenizers"]
    except (InputError, KeyError, TypeError, AttributeError):
        return {}
    by_name = tokenizers if isinstance(tokenizers, dict) else {}
    return {name: tokenizer for name, tokenizer in by_name.items() if isinstance(tokenizer, dict)}


_FLOAT = 4
"""Bytes of a float32."""


def state_floats(run: Run, graph: Graph) -> int:
    """Return the number of floats that the optimizers of a run keep if every weight trains."""
    shapes = graph.root.weights()
    return sum(
        prod(shape)
        for group in weight_groups(run.optimizer, graph, shapes)
        for path in group.weights
        for shape in group.optimizer.state(shapes[path]).values()
        if shape
    )


def disk_space(run: Run, graph: Graph, folder: Path) -> Iterator[Finding]:
    """Yield a finding if the checkpoints of a new run certainly do not fit on the disk.

    Args:
        run: the run.
        graph: graph of what trains: its model or its objective.
        folder: folder of the run; it need not exist.
    """
    if checkpoints(folder):
        return  # a resumed run, most of whose checkpoints exist already
    settings = run.checkpoint
    written = -(-run.updates // settings.every)
    average = 0 if settings.ema is not None else settings.average
    retained = min(max(settings.keep, average, RESUMABLE), written)
    ema = settings.ema is not None
    copies = retained + ema * min(RESUMABLE, written) + 1 + bool(settings.average or ema)
    floats = graph.parameters() * copies  # with `best` and `averaged`
    floats += state_floats(run, graph) * min(RESUMABLE, written)
    needed = floats * _FLOAT + RESERVE
    existing = next(
        path for path in [folder.absolute(), *folder.absolute().parents] if path.is_dir()
    )
    free = shutil.disk_usage(existing).free
    if free < needed:
        yield Finding(
            code="R05",
            at="/checkpoint",
            problem=f"the checkpoints need {needed >> 20:,} MiB, but '{folder}' has {free >> 20:,}"
            " MiB of free disk space",
            help="free disk space, lower 'keep' and 'average', or give another folder with --out",
        )
