"""Carrying: how a template can read a value from outside, through an input that its uses wire."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from ...specs.expressions import words_in
from ...specs.findings import pointer
from ...specs.form import AnyNode, RepeatedTemplate, ShareNode, SpecForm, Template, Use
from ...specs.text_edits import PatchOperation
from .graph import BlockNode, Scope
from .value_type import Axis, ValueType, is_known


@dataclass(frozen=True, slots=True)
class Carried:
    """A value from outside a template as an input of the template."""

    name: str
    """The input."""
    type: str
    """The type of an input that the template lacks so far; empty if it has the input."""
    edits: tuple[PatchOperation, ...]
    """Edits of the merged spec that declare the input and wire the value at every use, also through
    the templates around it."""
    sources: frozenset[str]
    """JSON Pointers of the inputs or nodes outside that have the value."""


def carried(
    spec: SpecForm,
    params: Mapping[str, Any],
    template: str,
    value: str,
    root: Scope,
    insides: Iterable[Scope],
) -> Carried | None:
    """Return how a template reads a value of the scopes that use it.

    Args:
        spec: the spec.
        params: the values of its params.
        template: name of the template.
        value: an input or `node.port`, as it is called outside.
        root: the typed root of the spec.
        insides: typed insides of templates.

    Returns:
        The input; None if the value does not exist around every use, or its type is not known.
    """
    carrying = _Carrying(spec, params, value, root, insides)
    try:
        name = carrying.name_in(template)
    except _ImpossibleError:
        return None
    type_, edits = carrying.types.get(template, ""), tuple(carrying.edits)
    return Carried(name, type_, edits, frozenset(carrying.sources))


class _ImpossibleError(Exception):
    """A value cannot be carried into a template."""


@dataclass(frozen=True, slots=True)
class _UseOf:
    """A node that uses a template, itself or in a slot."""

    scope: str
    """The template that contains the node; "" for the spec itself."""
    node: str
    record: AnyNode
    others: frozenset[str]
    """Templates of other copies, which get the same wires."""


class _Carrying:
    """Carries one value into templates, of which each gets at most one input."""

    def __init__(
        self,
        spec: SpecForm,
        params: Mapping[str, Any],
        value: str,
        root: Scope,
        insides: Iterable[Scope],
    ) -> None:
        self.spec, self.params, self.value = spec, params, value
        self.edits: list[PatchOperation] = []
        self.sources = set[str]()
        self.types: dict[str, str] = {}
        """Template to the type of its new input."""
        self._names: dict[str, str] = {}
        self._scopes: dict[str, list[Scope]] = {"": [root]}
        for scope in insides:
            self._scopes.setdefault(scope.name, []).append(scope)

    def name_in(self, template: str) -> str:
        """Return the input of a template that has the value, and add the edits that it needs.

        Raises:
            _ImpossibleError: a use of the template cannot wire the value.
        """
        if template not in self._names:
            self._names[template] = ""
            self._names[template] = self._carry(template)
        if not self._names[template]:  # a template that contains itself
            raise _ImpossibleError
        return self._names[template]

    def _carry(self, template: str) -> str:
        if not template:
            raise _ImpossibleError  # of the spec itself; nodes without their form use "", too
        uses = list(_uses_of(self.spec, template))
        if not uses or any(_chooses(value, template) for value in _params_of(self.spec)):
            raise _ImpossibleError
        values = [self.value if self._has(use.scope) else self.name_in(use.scope) for use in uses]
        wires = [(use.record.in_, value) for use, value in zip(uses, values, strict=True)]
        fitting = (
            port
            for port in self.spec.blocks[template].inputs
            if any(port in wired for wired, _ in wires)
            and all(wired.get(port, value) == value for wired, value in wires)
        )
        name = next(fitting, "") or self._declared(template, uses)
        for use, value in zip(uses, values, strict=True):
            at = _place(use.scope) + pointer("nodes", use.node, "in")
            if not use.record.in_:
                self.edits.append(PatchOperation("add", at, {name: value}))
            elif name not in use.record.in_:
                self.edits.append(PatchOperation("add", at + pointer(name), value))
        return name

    def _declared(self, template: str, uses: list[_UseOf]) -> str:
        """Return a new input of a template, declared also in those of single copies."""
        others = frozenset[str]().union(*(use.others for use in uses))
        nodes = {(use.scope, use.node) for use in uses}
        uses_of_others = (use for other in others for use in _uses_of(self.spec, other))
        if any((use.scope, use.node) not in nodes for use in uses_of_others):
            raise _ImpossibleError  # there, it would have an input without a wire
        templates = {name: self.spec.blocks[name] for name in (template, *sorted(others))}
        taken = {port for use in uses for port in (*use.record.in_, *self._ports(use))}
        taken |= {name for record in templates.values() for name in (*record.inputs, *record.nodes)}
        name = self.value.partition(".")[0]
        while name in taken:
            name += "_"
        type_ = self._type(templates.values(), uses)
        for key in templates:
            self.types[key] = type_
            self.edits.append(PatchOperation("add", _place(key) + pointer("inputs", name), type_))
        return name

    def _has(self, scope: str) -> bool:
        name, dot, _ = self.value.partition(".")
        record, kind = self._record(scope), "nodes" if dot else "inputs"
        if name not in getattr(record, kind):
            return False
        self.sources.add(_place(scope) + pointer(kind, name))
        return True

    def _record(self, scope: str) -> SpecForm | Template:
        return self.spec.blocks[scope] if scope else self.spec

    def _type(self, templates: Iterable[Template], uses: list[_UseOf]) -> str:
        """Return the type of the value for some templates, as it is written or inferred."""
        source = next((use.scope for use in uses if self._has(use.scope)), None)
        if source is None:
            return self.types[uses[0].scope]
        text = self._record(source).inputs.get(self.value, "")
        params = {param for template in templates for param in template.params}
        if text and params.isdisjoint(words_in(text)):
            return text
        types = set[ValueType]()
        for scope in self._scopes.get(source, ()):
            with suppress(KeyError):
                types.add(scope.type_of(self.value))
        if len(types) != 1 or not all(map(is_known, types)):
            raise _ImpossibleError
        type_ = types.pop()
        axes = tuple(self._sized(axis, params) for axis in type_.axes)
        size = type_.size if type_.size is None else self._sized(type_.size, params)
        return str(replace(type_, axes=axes, size=size))

    def _sized(self, size: Axis, hidden: Collection[str]) -> Axis:
        """Return the only param with the value of a size, or else the size."""
        names = [
            name for name, value in self.params.items() if value == size and size not in (0, 1)
        ]
        return names[0] if len(names) == 1 and names[0] not in hidden else size

    def _ports(self, use: _UseOf) -> Iterator[str]:
        """Yield the ports of the block of a node, whose slot the template fills."""
        for scope in self._scopes.get(use.scope, ()):
            for node in scope.nodes:
                if node.name == use.node and isinstance(node, BlockNode):
                    yield from (port.name for port in node.part.signature.inputs)


def _place(template: str) -> str:
    return pointer("blocks", template) if template else ""


def _uses_of(spec: SpecForm, template: str) -> Iterator[_UseOf]:
    """Yield the nodes that use a template."""
    records: dict[str, SpecForm | Template] = {"": spec, **spec.blocks}
    for scope, record in records.items():
        for key, node in record.nodes.items():
            owner = record.nodes.get(node.share) if isinstance(node, ShareNode) else node
            if isinstance(owner, RepeatedTemplate):
                used = frozenset([owner.block, *owner.instead.values()])
                if template in used:
                    yield _UseOf(scope, key, node, used - {template})
            elif isinstance(owner, Use) and template in _blocks_of(owner):
                yield _UseOf(scope, key, node, frozenset())


def _blocks_of(use: Use) -> Iterator[str]:
    """Yield the blocks and templates that a use names, itself or in its slots."""
    yield use.use
    for inner in use.fill.values():
        yield from _blocks_of(inner)


def _params_of(spec: SpecForm) -> Iterator[Any]:
    """Yield the params of a spec, of its templates, and of all nodes."""
    records: list[SpecForm | Template] = [spec, *spec.blocks.values()]
    for record in records:
        yield record.params
        for node in record.nodes.values():
            yield {} if isinstance(node, ShareNode) else node.params


def _chooses(value: Any, template: str) -> bool:
    """Return whether the value of a param chooses a template."""
    if isinstance(value, dict):
        return value.get("use") == template or any(_chooses(v, template) for v in value.values())
    return isinstance(value, list) and any(_chooses(inner, template) for inner in value)
