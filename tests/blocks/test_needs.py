"""Tests of the marks that say when a param has no effect: the module then ignores it."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.block_type import Needs, Unwired
from weft.runtime.codegen.build import build
from weft.specs.load import loaded

pytestmark = pytest.mark.exact

MARKED = [
    (block.key, name, mark)
    for block in registry()
    for name, field in block.params.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, Needs | Unwired)
]
SIZES = {"B": 2, "T": 6, "S": 5}


def without_effect(key: str, mark: Needs | Unwired) -> dict[str, Any]:
    """Return params of a block with which a mark does not hold."""
    block = registry().get(key)
    assert block is not None
    given = dict(block.example)
    if isinstance(mark, Needs):
        values = (False, "none", True) if mark.values else (mark.least - 1,)
        default = block.params.model_fields[mark.param].default
        given[mark.param] = next(v for v in (*values, default) if _fits(block, mark, v))
    return given


def _fits(block: Any, mark: Needs, value: Any) -> bool:
    if value in mark.values:
        return False
    try:
        block.params.model_validate({**block.example, mark.param: value}, strict=True)
    except ValueError:
        return False
    return True


def others(key: str, name: str) -> list[Any]:
    """Return other values of a param than its default."""
    block = registry().get(key)
    assert block is not None
    field = block.params.model_fields[name]
    choices = [
        c for part in (field.annotation, *get_args(field.annotation)) for c in get_args(part)
    ]
    options = [True, False, 2, 3, 0.5, *choices]
    found = []
    for value in options:
        try:
            block.params.model_validate({**block.example, name: value}, strict=True)
        except (ValueError, TypeError):
            continue
        if value != field.default and isinstance(value, str | int | float):
            found.append(value)
    return found


def output(key: str, params: dict[str, Any], *, crossed: bool) -> torch.Tensor:
    """Return the output of a block alone, with the same weights and inputs each time."""
    block = registry().get(key)
    assert block is not None
    use = {"use": key, "params": params, "fill": dict(block.example_fill)}
    wired = {name: type_.replace("S", "T") for name, type_ in block.example_inputs.items()}
    if block.fills:
        use = {"use": "attention@1", "params": {"heads": 2}, "fill": {block.fills: use}}
        wired = {"x": "f[B T 8]"}
    wired.pop("memory", None)
    if crossed:
        wired |= {"memory": "f[B S 6]", "mask": "mask[B S]"}
    node = {**use, "in": {name: name for name in wired}}
    form = loaded(
        {
            "format": 1,
            "name": "alone",
            "axes": {"B": "batch", "T": "time", "S": "time"},
            "inputs": wired,
            "outputs": {"y": "only.y"},
            "nodes": {"only": node},
        }
    ).form
    model = build(check(form, registry(), checked=True), seed=1).eval()
    torch.manual_seed(0)
    values = {}
    for name, type_ in wired.items():
        kind, _, axes = type_.rstrip("]").partition("[")
        shape = [SIZES[axis] if axis in SIZES else int(axis) for axis in axes.split()]
        values[name] = torch.randn(shape) if kind == "f" else torch.ones(shape, dtype=torch.bool)
    with torch.no_grad():
        y: torch.Tensor = model(**values)["y"]
    return y


@pytest.mark.parametrize(("key", "name", "mark"), MARKED, ids=str)
def test_a_param_without_effect_changes_nothing(key: str, name: str, mark: Needs | Unwired) -> None:
    """Otherwise the checker would refuse a setting that does something."""
    params = without_effect(key, mark)
    crossed = isinstance(mark, Unwired)
    before = output(key, params, crossed=crossed)
    values = others(key, name)

    assert values
    for value in values:
        found = output(key, {**params, name: value}, crossed=crossed)
        # Another kernel may round differently.
        torch.testing.assert_close(found, before, msg=str(value))
