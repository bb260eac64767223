"""Axes of a model inside another graph: the same scopes with the axes of the outer graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..ir.graph import BlockNode, Filling, Node, Part, RepeatNode, Scope, TemplatePart
from ..ir.value_type import Bound, ValueType, substitute


def in_axes(scope: Scope, axes: Bound) -> Scope:
    """Return a scope with the axes of its types replaced.

    Args:
        scope: the root of a model.
        axes: axis of the model to what stands for it: an axis or a number.
    """
    return _Renaming(axes).scope(scope)


class _Renaming:
    """Replaces axes; a template that several nodes use stays one object."""

    def __init__(self, axes: Bound) -> None:
        self.axes = axes
        self.done: dict[int, Scope] = {}

    def scope(self, scope: Scope) -> Scope:
        if id(scope) not in self.done:
            self.done[id(scope)] = replace(
                scope,
                inputs=self.types(scope.inputs),
                nodes=tuple(map(self.node, scope.nodes)),
            )
        return self.done[id(scope)]

    def types(self, types: Mapping[str, ValueType]) -> dict[str, ValueType]:
        return {name: substitute(type_, self.axes) for name, type_ in types.items()}

    def node(self, node: Node) -> Node:
        outputs = self.types(node.outputs)
        if isinstance(node, BlockNode):
            return replace(node, outputs=outputs, part=self.part(node.part))
        body = self.scope(node.body)
        if isinstance(node, RepeatNode):
            others = {index: self.scope(other) for index, other in node.instead.items()}
            return replace(node, outputs=outputs, body=body, instead=others)
        return replace(node, outputs=outputs, body=body)

    def part(self, part: Part) -> Part:
        return replace(
            part,
            inputs=self.types(part.inputs),
            outputs=self.types(part.outputs),
            axes={name: self.axis(axis) for name, axis in part.axes.items()},
            fill={slot: self.filling(inner) for slot, inner in part.fill.items()},
        )

    def filling(self, inner: Filling) -> Filling:
        if isinstance(inner, TemplatePart):
            return replace(inner, body=self.scope(inner.body), inputs=self.types(inner.inputs))
        return self.part(inner)

    def axis(self, axis: Any) -> Any:
        """Return what an axis name of a signature is bound to: an axis, or several for `...`."""
        if isinstance(axis, tuple):
            return tuple(substitute(ValueType("f", axis), self.axes).axes)
        if not isinstance(axis, str):
            return axis
        return substitute(ValueType("f", (axis,)), self.axes).axes[0]
