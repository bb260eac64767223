"""Checkpoints: folders with a complete model; opening one never executes code from it.

    weights.safetensors     every parameter once; tied parameters under their first path
    optimizer.safetensors   optimizer state by parameter name, in checkpoints that can be resumed
    memory.safetensors      state between segments of documents, if the objective has segments
    weights/, optimizer/    instead of these two files in sharded checkpoints
    spec.json               the canonical spec: of a model, or of an objective that is training
    objective.json          the objective that trained a model, if there was one
    run.json                the run, with overrides applied
    state.json              fingerprint, a digest of each node, update, data position, scores
    NAME.model, ...         files of the columns: tokenizers, classes; imported models may have
                            tokenizer.model or tokenizer.json
    metrics.jsonl           the history of the run up to this update
    manifest.json           size and SHA-256 digest of each file, written last: `manifest.py`

How it is written: `saving.py`.

`weights/` and `optimizer/` are folders of safetensors files, as torch.distributed.checkpoint writes
them; JSON metadata gives the offset of each shard in its tensor.  Any number of processes may
have written the files.

A checkpoint that can be resumed has the weights of the whole objective; `open_deployed` opens it as
that of the model which training leaves behind, without losses, teachers and noise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from ...blocks.registry import registry
from ...graphs.checker.check import check
from ...graphs.ir.block_type import BlockType
from ...graphs.ir.canonical import fingerprint, fingerprint_of
from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import Finding, InputError, SpecError, nearest
from ...specs.form import SpecForm
from ...specs.reader import RUNS, parse, upgrade_format
from ...specs.regular_files import DamagedError, path_in
from ..codegen.build import build_empty, tie
from ..data.settings import HUB
from ..system.strangers import (
    LARGEST_HEADER,
    all_tensors_of,
    checkpoint_in,
    has_file,
    object_in,
    read_in,
    tensors_of,
)
from .manifest import FORMAT, MANIFEST, MEMORY, OBJECTIVE, Manifest
from .state import StoredState
from .task import Task, task_of

LARGEST_WEIGHT = 8
"""Maximum bytes of an element of a weight."""
MOST_NAMED = 8
"""Maximum number of differences that a message lists."""


def changed_nodes(state: Mapping[str, Any], graph: Graph) -> str:
    """Return the nodes that changed since a checkpoint was written, as lines below a problem.

    Args:
        state: state of the checkpoint; without digests of its nodes, nothing is listed.
        graph: graph of its spec.
    """
    from ...graphs.diff.digests import changed_paths, digests

    before = state.get("nodes")
    return _listed(changed_paths(before, digests(graph)) if isinstance(before, dict) else [])


def refuse_other_graph(
    old: Graph, expected: Graph, *, problem: str, location: str, help_: str
) -> None:
    """Raise an error that lists the differences if two graphs differ.

    Args:
        old: graph of a checkpoint.
        expected: expected graph.
        problem: problem for the error message.
        location: path of the checkpoint for the error message.
        help_: help for the error message.

    Raises:
        InputError: the fingerprints differ; the message lists up to `MOST_NAMED` differences.
    """
    if fingerprint(old) == fingerprint(expected):
        return
    from ...graphs.diff.diff import diff
    from ...graphs.diff.text import rows

    lines = [str(row) for row in rows(diff(old, expected).changes)]
    raise InputError(problem + _listed(lines), location=location, help=help_)


def _listed(lines: list[str]) -> str:
    """Return lines as indented text below a problem, at most `MOST_NAMED` of them."""
    more = len(lines) - MOST_NAMED
    shown = [*lines[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])]
    return "".join(f"\n      {line}" for line in shown)


_WHERE = "DCP_SHARDING_INFO"
"""Key of the file metadata under which torch stores the offsets of shards."""


def read_shards(files: Manifest, group: str) -> dict[str, Tensor]:
    """Return the full tensors of a folder of shards.

    Args:
        files: files of the checkpoint.
        group: its folder of shards, `weights` or `optimizer`.

    Raises:
        DamagedError: there are no tensors, a file is damaged or cut off, or shards are missing.
    """
    parts: dict[str, list[tuple[tuple[int, ...], Tensor]]] = {}
    checkpoint, folder = files.folder, files.folder / group
    for file in files.names:
        if Path(file).parent != Path(group) or not file.endswith(".safetensors"):
            continue
        try:
            for name, begin, part in _parts(checkpoint, file):
                parts.setdefault(name, []).append((begin, part))
        except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
            raise _damaged(checkpoint / file, str(error)) from error
    if not parts:
        raise _damaged(folder, "the folder contains no tensors")
    return {name: _joined(folder, name, shards) for name, shards in parts.items()}


def _parts(folder: Path, name: str) -> Iterator[tuple[str, tuple[int, ...], Tensor]]:
    """Yield the name, the offsets and the data of each shard of a file."""
    with tensors_of(folder, name) as file:
        where: dict[str, Any] = json.loads((file.metadata() or {}).get(_WHERE, "{}"))
        for weight in file.keys():  # noqa: SIM118 - a file is not a mapping
            part = file.get_tensor(weight)
            begin = tuple(where[weight]["saved_offsets"]) if where else (0,) * part.dim()
            if len(begin) != part.dim() or not all(type(at) is int and at >= 0 for at in begin):
                msg = f"'{weight}' has the invalid offsets {begin}"
                raise ValueError(msg)
            yield weight, begin, part


def _joined(folder: Path, name: str, parts: list[tuple[tuple[int, ...], Tensor]]) -> Tensor:
    """Assemble a tensor from its shards."""
    first = parts[0][1]
    if any(p.dim() != first.dim() or p.dtype != first.dtype for _, p in parts):
        raise _damaged(folder, f"shards of '{name}' differ in dtype or number of axes")
    shape = [max(at[axis] + part.size(axis) for at, part in parts) for axis in range(first.dim())]
    if sum(part.numel() for _, part in parts) != prod(shape):
        raise _damaged(folder, f"shards of '{name}' are missing")
    full = torch.empty(shape, dtype=first.dtype)
    for at, part in parts:
        full[tuple(slice(b, b + n) for b, n in zip(at, part.shape, strict=True))] = part
    return full


def _damaged(path: Path, why: str) -> DamagedError:
    return DamagedError(
        f"the shards are damaged or cut off: {why}",
        location=str(path),
        help="use an older checkpoint of the run",
    )


_SPEC = "spec.json"
_RUN = "run.json"
_OPTIMIZER = ("optimizer.safetensors", "optimizer")
"""Where a checkpoint keeps the state of the optimizer: a file, or a folder of shards."""
_OWN = frozenset(
    (
        "weights.safetensors",
        "optimizer.safetensors",
        MEMORY,
        _SPEC,
        OBJECTIVE,
        _RUN,
        "state.json",
        "metrics.jsonl",
        MANIFEST,
    )
)
"""Files of a checkpoint that are not those of columns."""
_OF_COLUMNS = frozenset((".model", ".json", ".txt", ".npz", ".safetensors"))
"""Suffixes of the files that columns and tokenizers write."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Checkpoint:
    """An open checkpoint; everything except the optimizer state is in memory."""

    folder: Path
    graph: Graph
    weights: Mapping[str, Tensor]
    run: Mapping[str, Any]
    state: Mapping[str, Any]
    tokenizers: Mapping[str, bytes]
    """Contents of the tokenizer files by name: SentencePiece models and symbol lists; of
    objectives, all files of columns."""
    task: Task | None = None
    """What the model is for, as its run says; None for an imported model."""
    objective: Graph | None = None
    """The objective that trained the model; None if it is unknown, or `graph` is the objective."""
    verified: bool = True
    """Whether files are compared with the manifest."""

    def __repr__(self) -> str:
        """Return the folder, the name of the model and its size."""
        graph = self.graph
        return f"<Checkpoint {str(self.folder)!r}: {graph.name}, {graph.parameters():,} parameters>"

    def build(self, device: str = "cpu") -> nn.Module:
        """Return the model with its weights, in evaluation mode."""
        model = build_empty(self.graph, device=device)
        set_weights(model, self.weights, self.graph, str(self.folder))
        return model.eval()

    @property
    def can_resume(self) -> bool:
        """Whether the checkpoint has the state of the optimizer."""
        return any(has_file(self.folder, name) for name in _OPTIMIZER)

    def verify_optimizer(self) -> None:
        """Compare the optimizer state with the manifest.

        Raises:
            DamagedError: a file is missing or has changed.
        """
        if self.verified:
            Manifest(self.folder).verify(only=(*_OPTIMIZER, MEMORY))

    def optimizer(self) -> dict[str, Tensor]:
        """Return the optimizer state.

        Raises:
            InputError: the checkpoint has no optimizer state, or it is damaged.
        """
        if not self.can_resume:
            raise InputError(
                "the checkpoint has no optimizer state",
                location=str(self.folder),
                help="resume from the newest checkpoint of the run",
            )
        self.verify_optimizer()
        return tensors_in(self.folder, "optimizer")

    def memory(self) -> dict[str, Tensor]:
        """Return the state between segments of documents; empty if there is none."""
        if MEMORY not in Manifest(self.folder).names:
            return {}
        return tensors_in(self.folder, MEMORY.removesuffix(".safetensors"))

    @property
    def metrics(self) -> bytes:
        """The history of the run up to this checkpoint, as its file has it; empty without one."""
        name = "metrics.jsonl"
        return read_in(self.folder, name) if name in Manifest(self.folder).names else b""


