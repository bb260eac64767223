"""Checkpoint: a folder that holds a model whole, and runs nothing when opened.

    weights.safetensors     every parameter once; tied ones under their first path
    optimizer.safetensors   moments by parameter name, in checkpoints that can be resumed
    weights/, optimizer/    instead of these two where processes wrote a part each: `shards.py`
    spec.json               the canonical spec
    run.json                the run, overrides applied
    state.json              fingerprint, a digest of each node, update, data position, scores
    tokenizer.model         or source.model and target.model or target.symbols.json; of
                            models of others also tokenizer.json
    metrics.jsonl           the run's history up to here

It is written beside and renamed, so a folder that has its name is complete.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...blocks.registry import registry
from ...graphs.checker.check import check
from ...graphs.diff.diff import diff
from ...graphs.diff.text import rows
from ...graphs.ir.canonical import canonical, fingerprint, fingerprint_of
from ...graphs.ir.fingerprint import changed_paths, digests
from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, nearest
from ...specs.form import Spec
from ...specs.reader import parse, read_json, read_text
from ...specs.upgrade import RUN_FORMATS, upgrade_format
from ..codegen.build import build_empty, tie
from ..data.hub import HUB
from .sharded import read_shards

FORMAT = 1
"""Version of the folder's layout."""
RESERVE = 16 << 20
"""Bytes that must stay free on the disk beside a checkpoint."""
MOST_NAMED = 8
"""Differences that the refusal of another graph lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A checkpoint that was opened: all but the optimizer is in memory."""

    folder: Path
    graph: Graph
    weights: Mapping[str, Tensor]
    run: Mapping[str, Any]
    state: Mapping[str, Any]
    tokenizers: Mapping[str, bytes]
    """File name to what it holds: serialized SentencePiece models, and lists of symbols."""

    def build(self, device: str = "cpu") -> nn.Module:
        """Return the model with its weights, in evaluation mode."""
        model = build_empty(self.graph, device=device)
        set_weights(model, self.weights, self.graph, str(self.folder))
        return model.eval()

    def optimizer(self) -> dict[str, Tensor]:
        """Return the optimizer's tensors.

        Raises:
            InputError: this checkpoint was kept for its weights alone.
        """
        if not is_sharded(self.folder) and not (self.folder / "optimizer.safetensors").is_file():
            raise InputError(
                "the checkpoint has no optimizer state",
                place=str(self.folder),
                help="resume from the newest checkpoint of the run",
            )
        return tensors_in(self.folder, "optimizer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What goes into a checkpoint."""

    graph: Graph
    weights: Mapping[str, Tensor]
    run: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    tokenizers: Mapping[str, bytes] = field(default_factory=dict)
    optimizer: Mapping[str, Tensor] | None = None
    metrics: Path | None = None


def weights_of(model: nn.Module, graph: Graph) -> dict[str, Tensor]:
    """Return every parameter once, by its path."""
    everything = model.state_dict()
    return {path: everything[path].detach() for path in graph.weights()}


def save(folder: Path, contents: Contents) -> Path:
    """Write a checkpoint; an older one of that name survives any failure.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    tensors = [*contents.weights.values(), *(contents.optimizer or {}).values()]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    try:
        partial = new_folder(folder, size)
        _write_tensors(partial, contents)
        finish(partial, folder, contents)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(folder.with_name(f".{folder.name}.partial"), ignore_errors=True)
        raise InputError(
            f"cannot write the checkpoint: {error}",
            place=str(folder),
            help="free some space and use --resume; the checkpoints written before are whole",
        ) from error
    return folder


def migrated(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write an opened checkpoint, whatever its format was, to a folder in today's format.

    The optimizer's state and the metrics are copied where the checkpoint has them.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    before = checkpoint.folder
    resumable = is_sharded(before) or (before / "optimizer.safetensors").is_file()
    metrics = before / "metrics.jsonl"
    contents = Contents(
        graph=checkpoint.graph,
        weights=checkpoint.weights,
        run=checkpoint.run,
        state=checkpoint.state,
        tokenizers=checkpoint.tokenizers,
        optimizer=checkpoint.optimizer() if resumable else None,
        metrics=metrics if metrics.is_file() else None,
    )
    return save(folder, contents)


def new_folder(folder: Path, size: int = 0) -> Path:
    """Return an empty folder beside a checkpoint's place, to be filled and then finished.

    Raises:
        OSError: it cannot be made, or fewer bytes than `size` and some are free.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    _refuse_full_disk(folder.parent, size)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def finish(partial: Path, folder: Path, contents: Contents) -> None:
    """Write all but tensors, and give the folder its name."""
    _write_words(partial, contents)
    _sync(partial)
    replace_folder(partial, folder)


def _refuse_full_disk(folder: Path, size: int) -> None:
    """Raise the disk's own error before anything is written."""
    free = shutil.disk_usage(folder).free
    if free < size + RESERVE:
        msg = f"{size >> 20} MiB are needed and {free >> 20} MiB are free"
        raise OSError(errno.ENOSPC, f"no space left on the disk: {msg}")


def _write_tensors(folder: Path, contents: Contents) -> None:
    save_file(
        {k: v.contiguous().cpu() for k, v in contents.weights.items()},
        folder / "weights.safetensors",
    )
    if contents.optimizer is not None:
        moments = {k: v.contiguous().cpu() for k, v in contents.optimizer.items()}
        save_file(moments, folder / "optimizer.safetensors")


def _write_words(folder: Path, contents: Contents) -> None:
    state = {
        **contents.state,
        "format": FORMAT,
        "fingerprint": fingerprint(contents.graph),
        "nodes": digests(contents.graph),
    }
    for name, value in (
        ("spec.json", canonical(contents.graph)),
        ("run.json", dict(contents.run)),
        ("state.json", state),
    ):
        (folder / name).write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")
    for name, data in contents.tokenizers.items():
        (folder / name).write_bytes(data)
    if contents.metrics is not None and contents.metrics.is_file():
        shutil.copyfile(contents.metrics, folder / "metrics.jsonl")


def _sync(folder: Path) -> None:
    """Wait until what was written is on the disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_folder(new: Path, old: Path) -> None:
    """Give a complete folder its name; at every moment one of the two is whole."""
    aside = _aside(old)
    shutil.rmtree(aside, ignore_errors=True)
    if old.exists():
        old.rename(aside)
    new.rename(old)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(folder: Path) -> Path:
    """Return where a folder waits while a new one takes its name."""
    return folder.with_name(f".{folder.name}.old")


def recover(folder: Path) -> None:
    """Give a folder its name back if we were killed while a new one was to take it."""
    aside = _aside(folder)
    if aside.is_dir() and not folder.exists():
        aside.rename(folder)


def open_checkpoint(folder: Path | str) -> Checkpoint:
    """Open a checkpoint folder.

    Raises:
        InputError: not a checkpoint, cut off, or of another format.
        SpecError: its spec is damaged.
    """
    folder = Path(folder)
    if not folder.is_dir():
        near = nearest(folder.name, [p.name for p in folder.parent.glob("*") if p.is_dir()])
        help_ = f"did you mean '{folder.parent / near}'?" if near else "name a checkpoint folder"
        raise InputError("no such checkpoint folder", place=str(folder), help=help_)
    tensors = "weights" if is_sharded(folder) else "weights.safetensors"
    for name in (tensors, "spec.json", "state.json"):
        if not (folder / name).exists():
            raise InputError(
                f"not a whole checkpoint: '{name}' is missing",
                place=str(folder),
                help="name a folder such as RUN/checkpoints/001000, RUN/best or RUN/averaged",
            )
    state = _json(folder / "state.json")
    if state.get("format") != FORMAT:
        raise InputError(
            f"checkpoint format {state.get('format')} is not known, only {FORMAT}",
            place=str(folder / "state.json"),
            help="open it with the weft that wrote it",
        )
    spec_file = folder / "spec.json"
    written = _json(spec_file)
    spec = parse(Spec, written, str(spec_file))
    graph = check(spec, registry(), source=str(spec_file))
    if state.get("fingerprint") not in (fingerprint_of(written), fingerprint(graph)):
        raise InputError(
            "spec.json is not the spec that the weights were trained with"
            + _listed(_changed_nodes(state, graph)),
            place=str(spec_file),
            help="put the written spec.json back",
        )
    return Checkpoint(
        folder=folder,
        graph=graph,
        weights=tensors_in(folder, "weights"),
        run=_run(folder / "run.json"),
        state=state,
        tokenizers={path.name: path.read_bytes() for path in sorted(_vocabularies(folder))},
    )


def _run(path: Path) -> dict[str, Any]:
    """Return the run of a checkpoint in today's format; an imported model has none."""
    return upgrade_format(_json(path), RUN_FORMATS)[0] if path.is_file() else {}


def _vocabularies(folder: Path) -> list[Path]:
    """Return the files that say what ids mean."""
    return [*folder.glob("*.model"), *folder.glob("*.symbols.json"), *folder.glob(HUB)]


def _changed_nodes(state: Mapping[str, Any], graph: Graph) -> list[str]:
    """Return the nodes that are not as when a checkpoint was written, as far as it says."""
    before = state.get("nodes")
    return changed_paths(before, digests(graph)) if isinstance(before, dict) else []


def _listed(lines: list[str]) -> str:
    """Return lines to stand below a problem, the first of them."""
    more = len(lines) - MOST_NAMED
    shown = [*lines[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
    return "".join(f"\n      {line}" for line in shown)


def refuse_other_graph(held: Graph, wanted: Graph, *, problem: str, place: str, help_: str) -> None:
    """Refuse to take one graph for another, by naming what differs.

    Args:
        held: the graph of a checkpoint.
        wanted: the one that it should be of.
        problem: what cannot be done with another.
        place: where the checkpoint is.
        help_: the way out.

    Raises:
        InputError: they do not compute the same; up to `MOST_NAMED` differences are listed.
    """
    if fingerprint(held) == fingerprint(wanted):
        return
    lines = [str(row) for row in rows(diff(held, wanted).changes)]
    raise InputError(problem + _listed(lines), place=place, help=help_)


def _json(path: Path) -> dict[str, Any]:
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict):
        raise InputError("the file is not an object", place=str(path))
    return value


def is_sharded(folder: Path) -> bool:
    """Say whether several processes wrote a part each of a checkpoint."""
    return (folder / "weights").is_dir()


def tensors_in(folder: Path, name: str) -> dict[str, Tensor]:
    """Return the `weights` or the `optimizer` of a checkpoint, in whichever form it has.

    Raises:
        InputError: they are damaged or cut off.
    """
    if is_sharded(folder):
        return read_shards(folder / name)
    return read_tensors(folder / f"{name}.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        InputError: it is damaged or cut off.
    """
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"the file is damaged or cut off: {error}",
            place=str(path),
            help="use an older checkpoint of the run",
        ) from error
    return tensors


def set_weights(model: nn.Module, weights: Mapping[str, Tensor], graph: Graph, place: str) -> None:
    """Put weights into a model, or refuse them by naming what differs.

    Raises:
        InputError: a parameter is missing, left over, or of another shape.
    """
    wanted = graph.weights()
    problems = [f"'{path}' is missing" for path in wanted if path not in weights]
    problems += [f"'{path}' is left over" for path in weights if path not in wanted]
    problems += [
        f"'{path}' is {list(weights[path].shape)}, not {list(shape)}"
        for path, shape in wanted.items()
        if path in weights and tuple(weights[path].shape) != shape
    ]
    if problems:
        shown = "; ".join(problems[:6]) + (
            f"; and {len(problems) - 6} more" if problems[6:] else ""
        )
        raise InputError(
            f"the weights are of another graph: {shown}",
            place=place,
            help="open them with the spec that they were trained with",
        )
    model.load_state_dict(dict(weights), strict=False, assign=False)
    tie(model)
