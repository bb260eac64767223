"""Canonical form: a graph written as a spec with all expressions and defaults resolved.

Expressions are replaced by their values, defaults are written out, and keys are sorted.  Two specs
with the same canonical form compute the same function of the same weights, so its hash is the
fingerprint that checkpoints store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from ...specs.form import FORMAT
from .graph import (
    BlockNode,
    Filling,
    Graph,
    Node,
    Part,
    RepeatNode,
    Scope,
    TemplatePart,
)
from .traverse import model_of, walk

Json = dict[str, Any]
REPEAT_KEYS = ("repeat", "carry", "collect", "share")


def canonical(graph: Graph, *, models: Literal["params", "templates"] = "params") -> dict[str, Any]:
    """Return the canonical form of a graph; checking it gives the same form again.

    Args:
        graph: a checked spec.
        models: `params` writes the models of an objective as params that hold their specs, and
            `templates` as templates, so that all paths can be compared with those of other graphs.
    """
    writer = _Writer(graph, models=models)
    spec = graph.spec
    full: dict[str, Any] = {"format": FORMAT, "name": spec.name, "doc": spec.doc}
    full["axes"] = dict(sorted(spec.axes.items()))
    full["inputs"] = {name: str(type_) for name, type_ in sorted(graph.inputs.items())}
    full["outputs"] = dict(sorted(spec.outputs.items()))
    full["params"] = {
        writer.names[id(model)]: {"spec": canonical(model)} for model in writer.models
    }
    scopes = {writer.names[id(body)]: body for body in writer.bodies}
    full["blocks"] = {name: writer.template(scope) for name, scope in sorted(scopes.items())}
    full["nodes"] = writer.nodes(graph.root)
    full["init"] = _init(graph.root)
    full["tie"] = [list(group) for group in graph.written_ties if group not in writer.ties]
    if graph.step_axis is not None:
        full["step"] = {"axis": graph.step_axis}
    if graph.segments is not None:
        full["segments"] = {"axis": graph.segments.axis, "memory": graph.segments.memory}
    if graph.losses and any(map(model_of, graph.root.nodes)):
        full["deploy"] = graph.deploy or ""
    full["losses"] = {name: w for name, w in sorted(graph.losses.items()) if w != 1.0}
    full["allow"] = sorted(spec.allow)
    return {key: value for key, value in full.items() if value not in ({}, [], "")}


def fingerprint(graph: Graph) -> str:
    """Return the SHA-256 of a graph's canonical form, without name, doc and allowed warnings."""
    return fingerprint_of(canonical(graph))