def open_checkpoint(
    folder: Path | str, blocks: Iterable[BlockType] = (), *, verify: bool = True
) -> Checkpoint:
    """Open a checkpoint folder.

    Args:
        folder: the folder; of the folder of a run, `averaged` in it, or else `best`.
        blocks: block types that its spec uses besides the installed ones.
        verify: whether to compare the files with the manifest; this reads the weights once more,
            about a second for each gigabyte.

    Raises:
        InputError: the folder is not a checkpoint, is incomplete or damaged, or has another
            format.
        SpecError: its spec is invalid.
    """
    folder = Path(folder)
    if not folder.is_dir():
        near = nearest(folder.name, [p.name for p in folder.parent.glob("*") if p.is_dir()])
        help_ = f"did you mean '{folder.parent / near}'?" if near else "give a checkpoint folder"
        raise InputError("no such checkpoint folder", location=str(folder), help=help_)
    folder = checkpoint_in(folder)
    files = Manifest(folder)
    tensors = "weights" if is_sharded(folder) else "weights.safetensors"
    for name in (tensors, "spec.json", "state.json"):
        if not has_file(folder, name):
            raise DamagedError(
                f"not a complete checkpoint: '{name}' is missing",
                location=str(folder),
                help="give a folder such as RUN/checkpoints/001000, RUN/best or RUN/averaged",
            )
    try:
        state = _state(folder)
        graph = _graph(folder, state, blocks)
    except InputError as error:
        # If a file cannot be read because it is damaged, that is the better message; of another
        # spec, the nodes that differ are.
        if verify and has_file(folder, MANIFEST):
            other = () if isinstance(error, SpecError) else (_SPEC,)
            files.verify(without=(*_OPTIMIZER, *other))
        raise
    _refuse_excess(files, graph)
    if verify:
        files.verify(without=_OPTIMIZER)
    task, run = _run(files)
    return Checkpoint(
        folder=folder,
        graph=graph,
        weights=tensors_in(folder, "weights", files),
        objective=_objective(files, blocks),
        run=run,
        task=task,
        state=state,
        tokenizers={name: read_in(folder, name) for name in _column_files(files, run)},
        verified=verify,
    )


