"""Checkpoints: folders with a complete model; opening one never executes code from it.

    weights.safetensors     every parameter once; tied parameters under their first path
    optimizer.safetensors   optimizer state by parameter name, in checkpoints that can be resumed
    weights/, optimizer/    instead of these two files in sharded checkpoints: `sharded.py`
    spec.json               the canonical spec
    run.json                the run, with overrides applied
    state.json              fingerprint, a digest of each node, update, data position, scores
    tokenizer.model         or source.model and target.model or target.symbols.json; imported
                            models may have tokenizer.json instead
    metrics.jsonl           the history of the run up to this update

It is written to a temporary folder and then renamed, so the final folder is always complete.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ...blocks.registry import registry
from ...graphs.checker.check import check
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.canonical import canonical, fingerprint, fingerprint_of
from ...graphs.ir.graph import Graph
from ...specs.findings import Finding, InputError, SpecError, nearest
from ...specs.form import Spec
from ...specs.reader import parse, read_json, read_text
from ...specs.upgrade import RUN_FORMATS, upgrade_format
from ..codegen.build import build_empty, tie
from ..data.hub import HUB

FORMAT = 1
"""Version of the folder's layout."""
RESERVE = 16 << 20
"""Bytes that must remain free on the disk after a checkpoint is written."""
MOST_NAMED = 8
"""Maximum number of differences that an error message about another graph lists."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Checkpoint:
    """An open checkpoint; everything except the optimizer state is in memory."""

    folder: Path
    graph: Graph
    weights: Mapping[str, Tensor]
    run: Mapping[str, Any]
    state: Mapping[str, Any]
    tokenizers: Mapping[str, bytes]
    """Contents of the tokenizer files by name: SentencePiece models and symbol lists."""

    def __repr__(self) -> str:
        """Return the folder, the name of the model and its size."""
        graph = self.graph
        return f"<Checkpoint {str(self.folder)!r}: {graph.name}, {graph.parameters():,} parameters>"

    def build(self, device: str = "cpu") -> nn.Module:
        """Return the model with its weights, in evaluation mode."""
        model = build_empty(self.graph, device=device)
        set_weights(model, self.weights, self.graph, str(self.folder))
        return model.eval()

    def optimizer(self) -> dict[str, Tensor]:
        """Return the optimizer state.

        Raises:
            InputError: the checkpoint has no optimizer state.
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
    """Contents of a checkpoint to be written."""

    graph: Graph
    weights: Mapping[str, Tensor]
    run: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    tokenizers: Mapping[str, bytes] = field(default_factory=dict)
    optimizer: Mapping[str, Tensor] | None = None
    metrics: Path | None = None


def weights_of(model: nn.Module, graph: Graph) -> dict[str, Tensor]:
    """Return every parameter once, by its path; tied parameters under their first path."""
    everything = model.state_dict()
    return {path: everything[path].detach() for path in graph.weights()}


def save(folder: Path, contents: Contents) -> Path:
    """Write a checkpoint; an existing one of the same name is kept if this fails.

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
            help="free disk space and use --resume; earlier checkpoints are complete",
        ) from error
    return folder


def new_folder(folder: Path, size: int = 0) -> Path:
    """Make an empty temporary folder for a checkpoint; pass it to `finish` when it is filled.

    Raises:
        OSError: the folder cannot be made, or less than `size` plus `RESERVE` bytes are free.
    """
    partial = folder.with_name(f".{folder.name}.partial")
    folder.parent.mkdir(parents=True, exist_ok=True)
    _refuse_full_disk(folder.parent, size)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    return partial


def finish(partial: Path, folder: Path, contents: Contents) -> None:
    """Write everything except tensors, and rename the folder to its final name."""
    _write_text(partial, contents)
    _sync(partial)
    replace_folder(partial, folder)


def _refuse_full_disk(folder: Path, size: int) -> None:
    """Raise the error of a full disk before anything is written."""
    free = shutil.disk_usage(folder).free
    if free < size + RESERVE:
        msg = f"{size >> 20} MiB needed, {free >> 20} MiB free"
        raise OSError(errno.ENOSPC, f"no space left on the disk: {msg}")


def _write_tensors(folder: Path, contents: Contents) -> None:
    save_file(
        {k: v.contiguous().cpu() for k, v in contents.weights.items()},
        folder / "weights.safetensors",
    )
    if contents.optimizer is not None:
        moments = {k: v.contiguous().cpu() for k, v in contents.optimizer.items()}
        save_file(moments, folder / "optimizer.safetensors")


def _write_text(folder: Path, contents: Contents) -> None:
    from ...graphs.ir.fingerprint import digests

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
    """Flush all written files to the disk."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_folder(new: Path, old: Path) -> None:
    """Replace `old` by the complete folder `new`; at any moment one of the two is complete."""
    aside = _aside(old)
    shutil.rmtree(aside, ignore_errors=True)
    if old.exists():
        old.rename(aside)
    new.rename(old)
    shutil.rmtree(aside, ignore_errors=True)


def _aside(folder: Path) -> Path:
    """Return the path of an old folder while a new one takes its name."""
    return folder.with_name(f".{folder.name}.old")


def recover(folder: Path) -> None:
    """Restore a folder if the process was killed while it was being replaced."""
    aside = _aside(folder)
    if aside.is_dir() and not folder.exists():
        aside.rename(folder)


