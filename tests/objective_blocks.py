"""A loss block, a noise block, and specs around them, for tests of objectives."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from weft.graphs.ir.block_type import BlockType, NoParams, Signature, port


class SquaredError(nn.Module):
    """Sum of squared differences of the items that a mask selects."""

    def forward(self, x: Tensor, target: Tensor, mask: Tensor) -> Tensor:
        """Return the sum."""
        each: Tensor = (x - target).square().mean(-1)
        return (each * mask).sum()

    def weight(self, mask: Tensor) -> Tensor:
        """Return the number of items that count."""
        return mask.sum()


class Drop(nn.Module):
    """Removes random entries of a mask."""

    def forward(self, mask: Tensor) -> Tensor:
        """Return the smaller mask."""
        return mask & (torch.rand(mask.shape) < 0.5)


def _error(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... d]", "the prediction"),
            port("target", "f[... d]", "what it should be"),
            port("mask", "mask[...]", "true at the items that count"),
        ),
        outputs=(port("loss", "loss[]", "sum over items"),),
    )


def _drop(_: NoParams, __: frozenset[str]) -> Signature:
    mask = port("mask", "mask[...]", "the mask")
    return Signature(inputs=(mask,), outputs=(port("y", "mask[...]", "a part of it"),))


def _nothing(_: Any, __: Any) -> dict[str, Any]:
    return {}


ERROR = BlockType(
    name="squared_error",
    doc="Sum of squared differences; sum (x - y)^2.",
    source="For tests.",
    family="loss",
    signature=_error,
    arguments=_nothing,
    weighs=("mask",),
    module=SquaredError,
    example_inputs={"x": "f[B T 4]", "target": "f[B T 4]", "mask": "mask[B T]"},
)
DROP = BlockType(
    name="drop_entries",
    doc="Removes random entries of a mask.",
    source="For tests.",
    family="noise",
    signature=_drop,
    arguments=_nothing,
    module=Drop,
    example_inputs={"mask": "mask[B T]"},
)
BLOCKS = (ERROR, DROP)

LINE: dict[str, Any] = {
    "format": 1,
    "name": "line",
    "params": {"width": 6, "inner": 4, "dropout": 0.5},
    "axes": {"N": "batch", "L": "time"},
    "inputs": {"x": "f[N L width]"},
    "outputs": {"y": "head.y"},
    "nodes": {
        "first": {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": "=inner"}},
        "drop": {"use": "dropout@1", "in": {"x": "first.y"}, "params": {"dropout": "=dropout"}},
        "head": {"use": "linear@1", "in": {"x": "drop.y"}, "params": {"d_out": "=width"}},
    },
}
"""A model, in axes of its own."""

PLAIN: dict[str, Any] = {
    "format": 1,
    "name": "fit",
    "params": {"model": {"spec": "line"}, "d": 8},
    "axes": {"B": "batch", "S": "time"},
    "inputs": {"x": "f[B S d]", "mask": "mask[B S]"},
    "outputs": {"error": "loss.loss"},
    "nodes": {
        "model": {"use": "=model", "in": {"x": "x"}},
        "loss": {
            "use": "squared_error@1",
            "in": {"x": "model.y", "target": "x", "mask": "mask"},
        },
    },
    "deploy": "model",
}
"""The smallest objective."""

TWICE: dict[str, Any] = {
    **PLAIN,
    "name": "twice",
    "params": {"model": {"spec": "line"}, "teacher": {"spec": "line"}, "d": 8, "alpha": 0.5},
    "outputs": {"error": "loss.loss", "agreement": "agree.loss", "imitation": "imitate.loss"},
    "nodes": {
        **PLAIN["nodes"],
        "noise": {"use": "drop_entries@1", "in": {"mask": "mask"}},
        "again": {"share": "model", "in": {"x": "x"}},
        "teacher": {"use": "=teacher", "frozen": True, "in": {"x": "x"}},
        "agree": {
            "use": "squared_error@1",
            "in": {"x": "model.y", "target": "again.y", "mask": "noise.y"},
        },
        "imitate": {
            "use": "squared_error@1",
            "in": {"x": "model.y", "target": "teacher.y", "mask": "mask"},
        },
    },
    "losses": {"agreement": "=alpha", "imitation": 2},
}
"""An objective with a shared call, a frozen teacher, noise and three weighted losses."""


def batch(width: int = 8) -> dict[str, Tensor]:
    """Return inputs of the objectives."""
    generator = torch.Generator().manual_seed(3)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[1, 3:] = False
    return {"x": torch.randn(2, 5, width, generator=generator), "mask": mask}


__all__ = ["BLOCKS", "LINE", "PLAIN", "TWICE", "batch"]
