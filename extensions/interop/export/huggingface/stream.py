"""Reordering the features of the residual stream, which changes no output.

Sinusoidal positions of two libraries differ in the order of their features: sines and cosines
alternate, or all sines come first.  If every other block treats all features alike, a model with
one order computes the same as a model with the other order, whose weights have their axes of
features reordered.  That holds for linear maps, embeddings and norms over all features; the result
is compared with the model, so that a block for which it does not hold is noticed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from .....plugin import Graph, InputError, SpecError, graph_of, owned_parts
from .....specs.load import load

_BY = 2
"""Factor by which a param is changed, to see which axes depend on it."""


def order_of(mine: str, theirs: str, width: int) -> Tensor:
    """Return, for each feature of one form of sinusoidal positions, its index in the other form.

    Args:
        mine: the wanted form, `halves` or `interleaved`.
        theirs: the given form, the other one.
        width: number of features, even.

    >>> order_of("halves", "interleaved", 6).tolist()
    [0, 2, 4, 1, 3, 5]
    """
    features = torch.arange(width)
    if (mine, theirs) == ("halves", "interleaved"):
        return features.reshape(-1, 2).T.flatten()
    return features.reshape(2, -1).T.flatten()


def reordered(
    weights: Mapping[str, Tensor], spec: str, graph: Graph, forms: tuple[str, str]
) -> dict[str, Tensor]:
    """Return weights with the features of the residual stream in another order.

    Args:
        weights: weights of the graph, by path.
        spec: file of the spec of the graph.
        graph: the graph; its params are those of the spec.
        forms: wanted and given form of sinusoidal positions.

    Raises:
        InputError: it is unknown which axes of the weights are features of the stream.
    """
    axes, width = _stream_axes(spec, graph)
    order = order_of(*forms, width)
    reordered_weights = dict(weights)
    for path, which in axes.items():
        for axis in which:
            reordered_weights[path] = reordered_weights[path].index_select(axis, order)
    return reordered_weights


def _stream_axes(spec: str, graph: Graph) -> tuple[dict[str, tuple[int, ...]], int]:
    """Return the axes of each weight that are features of the stream, and their number.

    These are the axes that depend on the width of the stream, without those that depend on another
    param, such as the width of a feed-forward block, and those that consist of heads.
    """
    shapes = graph.weights()
    changed: dict[str, dict[str, set[int]]] = {}
    of_width = set[str]()
    for name, value in graph.params.items():
        if not isinstance(value, int) or isinstance(value, bool):
            continue
        try:
            other = graph_of(load(spec, {**_given(graph), name: _BY * value}))
        except SpecError:
            continue
        now = other.weights()
        changed[name] = {
            path: {a for a, size in enumerate(shape) if now[path][a] != size}
            for path, shape in shapes.items()
            if path in now and len(now[path]) == len(shape)
        }
        if _width(other) != _width(graph):
            of_width.add(name)
    if len(of_width) != 1:
        raise InputError("the features of the residual stream cannot be reordered")
    [width] = of_width
    heads = _head_axes(graph)
    others = [changes for name, changes in changed.items() if name != width]
    axes = {
        path: tuple(
            axis
            for axis in sorted(which - heads.get(path, set()))
            if not any(axis in changes.get(path, ()) for changes in others)
        )
        for path, which in changed[width].items()
    }
    return axes, _width(graph)


def _given(graph: Graph) -> dict[str, Any]:
    """Return the params of a graph that are plain values."""
    scalar = int | float | str
    return {name: value for name, value in graph.params.items() if isinstance(value, scalar)}


def _width(graph: Graph) -> int:
    """Return the width of the vectors that position tables are added to; 0 without a table."""
    for _, _, part in owned_parts(graph.root):
        if part.block.role == "position_table":
            axis = part.inputs["x"].axes[-1]
            return axis if isinstance(axis, int) else 0
    return 0


def _head_axes(graph: Graph) -> dict[str, set[int]]:
    """Return the axes of weights that consist of heads."""
    axes: dict[str, set[int]] = {}
    for path, _, part in owned_parts(graph.root):
        prunable = part.block.prunable
        for name in prunable.rows if prunable is not None else ():
            axes[f"{path}.{name}.weight"] = {0}
            axes[f"{path}.{name}.bias"] = {0}
        for name in prunable.columns if prunable is not None else ():
            axes[f"{path}.{name}"] = {1}
    return axes