def open_checkpoint(folder: Path | str, blocks: Iterable[BlockType] = ()) -> Checkpoint:
    """Open a checkpoint folder.

    Args:
        folder: the folder.
        blocks: block types that its spec uses besides the installed ones.

    Raises:
        InputError: the folder is not a checkpoint, is incomplete, or has another format.
        SpecError: its spec is invalid.
    """
    folder = Path(folder)
    if not folder.is_dir():
        near = nearest(folder.name, [p.name for p in folder.parent.glob("*") if p.is_dir()])
        help_ = f"did you mean '{folder.parent / near}'?" if near else "give a checkpoint folder"
        raise InputError("no such checkpoint folder", place=str(folder), help=help_)
    tensors = "weights" if is_sharded(folder) else "weights.safetensors"
    for name in (tensors, "spec.json", "state.json"):
        if not (folder / name).exists():
            raise InputError(
                f"not a complete checkpoint: '{name}' is missing",
                place=str(folder),
                help="give a folder such as RUN/checkpoints/001000, RUN/best or RUN/averaged",
            )
    state = _json(folder / "state.json")
    if state.get("format") != FORMAT:
        raise InputError(
            f"checkpoint format {state.get('format')} is not supported, only {FORMAT}",
            place=str(folder / "state.json"),
            help="open it with the version of weft that wrote it",
        )
    spec_file = folder / "spec.json"
    written = _json(spec_file)
    spec = parse(Spec, written, str(spec_file))
    try:
        graph = check(spec, registry(blocks), source=str(spec_file))
    except SpecError as error:
        raise SpecError(map(_with_help, error.findings)) from error
    if state.get("fingerprint") not in (fingerprint_of(written), fingerprint(graph)):
        raise InputError(
            "spec.json is not the spec that the weights were trained with"
            + _listed(_changed_nodes(state, graph)),
            place=str(spec_file),
            help="restore the original spec.json",
        )
    return Checkpoint(
        folder=folder,
        graph=graph,
        weights=tensors_in(folder, "weights"),
        run=_run(folder / "run.json"),
        state=state,
        tokenizers={path.name: path.read_bytes() for path in sorted(_tokenizer_files(folder))},
    )


def _with_help(finding: Finding) -> Finding:
    """Return a finding; for an unknown block, with another help: a checkpoint names no code."""
    if finding.code != "N01":
        return finding
    help_ = "install the package that has this block, or pass it from Python as blocks=[...]"
    return replace(finding, help=help_)


def _run(path: Path) -> dict[str, Any]:
    """Return the run of a checkpoint in the current format; empty for an imported model."""
    return upgrade_format(_json(path), RUN_FORMATS)[0] if path.is_file() else {}


def _tokenizer_files(folder: Path) -> list[Path]:
    """Return the tokenizer files of a checkpoint."""
    return [*folder.glob("*.model"), *folder.glob("*.symbols.json"), *folder.glob(HUB)]


def _changed_nodes(state: Mapping[str, Any], graph: Graph) -> list[str]:
    """Return the nodes that changed since a checkpoint was written, if it stores node digests."""
    from ...graphs.ir.fingerprint import changed_paths, digests

    before = state.get("nodes")
    return changed_paths(before, digests(graph)) if isinstance(before, dict) else []


def _listed(lines: list[str]) -> str:
    """Return lines as indented text below a problem, at most `MOST_NAMED` of them."""
    more = len(lines) - MOST_NAMED
    shown = [*lines[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
    return "".join(f"\n      {line}" for line in shown)


def refuse_other_graph(old: Graph, wanted: Graph, *, problem: str, place: str, help_: str) -> None:
    """Raise an error that lists the differences if two graphs differ.

    Args:
        old: graph of a checkpoint.
        wanted: expected graph.
        problem: problem for the error message.
        place: path of the checkpoint for the error message.
        help_: help for the error message.

    Raises:
        InputError: the fingerprints differ; the message lists up to `MOST_NAMED` differences.
    """
    if fingerprint(old) == fingerprint(wanted):
        return
    from ...graphs.diff.diff import diff
    from ...graphs.diff.text import rows

    lines = [str(row) for row in rows(diff(old, wanted).changes)]
    raise InputError(problem + _listed(lines), place=place, help=help_)


def _json(path: Path) -> dict[str, Any]:
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict):
        raise InputError("the file is not a JSON object", place=str(path))
    return value


def is_sharded(folder: Path) -> bool:
    """Return whether a checkpoint is sharded, with a part written by each process."""
    return (folder / "weights").is_dir()


def tensors_in(folder: Path, name: str) -> dict[str, Tensor]:
    """Return the tensors `weights` or `optimizer` of a checkpoint, sharded or not.

    Raises:
        InputError: a file is damaged or cut off.
    """
    if is_sharded(folder):
        from .sharded import read_shards

        return read_shards(folder / name)
    return read_tensors(folder / f"{name}.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        InputError: the file is damaged or cut off.
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
    """Load weights into a model.

    Raises:
        InputError: a parameter is missing, unexpected, or has another shape.
    """
    wanted = graph.weights()
    problems = [f"'{path}' is missing" for path in wanted if path not in weights]
    problems += [f"'{path}' is unexpected" for path in weights if path not in wanted]
    problems += [
        f"'{path}' has shape {list(weights[path].shape)}, not {list(shape)}"
        for path, shape in wanted.items()
        if path in weights and tuple(weights[path].shape) != shape
    ]
    if problems:
        shown = "; ".join(problems[:6]) + (
            f"; and {len(problems) - 6} more" if problems[6:] else ""
        )
        raise InputError(
            f"the weights belong to another graph: {shown}",
            place=place,
            help="open them with the spec they were trained with",
        )
    model.load_state_dict(dict(weights), strict=False, assign=False)
    tie(model)