def _refuse_excess(files: Manifest, graph: Graph) -> None:
    """Refuse weights that need more space than those of a graph, before they are read.

    Raises:
        DamagedError: the files have more bytes than the weights in float64 and their headers.
    """
    folder, names = files.folder, files.weights
    size = sum(path_in(folder, name).stat().st_size for name in names)
    most = LARGEST_WEIGHT * sum(prod(shape) for shape in graph.weights().values())
    if size > most + LARGEST_HEADER * len(names):
        raise DamagedError(
            f"the weights have {size:,} bytes, more than the {most:,} that the model can need",
            location=str(folder),
            help="copy the complete folder again",
        )


def _state(folder: Path) -> dict[str, Any]:
    """Return the state of a checkpoint.

    Raises:
        InputError: the checkpoint has a format that this version does not read, or is damaged.
        SpecError: the file is not valid JSON.
    """
    state = object_in(folder, "state.json")
    if state.get("format") != FORMAT:
        raise InputError(
            f"checkpoint format {state.get('format')} is not supported, only {FORMAT}",
            location=str(folder / "state.json"),
            help="open it with the version of weft that wrote it",
        )
    parse(StoredState, state, str(folder / "state.json"))
    return state


def graph_in(folder: Path, blocks: Iterable[BlockType] = ()) -> Graph:
    """Return the graph of a checkpoint without reading its weights.

    Args:
        folder: folder of the checkpoint.
        blocks: as of `open_checkpoint`.

    Raises:
        InputError: the folder is not a checkpoint, or its spec is another one than at the training.
        SpecError: its spec is invalid.
    """
    return _graph(folder, _state(folder), blocks)


def _graph(folder: Path, state: Mapping[str, Any], blocks: Iterable[BlockType]) -> Graph:
    """Return the graph of a checkpoint.

    Raises:
        InputError: it is not the graph that the weights were trained with; the message lists the
            nodes that differ.
        SpecError: the spec is invalid.
    """
    spec_file = folder / _SPEC
    written = object_in(folder, _SPEC)
    spec = parse(SpecForm, written, str(spec_file))
    try:
        graph = check(spec, registry(blocks), source=str(spec_file), checked=True)
    except SpecError as error:
        raise SpecError(map(_with_help, error.findings)) from error
    if state.get("fingerprint") not in (fingerprint_of(written), fingerprint(graph)):
        raise InputError(
            "spec.json is not the spec that the weights were trained with"
            + changed_nodes(state, graph),
            location=str(spec_file),
            help="restore the original spec.json",
        )
    return graph


