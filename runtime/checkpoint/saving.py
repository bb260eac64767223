"""Writing of checkpoints: a folder is complete, or it does not exist under its final name.

A checkpoint is written to a temporary folder and then renamed.  Files are flushed to the disk
before that on every system, and folders where the system allows it: not on Windows, where a power
failure may undo the renaming, but never leaves an incomplete folder.
"""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from ...graphs.ir.canonical import canonical, fingerprint_of
from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph
from ...specs.findings import InputError
from ..system.folders import hidden_folder, refuse_undecodable, replace_folder
from . import manifest
from .manifest import FORMAT, MEMORY, OBJECTIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """Contents of a checkpoint to be written."""

    graph: Graph
    weights: Mapping[str, Tensor]
    objective: Graph | None = None
    """The objective that trained the model, if the graph is not the objective itself."""
    run: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    tokenizers: Mapping[str, bytes] = field(default_factory=dict)
    optimizer: Mapping[str, Tensor] | None = None
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    """State that training carries between segments of documents."""
    metrics: bytes = b""
    """History of the run up to this update; empty for a model without one."""


def weights_of(model: nn.Module, graph: Graph) -> dict[str, Tensor]:
    """Return every parameter once, by its path; tied parameters under their first path."""
    everything = model.state_dict()
    return {path: everything[path].detach() for path in graph.weights()}


def deployed(contents: Contents) -> Contents:
    """Return the contents of a checkpoint of the deployed model, from those of its objective."""
    graph = contents.graph
    if graph.deploy is None:
        return contents
    return replace(
        contents,
        graph=deployed_graph(graph),
        weights=weights_of_deployed(graph, contents.weights),
        objective=graph,
        optimizer=None,
        memory={},
    )


def weights_of_deployed(graph: Graph, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the deployed model, by their paths in that model.

    Args:
        graph: graph of an objective.
        weights: weights of the objective, each once.
    """
    # A weight that is tied to one outside the model is stored under the path of that one.
    stored = {path: group[0] for group in graph.ties for path in group[1:]}
    deployed_weights = {}
    for path in deployed_graph(graph).weights():
        stored_path = f"{graph.deploy}.{path}"
        while stored_path not in weights and stored_path in stored:
            stored_path = stored[stored_path]
        if stored_path in weights:
            deployed_weights[path] = weights[stored_path]
    return deployed_weights


def save(folder: Path, contents: Contents) -> Path:
    """Write a checkpoint; an existing one of the same name is kept if this fails.

    Raises:
        InputError: the disk is full or the folder cannot be written.
    """
    tensor_groups = (contents.weights, contents.optimizer or {}, contents.memory)
    tensors = [tensor for group in tensor_groups for tensor in group.values()]
    size = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    try:
        partial = new_folder(folder, size)
        _write_tensors(partial, contents)
        finish(partial, folder, contents)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(folder.with_name(f".{folder.name}.partial"), ignore_errors=True)
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        denied = isinstance(error, PermissionError)
        help_ = "give another folder" if denied else "free disk space and use --resume"
        raise InputError(
            f"cannot write the checkpoint: {reason}",
            location=str(folder),
            help=f"{help_}; earlier checkpoints are complete",
        ) from error
    return folder


def new_folder(folder: Path, size: int = 0) -> Path:
    """Make an empty temporary folder for a checkpoint; pass it to `finish` when it is filled.

    Raises:
        InputError: the path is not UTF-8.
        OSError: the folder cannot be made, or less than `size` plus `RESERVE` bytes are free.
    """
    refuse_undecodable(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _refuse_full_disk(folder.parent, size)
    return hidden_folder(folder)


def finish(partial: Path, folder: Path, contents: Contents) -> None:
    """Write everything except tensors, and rename the folder to its final name."""
    _write_text(partial, contents)
    for tensors in partial.rglob("*.safetensors"):
        # safetensors makes files that only their owner can read.
        shutil.copymode(partial / "state.json", tensors)
    manifest.write(partial)
    replace_folder(partial, folder)


def _refuse_full_disk(folder: Path, size: int) -> None:
    """Raise the error of a full disk before anything is written."""
    free = shutil.disk_usage(folder).free
    needed = size + manifest.RESERVE
    if free < needed:
        msg = f"{needed >> 20} MiB needed, {free >> 20} MiB free"
        raise OSError(errno.ENOSPC, f"no space left on the disk: {msg}")


def _write_tensors(folder: Path, contents: Contents) -> None:
    write_tensors(contents.weights, folder / "weights.safetensors")
    if contents.optimizer is not None:
        write_tensors(contents.optimizer, folder / "optimizer.safetensors")
    if contents.memory:
        write_tensors(contents.memory, folder / MEMORY)


def write_tensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write tensors to a safetensors file, in which every tensor has elements of its own.

    Tensors may be views, and may share memory: one tensor may stand for several weights.  Only
    tensors that overlap an earlier one in memory are copied.

    Args:
        tensors: the tensors by name, on any device.
        path: the file.
        metadata: texts for the header of the file.

    Raises:
        OSError: the file cannot be written.
        SafetensorError: the file cannot be written.
    """
    contiguous = {name: tensor.contiguous().cpu() for name, tensor in tensors.items()}
    end = 0
    for name, tensor in sorted(contiguous.items(), key=lambda item: item[1].data_ptr()):
        start, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        if start < end and size:
            contiguous[name] = tensor.clone()
        end = max(end, start + size)
    save_file(contiguous, path, metadata=metadata)


def _write_text(folder: Path, contents: Contents) -> None:
    from ...graphs.diff.digests import digests

    form = canonical(contents.graph)
    state = {
        **contents.state,
        "format": FORMAT,
        "fingerprint": fingerprint_of(form),
        "nodes": digests(contents.graph),
    }
    for name, value in (
        ("spec.json", form),
        ("run.json", dict(contents.run)),
        ("state.json", state),
    ):
        text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
    if contents.objective is not None:
        text = json.dumps(canonical(contents.objective), indent=2, ensure_ascii=False) + "\n"
        (folder / OBJECTIVE).write_text(text, encoding="utf-8")
    for name, data in contents.tokenizers.items():
        (folder / name).write_bytes(data)
    if contents.metrics:
        (folder / "metrics.jsonl").write_bytes(contents.metrics)
