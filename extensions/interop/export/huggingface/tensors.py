"""Reordering the features of the residual stream, which changes no output.

Sinusoidal positions of two libraries differ in the order of their features: sines and cosines
alternate, or all sines come first.  If every other block treats all features alike, a model with
one order computes the same as a model with the other order, whose weights have their axes of
features reordered.  That holds for linear maps, embeddings and norms over all features; the result
is compared with the model, so that a block for which it does not hold is noticed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .....plugin import Graph, InputError, SpecError, graph_of, owned_parts
from .....runtime.checkpoint.mapping.layout import TensorLayout
from .....runtime.checkpoint.mapping.origin import LinePart, Origin, assigned
from .....specs.expressions import ExpressionError
from .....specs.load import load
from ...importing.config import Configuration
from ...importing.table import ImportTable

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


@dataclass(slots=True)
class _Source:
    """What the lines of a table write into one source tensor."""

    pieces: list[tuple[str, TensorLayout, Tensor]] = field(default_factory=list)
    """Path of the target weight, its layout and its values."""
    unread: float | None = None


def assembled(
    table: ImportTable,
    source: str,
    weights: Mapping[str, Tensor],
    config: Configuration,
    *,
    ties: Iterable[Sequence[str]] = (),
    names: Mapping[str, Collection[str]] = {},
) -> dict[str, Tensor]:
    """Return the source tensors of target weights, by their names in the folder.

    Of several names of a tensor, those that the imported folder had are written, because the class
    of its configuration reads these; a model that was not imported has the first.

    Args:
        table: origin of each weight.
        source: file of the table.
        weights: every target weight once.
        config: configuration read by the table's expressions.
        ties: groups of paths of one weight, of which the first is in `weights`.
        names: names that tensors had in the imported folder, by the first name of their line, as
            far as they differ from it.

    Raises:
        InputError: a weight has no counterpart, or elements of a tensor would be written twice or
            not at all.
        SpecError: a path matches two patterns of the table.
    """
    stored = {path: group[0] for group in ties for path in group[1:] if group[0] in weights}
    plan, without = assigned(table.weights, source, [*weights, *stored])
    without = [path for path in without if path not in stored]
    if without:
        raise InputError(
            f"the table '{table.name}' has no counterpart of '{without[0]}'", location=source
        )
    sources: dict[str, _Source] = {}
    for path, origin in plan.items():
        try:
            reads = (tensor for part in origin.reads() for tensor in part.names(config))
            if path in stored and not any(default in names for default, *_ in reads):
                continue  # the line of its first path writes it
            first = stored.get(path, path)
            for alternatives, part, piece in _pieces(path, origin, weights[first], config):
                for name in _written(alternatives, names):
                    entry = sources.setdefault(name, _Source())
                    entry.pieces.append((path, part.layout(config), piece))
                    if part.line.unread is not None:
                        entry.unread = part.line.unread
        except (ExpressionError, ValueError) as error:
            raise InputError(f"'{path}' cannot be exported: {error}", location=source) from error
    return {full_name(name, table): _tensor(name, entry) for name, entry in sources.items()}


def _written(alternatives: Sequence[str], names: Mapping[str, Collection[str]]) -> list[str]:
    """Return the names under which a tensor is written; `names` is as in `assembled`."""
    default = alternatives[0]
    return [name for name in alternatives if name in names.get(default, (default,))]


def full_name(name: str, table: ImportTable) -> str:
    """Return the name of a tensor in the folder, given its name in the table."""
    return name if name.partition(".")[0] in table.outside else f"{table.prefix}{name}"


def _pieces(
    path: str, origin: Origin, tensor: Tensor, config: Configuration
) -> Iterator[tuple[Sequence[str], LinePart, Tensor]]:
    """Yield the names of the source tensors of a target weight, with line and values.

    Raises:
        InputError: the weight has no source tensor, and is not the constant that an import gives.
        ExpressionError: an expression of the table cannot be evaluated.
        ValueError: the weight has no such part.
    """
    covered = torch.zeros(tensor.shape, dtype=torch.bool)
    for part in origin.parts:
        if part.line.names:
            part.region(covered, config).fill_(value=True)
            yield from _of_line(path, part, part.region(tensor, config), config)
    fills = [part.line.fill for part in origin.parts if not part.line.names]
    for fill in fills:
        if not bool(tensor[~covered].eq(fill or 0.0).all()):
            raise InputError(
                f"'{path}' has no counterpart, and is not {fill:g} everywhere",
                help="export as another architecture: weft fits lists them",
            )
    if not fills and not bool(covered.all()):
        raise InputError(f"no line of the table reads all of '{path}'")


def _of_line(
    path: str, part: LinePart, tensor: Tensor, config: Configuration
) -> Iterator[tuple[Sequence[str], LinePart, Tensor]]:
    """Yield the names of the source tensors that a line writes, with the line and their values.

    Raises:
        InputError: the line cannot be read backwards.
        ExpressionError: an expression of the table cannot be evaluated.
    """
    line, factor = part.line, part.factor
    if line.tile or (factor is not None) != bool(line.normalize):
        raise InputError(
            f"'{path}' cannot be exported: its line repeats a tensor, or has a factor whose"
            " counterpart is unknown"
        )
    if line.add is not None:
        tensor = tensor - part.number(line.add, config)
    if isinstance(line.times, float | str):
        tensor = tensor / part.number(line.times, config)
    if factor is not None:  # a weight is its norm times its direction
        norm = tensor.norm(dim=line.normalize, keepdim=True)
        yield from _of_line(path, factor, norm, config)
    names = part.names(config)
    if line.stack is None:
        yield names[0], part, tensor
        return
    if len(names) != tensor.size(0):
        raise InputError(f"'{path}' has {tensor.size(0)} entries, but {len(names)} tensors")
    for alternatives, piece in zip(names, tensor.unbind(0), strict=True):
        yield alternatives, part, piece


def _tensor(name: str, source: _Source) -> Tensor:
    """Return a source tensor.

    Raises:
        InputError: its shape is unknown, or elements are written twice or not at all.
    """
    try:
        shape = _shape(source)
        tensor = torch.full(shape, source.unread or 0.0)
        written = torch.zeros(shape, dtype=torch.bool)
        for path, layout, piece in source.pieces:
            target = layout.view(tensor)
            filled = layout.view(written)
            values = piece.reshape(target.shape)
            if bool(((target != values) & filled).any()):
                raise InputError(
                    f"'{path}' and another weight are one tensor of theirs, '{name}', but differ",
                    help="tie them in the spec, or export as another architecture",
                )
            target.copy_(values)
            filled.fill_(value=True)
    except (ValueError, RuntimeError) as error:
        raise InputError(f"the tensor '{name}' cannot be written: {error}") from error
    if source.unread is None and not bool(written.all()):
        count = int((~written).sum())
        raise InputError(f"{count} elements of the tensor '{name}' have no counterpart")
    return tensor


def _shape(source: _Source) -> list[int]:
    """Return the shape that fits all pieces.

    Raises:
        ValueError: there is none.
    """
    every = [layout.extents(tuple(piece.shape)) for _, layout, piece in source.pieces]
    if len({len(extents) for extents in every}) > 1:
        msg = "the lines of the table give it different numbers of axes"
        raise ValueError(msg)
    shape = []
    for axis in zip(*every, strict=True):
        exact = {extent.size for extent in axis if extent.exact}
        least = max(extent.size for extent in axis)
        if len(exact) > 1 or (exact and least > max(exact)):
            msg = f"the lines of the table give an axis the sizes {sorted(exact | {least})}"
            raise ValueError(msg)
        shape.append(exact.pop() if exact else least)
    return shape