def _with_help(finding: Finding) -> Finding:
    """Return a finding; for an unknown block, with another help: a checkpoint names no code."""
    if finding.code != "N01":
        return finding
    help_ = "install the package that has this block, or pass it from Python as blocks=[...]"
    return replace(finding, help=help_)


def _run(files: Manifest) -> tuple[Task | None, dict[str, Any]]:
    """Return the task and the run of a checkpoint; None and an empty run of an imported model.

    Raises:
        DamagedError: the file is no JSON object.
        SpecError: a setting of the task is wrong; the findings name the file and the keys.
    """
    folder = files.folder
    run = object_in(folder, _RUN) if _RUN in files.names else {}
    return task_of(upgrade_format(run, RUNS), str(folder / _RUN)) if run else (None, {})


def _objective(files: Manifest, blocks: Iterable[BlockType]) -> Graph | None:
    """Return the objective that trained a model, if it is stored."""
    folder, path = files.folder, files.folder / OBJECTIVE
    if OBJECTIVE not in files.names:
        return None
    spec = parse(SpecForm, object_in(folder, OBJECTIVE), str(path))
    return check(spec, registry(blocks), source=str(path), checked=True)


def _column_files(files: Manifest, run: Mapping[str, Any]) -> list[str]:
    """Return the tokenizer files of an imported model; of others, all files of the columns.

    They are files of the manifest with the name of a column or a tokenizer of the run.  Exports
    write the names into texts.
    """
    names = {*run.get("data", {}).get("columns", ()), *run.get("tokenizers", ())}
    return [
        file
        for file in files.names
        if file not in _OWN
        and re.fullmatch(r"[\w.-]+", file)
        and (
            file.partition(".")[0] in names and Path(file).suffix in _OF_COLUMNS
            if run
            else file.endswith((".model", ".symbols.json")) or file == HUB
        )
    ]


def is_sharded(folder: Path) -> bool:
    """Return whether a checkpoint is sharded, with a part written by each process."""
    return (folder / "weights").is_dir()


def tensors_in(folder: Path, name: str, files: Manifest | None = None) -> dict[str, Tensor]:
    """Return the tensors `weights` or `optimizer` of a checkpoint, sharded or not.

    Args:
        folder: the checkpoint.
        name: `weights` or `optimizer`, or the name of another file.
        files: its files, if its manifest has been read.

    Raises:
        InputError: a file is damaged or cut off.
    """
    if is_sharded(folder):
        return read_shards(files or Manifest(folder), name)
    return read_tensors(folder / f"{name}.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file.

    Raises:
        InputError: the file is damaged or cut off.
    """
    try:
        return all_tensors_of(path.parent, path.name)
    except (SafetensorError, OSError, ValueError) as error:
        raise DamagedError(
            f"the file is damaged or cut off: {error}",
            location=str(path),
            help="use an older checkpoint of the run",
        ) from error


def set_weights(
    model: nn.Module, weights: Mapping[str, Tensor], graph: Graph, location: str
) -> None:
    """Load weights into a model.

    Raises:
        InputError: a parameter is missing, unexpected, or has another shape.
    """
    expected_shapes = graph.weights()
    problems = [f"'{path}' is missing" for path in expected_shapes if path not in weights]
    problems += [f"'{path}' is unexpected" for path in weights if path not in expected_shapes]
    problems += [
        f"'{path}' has shape {list(weights[path].shape)}, not {list(shape)}"
        for path, shape in expected_shapes.items()
        if path in weights and tuple(weights[path].shape) != shape
    ]
    if problems:
        shown = "; ".join(problems[:6]) + (
            f"; and {len(problems) - 6} more" if problems[6:] else ""
        )
        raise InputError(
            f"the weights belong to another graph: {shown}",
            location=location,
            help="open them with the spec they were trained with",
        )
    model.load_state_dict(dict(weights), strict=False, assign=False)
    tie(model)


def open_deployed(
    folder: Path | str, blocks: Iterable[BlockType] = (), *, verify: bool = True
) -> Checkpoint:
    """Open a checkpoint folder; one of an objective as that of its deployed model.

    Args:
        folder: the folder.
        blocks: block types that its spec uses besides the installed ones.
        verify: whether to compare the files with the manifest.

    Raises:
        InputError: as of `open_checkpoint`.
        SpecError: its spec is invalid.
    """
    return deployed(open_checkpoint(folder, blocks, verify=verify))


def deployed(checkpoint: Checkpoint) -> Checkpoint:
    """Return the checkpoint of the model that an objective deploys; others are not changed."""
    graph = checkpoint.graph
    if graph.deploy is not None:
        from .saving import weights_of_deployed

        weights = weights_of_deployed(graph, checkpoint.weights)
        return replace(checkpoint, graph=deployed_graph(graph), weights=weights, objective=graph)
    return checkpoint