def fingerprint_of(form: Json) -> str:
    """Return the fingerprint of a canonical form, in whichever spec format it was written."""
    full = {key: value for key, value in form.items() if key not in ("name", "doc", "allow")}
    text = json.dumps(full, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def numbered_apart(graph: Graph) -> Graph:
    """Return a graph whose templates have the names of its canonical form.

    A generic template that is used with several types has several insides, here with different
    names, so that what shows them does not differ between a spec and its canonical form.
    """
    names = _Writer(graph, models="params").names
    nodes = [node for _, node in walk(graph.root)]
    insides = [body for node in nodes for _, body, _ in node.insides()]
    alike = all(names.get(id(body), body.name) == body.name for body in insides)
    if alike and not any(map(model_of, nodes)):
        return graph
    renamed: dict[int, Scope] = {}

    def inside(body: Scope) -> Scope:
        if id(body) not in renamed:
            name = names.get(id(body), body.name)
            renamed[id(body)] = replace(body, name=name, nodes=tuple(map(of_node, body.nodes)))
        return renamed[id(body)]

    def of_filling(filling: Filling) -> Filling:
        if isinstance(filling, Part):
            return of_part(filling)
        return replace(filling, body=inside(filling.body))

    def of_part(part: Part) -> Part:
        return replace(part, fill={slot: of_filling(inner) for slot, inner in part.fill.items()})

    def of_node(node: Node) -> Node:
        if isinstance(node, BlockNode):
            return replace(node, part=of_part(node.part))
        if (model := model_of(node)) is not None:
            return replace(node, body=numbered_apart(replace(model, root=node.body)).root)
        if isinstance(node, RepeatNode):
            others = {index: inside(body) for index, body in node.instead.items()}
            return replace(node, body=inside(node.body), instead=others)
        return replace(node, body=inside(node.body))

    return replace(graph, root=inside(graph.root))


class _Writer:
    """Writes the nodes of a graph, with a name for each distinct template and held model.

    A generic template that is used with several types becomes several templates, numbered in
    the order of the paths that use them.
    """

    def __init__(self, graph: Graph, *, models: str) -> None:
        walked = sorted(walk(graph.root), key=lambda pair: pair[0])
        self.hold = models == "params"
        closed = [path for path, node in walked if self._held(node) or (self.hold and node.shares)]
        self.inside = tuple(f"{path}." for path in closed)
        """Beginnings of the paths inside held models."""
        self.ties = {
            tuple(f"{path}.{weight}" for weight in group)
            for path, node in walked
            if (model := self._held(node)) is not None
            for group in model.ties
        }
        """Tied parameters that the specs of held models tie themselves."""
        nodes = [node for path, node in walked if not path.startswith(self.inside or "/")]
        nodes = [node for node in nodes if not (self.hold and node.shares)]
        self.models: list[Graph] = []
        self.bodies: list[Scope] = []
        self.names: dict[int, str] = {}
        used: list[Scope | Graph] = []
        for node in nodes:
            model = self._held(node)
            used += [model] if model else [body for _, body, _ in node.insides()]
        self.idle = _with_idle_inputs([node for node in nodes if isinstance(node, RepeatNode)])
        taken = {_word(template) for template in used}
        assigned: set[str] = set()
        for template in used:
            if id(template) in self.names:
                continue
            name, number = _word(template), 2
            while name in assigned or (number > 2 and name in taken):  # noqa: PLR2004 - the first copy
                name, number = f"{_word(template)}_{number}", number + 1
            assigned.add(name)
            self.names[id(template)] = name
            if isinstance(template, Scope):
                self.bodies.append(template)
            else:
                self.models.append(template)

    def _held(self, node: Node) -> Graph | None:
        return model_of(node) if self.hold else None

    def template(self, scope: Scope) -> Json:
        init = _init(scope)
        return {
            "inputs": {name: str(type_) for name, type_ in sorted(scope.inputs.items())},
            "outputs": dict(sorted(scope.outputs.items())),
            "nodes": self.nodes(scope),
            **({"init": init} if init else {}),
        }

    def nodes(self, scope: Scope) -> Json:
        ordered = sorted(scope.nodes, key=lambda node: node.name)
        return {node.name: self.node(node) for node in ordered}

    def node(self, node: Node) -> Json:
        wires = dict(sorted(node.wires.items()))
        if node.shares and self.hold:
            return {"share": node.shares, "in": wires}
        more: Json = {"frozen": True} if node.frozen else {}
        more |= {"shares": node.shares} if node.shares else {}
        if isinstance(node, BlockNode):
            return {**self.part(node.part), **more, "in": wires}
        if (model := self._held(node)) is not None:
            return {"use": f"={self.names[id(model)]}", **more, "in": wires}
        name = self.names[id(node.body)]
        if not isinstance(node, RepeatNode):
            return {"use": name, **more, "in": wires}
        others = {str(i): self.names[id(body)] for i, body in sorted(node.instead.items())}
        if id(node.body) in self.idle and not node.share:
            # The template replaces one that is gone: as its own replacement, it still is valid.
            others[next(str(i) for i, body in node.copies() if body is node.body)] = name
            others = dict(sorted(others.items(), key=lambda copy: int(copy[0])))
        ports = {"carry": sorted(node.carry), "collect": sorted(node.collect)}
        options = {"share": node.share, "instead": others}
        fields = {key: value for key, value in {**ports, **options, **more}.items() if value}
        return {"repeat": node.repeat, "block": name, **fields, "in": wires}

    def part(self, part: Filling) -> Json:
        if isinstance(part, TemplatePart):
            return {"use": self.names[id(part.body)]}
        written: Json = {"use": part.block.key}
        fields = type(part.params).model_fields
        params = {
            name: value
            for name, value in sorted(part.params.model_dump(mode="json").items())
            if value is not None or fields[name].default is not None
        }
        if params:
            written["params"] = params
        if part.fill:
            fill = {slot: self.part(inner) for slot, inner in sorted(part.fill.items())}
            written["fill"] = fill
        return written


def _with_idle_inputs(repeats: Sequence[RepeatNode]) -> set[int]:
    """Return the ids of the templates of repeats with an input that is neither read nor excused.

    As in a spec, a copy that replaces others may ignore inputs, and the others may ignore those
    that it reads or that are carried.
    """
    excused: dict[int, set[str]] = {id(node.body): set() for node in repeats}
    for node in repeats:
        excused[id(node.body)].update(node.carry, *map(_reads, node.instead.values()))
        excused |= {id(other): {*other.inputs} for other in node.instead.values()}
    idle = (
        node.body.inputs.keys() - _reads(node.body) - excused[id(node.body)] for node in repeats
    )
    return {id(node.body) for node, inputs in zip(repeats, idle, strict=True) if inputs}


def _reads(scope: Scope) -> set[str]:
    """Return the values that nodes and outputs of a scope read."""
    return {*scope.outputs.values()}.union(*(node.wires.values() for node in scope.nodes))


def _init(scope: Scope) -> list[Json]:
    """Return the rules for initial weights of a scope, in order."""
    return [
        {
            "select": rule.select,
            "weights": rule.weights,
            **(
                {rule.action: True if rule.action == "zeros" else rule.value} if rule.action else {}
            ),
            **({"frozen": True} if rule.frozen else {}),
        }
        for rule in scope.init
    ]


def _word(body: Scope | Graph) -> str:
    """Return the name of a template, or a name for the param that holds a model."""
    if isinstance(body, Scope):
        return body.name
    return "model_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in body.name)[:50]


def scope_of(form: Json, template: str) -> Json:
    """Return a template of a canonical form, or the form itself."""
    scope: Json = form["blocks"][template] if template else form
    return scope


def is_part(record: Json) -> bool:
    """Return whether a record uses a registered block: only keys of blocks contain a version."""
    return "@" in record.get("use", "")


def stack_of(record: Json) -> Json:
    """Return the use of a template in one form, repeated or not."""
    block = record.get("block", record.get("use"))
    others = {index: name for index, name in record.get("instead", {}).items() if name != block}
    settings = {key: record[key] for key in REPEAT_KEYS if key in record}
    return {"block": block, "instead": others, **settings}


def numbered(stack: Json) -> bool:
    """Return whether paths below a use of a template contain copy numbers."""
    return "repeat" in stack and not stack.get("share", False)
