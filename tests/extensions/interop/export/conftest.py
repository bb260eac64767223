"""Checkpoints of small shipped specs with random weights, biases and norms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.checkpoint.checkpoint import Checkpoint, open_checkpoint
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.codegen.build import build, tie
from weft.runtime.spec.check import graph_of
from weft.specs.load import LoadedSpec, load

SMALL = {"d_model": 32, "heads": 4, "d_ff": 48, "layers": 2, "vocab": 40}
TOKENS = {"begin": 3, "end": 1, "pad": 0}


@pytest.fixture
def checkpoint_of(tmp_path: Path) -> Callable[..., Checkpoint]:
    """Return a function that makes a checkpoint of a spec, with overrides of the small params."""

    def make(spec: LoadedSpec | str, **params: Any) -> Checkpoint:
        if isinstance(spec, str):
            known = load(spec).form.params
            wanted = {**SMALL, **params}
            spec = weft.load(spec, **{name: wanted[name] for name in wanted if name in known})
        graph = graph_of(spec)
        model = build(graph)
        generator = torch.Generator().manual_seed(5)
        with torch.no_grad():
            # Norms with scale 1, gates of 0 and biases of 0 would hide faults.
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        tie(model)
        folder = tmp_path / "checkpoint"
        state = {"imported": {"tokens": TOKENS}}
        save(folder, Contents(graph=graph, weights=weights_of(model, graph), state=state))
        return open_checkpoint(folder)

    return make
