"""Small shipped specs with random weights, as the checkpoints that exports start from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.extensions.interop.export.huggingface.fit import fit, specs_of
from weft.extensions.interop.importing.inherit import FOLDER
from weft.extensions.interop.importing.table import load_table
from weft.graphs.ir.canonical import canonical
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.checkpoint.mapping.origin import assigned
from weft.runtime.checkpoint.saving import weights_of
from weft.runtime.spec.check import graph_of
from weft.specs.load import load, loaded
from weft.specs.reader import shipped_names

SMALL: dict[str, Any] = {
    "d_model": 32,
    "d_embedding": 32,
    "heads": 4,
    "kv_heads": 2,
    "d_k": 16,
    "buckets": 8,
    "d_ff": 16,
    "layers": 4,
    "encoder_layers": 2,
    "decoder_layers": 1,
    "max_length": 32,
    "vocab": 40,
    "mels": 6,
    "labels": 5,
    "height": 12,
    "width": 12,
    "patch": 4,
    "sliding_window": 4,
    "rotary_base": 500.0,
    "d_features": 8,
    "position_kernel": 6,
    "position_groups": 4,
    "d_rotary": 8,
    "d_v": 8,
    "rank": 16,
    "query_rank": 24,
    "d_expert": 8,
    "groups": 2,
}
"""Sizes of every kind; a spec gets those that it has as numbers."""
IDS = {"begin": 2, "end": 1, "pad": 0}
POSITION = {"form": "concatenated", "first": IDS["pad"] + 1}
NEEDED: dict[str, dict[str, Any]] = {
    "distilbert": {"types": 1},
    "olmoe": {"d_k": 8},
    "m2m-100": {"position": {"use": "sinusoidal_position@1", "params": POSITION}},
}
"""Table to params without which a spec cannot be one of its models."""
TABLES = [name.removeprefix("hf-") for name in shipped_names(FOLDER)]
EVERY_TABLE = pytest.mark.parametrize(
    ("name", "spec"),
    [(name, spec) for name in TABLES for spec in specs_of(load_table(name)[0].spec)],
)


def small(name: str, **more: Any) -> Graph:
    """Return the graph of a small shipped spec as a checkpoint has it, without params."""
    params = load(name).form.params
    sizes = {key: value for key, value in {**SMALL, **more}.items() if key in params}
    return graph_of(loaded(canonical(graph_of(load(name, sizes)))))


def checkpoint(graph: Graph, folder: Path = Path("none"), **more: Any) -> Checkpoint:
    """Return a checkpoint with varied weights, so that no bias is zero and no gain is one."""
    model = weft.build(graph, seed=1)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn(weight.shape, generator=generator))
    state = {"imported": {"table": "own", "tokens": IDS}}
    fields = {"run": {}, "state": state, "tokenizers": {}, **more}
    return Checkpoint(folder=folder, graph=graph, weights=weights_of(model, graph), **fields)


def exportable(name: str, spec: str) -> Checkpoint:
    """Return a checkpoint that the table of import `hf-NAME` fits, read backwards."""
    table, source = load_table(name)
    # Some tables fix params of their spec, such as an activation.
    nearest = fit(table, source, small(spec, **NEEDED.get(name, {})), IDS).graph
    ours = checkpoint(graph_of(loaded(canonical(nearest))))
    plan, _ = assigned(table.weights, source, ours.weights)
    for path, origin in plan.items():
        [part] = origin.parts
        if not part.line.names:  # the library has no such tensor, and computes with this
            ours.weights[path].fill_(part.line.fill or 0.0)
    return ours
