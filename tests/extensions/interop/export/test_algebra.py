"""Formulas, products, reductions and weights in exported files, which have no modules for them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.blocks.kernels.decode_state import Capacity
from weft.extensions.interop.export.eject import ejected_text
from weft.extensions.interop.export.onnx import export_onnx
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.specs.load import LoadedSpec, loaded


def written_out(by: str, kind: str) -> LoadedSpec:
    """Return a classifier whose attention and pooling are written out."""
    nodes: dict[str, Any] = {
        "embedding": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": 8}},
        "mask": {
            "use": "elementwise@1",
            "in": {"ids": "ids"},
            "params": {"y": "ids != 0"},
        },
        "keys": {"use": "linear@1", "in": {"x": "embedding.y"}, "params": {"d_out": 8}},
        "scores": {
            "use": "einsum@1",
            "in": {"x": "embedding.y", "z": "keys.y"},
            "params": {"y": "b t d, b s d -> b t s"},
        },
        "attention": {
            "use": "softmax@1",
            "in": {"x": "scores.y", "mask": "mask.y"},
            "params": {"y": "b t s", "mask": "b s", "kind": kind},
        },
        "read": {
            "use": "einsum@1",
            "in": {"x": "attention.y", "z": "embedding.y"},
            "params": {"y": "b t s, b s d -> b t d"},
        },
        "pool": {
            "use": "reduce@1",
            "in": {"x": "read.y", "mask": "mask.y"},
            "params": {"y": "b t d -> b d", "by": by},
        },
        "head": {"use": "linear@1", "in": {"x": "pool.y"}, "params": {"d_out": 3}},
    }
    return loaded(
        {
            "format": 1,
            "name": "written-out",
            "axes": {"B": "batch", "T": "time"},
            "inputs": {"ids": "ids:9[B T]"},
            "outputs": {"logits": "head.y"},
            "nodes": nodes,
        }
    )


@pytest.mark.integration
@pytest.mark.parametrize(
    ("by", "kind"),
    [
        ("sum", "softmax"),
        ("mean", "softmax1"),
        ("max", "squared_relu"),
        ("min", "sparsemax"),
        ("logsumexp", "softmax"),
    ],
)
def test_an_ejected_file_computes_the_same(by: str, kind: str) -> None:
    """It has the lines of the generated code."""
    graph = graph_of(written_out(by, kind))
    model = build(graph, seed=1)
    name, text = ejected_text(graph)
    names: dict[str, Any] = {}
    exec(compile(text, "ejected.py", "exec"), names)
    ejected = names[name]()
    ejected.load_state_dict(model.state_dict())
    ids = torch.tensor([[3, 4, 5, 0], [1, 2, 7, 8]])

    torch.testing.assert_close(ejected(ids=ids), model(ids=ids))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "kind"),
    [
        pytest.param("sum", "softmax", marks=pytest.mark.exhaustive),
        ("mean", "softmax1"),
        pytest.param("max", "squared_relu", marks=pytest.mark.exhaustive),
        ("min", "sparsemax"),
    ],
)
def test_the_engine_of_onnx_agrees(
    checkpoint_of: Callable[..., Checkpoint], tmp_path: Path, by: str, kind: str
) -> None:
    """Logits agree for several rows and lengths."""
    pytest.importorskip("onnxscript", reason="the extra 'onnx' is missing")
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is missing")

    checked = export_onnx(checkpoint_of(written_out(by, kind)), tmp_path / "out")

    assert checked.largest < 1e-4


def language_model() -> LoadedSpec:
    """Return a language model whose causal attention is written out."""
    params = {"y": "b t s", "causal": "t"}
    layer = {
        "inputs": {"x": "f[B T 8]"},
        "outputs": {"x": "sum.y"},
        "nodes": {
            "keys": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 8}},
            "scores": {
                "use": "einsum@1",
                "in": {"x": "x", "z": "keys.y"},
                "params": {"y": "b t d, b s d -> b t s"},
            },
            "attention": {"use": "softmax@1", "in": {"x": "scores.y"}, "params": params},
            "read": {
                "use": "einsum@1",
                "in": {"x": "attention.y", "z": "keys.y"},
                "params": {"y": "b t s, b s d -> b t d"},
            },
            "sum": {
                "use": "elementwise@1",
                "in": {"x": "x", "z": "read.y"},
                "params": {"y": "x + z"},
            },
        },
    }
    nodes = {
        "embedding": {"use": "embedding@1", "in": {"ids": "ids"}, "params": {"d_model": 8}},
        "layers": {"repeat": 2, "block": "layer", "in": {"x": "embedding.y"}, "carry": ["x"]},
        "head": {"use": "linear@1", "in": {"x": "layers.x"}, "params": {"d_out": 9}},
    }
    return loaded(
        {
            "format": 1,
            "name": "written-out-language-model",
            "axes": {"B": "batch", "T": "time"},
            "inputs": {"ids": "ids:9[B T]"},
            "outputs": {"logits": "head.y"},
            "step": {"axis": "T"},
            "blocks": {"layer": layer},
            "nodes": nodes,
        }
    )


@pytest.mark.slow
def test_the_engine_of_onnx_steps_through_attention_written_out(
    checkpoint_of: Callable[..., Checkpoint], tmp_path: Path
) -> None:
    """Logits agree for several past lengths, and the outputs of greedy decoding."""
    pytest.importorskip("onnxscript", reason="the extra 'onnx' is missing")
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is missing")

    checked = export_onnx(checkpoint_of(language_model()), tmp_path / "out")

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs


@pytest.mark.integration
def test_an_ejected_file_steps_through_attention_written_out() -> None:
    """One position at a time, with the buffers that its own `begin` makes."""
    graph = graph_of(language_model())
    model = build(graph, seed=1)
    name, text = ejected_text(graph)
    names: dict[str, Any] = {}
    exec(compile(text, "ejected.py", "exec"), names)
    ejected = names[name]()
    ejected.load_state_dict(model.state_dict())
    ids = torch.tensor([[3, 4, 5, 0], [1, 2, 7, 8]])
    expected = model(ids=ids)["logits"]

    state = ejected.begin(Capacity(2, 1, 4, torch.float32, torch.device("cpu")))
    for position in range(4):
        now = ids[:, position : position + 1]
        y = ejected.step(ids=now, state=state, position=position)["logits"]

        torch.testing.assert_close(y, expected[:, position : position + 1])
