"""A tiny tagger: its spec, its table of import, its configuration and its tensors."""

from __future__ import annotations

from typing import Any

import torch

SPEC: dict[str, Any] = {
    "format": 1,
    "name": "tagger",
    "params": {"d_model": 4, "layers": 2, "vocab": 5, "activation": "relu"},
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"tokens": "ids:vocab[B T]"},
    "outputs": {"logits": "head.y"},
    "blocks": {
        "layer": {
            "inputs": {"x": "f[B T d_model]"},
            "outputs": {"x": "map.y"},
            "nodes": {
                "map": {
                    "use": "feed_forward@1",
                    "in": {"x": "x"},
                    "params": {"d_ff": 6, "activation": "=activation"},
                }
            },
        }
    },
    "nodes": {
        "embedding": {
            "use": "embedding@1",
            "in": {"ids": "tokens"},
            "params": {"d_model": "=d_model"},
        },
        "encoder": {
            "repeat": "=layers",
            "block": "layer",
            "carry": ["x"],
            "in": {"x": "embedding.y"},
        },
        "head": {"use": "linear@1", "in": {"x": "encoder.x"}, "params": {"d_out": "=vocab"}},
    },
    "tie": [["embedding.weight", "head.weight"]],
}
TABLE: dict[str, Any] = {
    "format": 1,
    "name": "hf-tagger",
    "doc": "A tagger.",
    "spec": "tagger.json",
    "model_type": ["tagger"],
    "architectures": ["Tagger"],
    "defaults": {"act": "relu", "inner": "=1*size + 2"},
    "require": [
        {"that": "inner == 6", "else": "another inner width"},
        {"key": "kind", "among": ["plain", None], "else": "kinds that are not plain"},
    ],
    "params": {
        "d_model": "=size",
        "layers": "=depth__layers",
        "vocab": "=vocab",
        "activation": {"by": "act", "cases": {"relu": "relu", "gelu_new": "gelu"}},
    },
    "prefix": "base.",
    "endings": {".gamma": ".weight"},
    "weights": {
        "embedding.weight": ["embed.weight", "out.weight"],
        "encoder.{i}.map.inner.weight": {
            "from": "block.{i}.fused",
            "take": [None, [0, 6]],
            "permute": [1, 0],
            "unread": 0,
        },
        "encoder.{i}.map.inner.bias": {"fill": 0.5},
        "encoder.{i}.map.outer.{p}": "block.{i}.down.{p}",
        "head.bias": {"from": "out.bias", "take": [0], "times": 2, "add": "=1/size"},
    },
    "ignore": ["{i}.table"],
}
CONFIG: dict[str, Any] = {
    "model_type": "tagger",
    "architectures": ["Tagger"],
    "size": 4,
    "depth": {"layers": 2},
    "vocab": 5,
    "kind": None,
}


def their_tensors() -> dict[str, torch.Tensor]:
    """Return source tensors with distinct numbers."""
    shapes = {
        "base.embed.gamma": (5, 4),
        "out.bias": (1, 5),
        "base.sines.table": (3,),
        **{f"base.block.{i}.fused": (4, 8) for i in range(2)},
        **{f"base.block.{i}.down.weight": (4, 6) for i in range(2)},
        **{f"base.block.{i}.down.bias": (4,) for i in range(2)},
    }
    count = iter(range(1000))
    return {
        name: torch.tensor([float(next(count)) for _ in range(torch.Size(shape).numel())]).reshape(
            shape
        )
        for name, shape in shapes.items()
    }
