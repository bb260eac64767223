"""The menu of a slot or a node: which blocks fit there, and what each would change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from ....graphs.draw.facts import pointers
from ....plugin import (
    BlockNode,
    BlockType,
    Finding,
    Graph,
    InputError,
    ValueType,
    Visit,
    default_sizes,
    flops,
    registry,
    visits,
)
from ....specs.json_tree import parts_of, value_at
from ....specs.load import LoadedSpec
from ..language.ports import example_signature
from .alone import Surroundings

_ROUNDS = 3
"""Maximum number of checks of one block: params without effect are left out."""


@dataclass(frozen=True, slots=True)
class Judged:
    """One block at one place."""

    use: str
    record: dict[str, Any] | None
    """The record that would be written; None if it does not fit."""
    proposed: Mapping[str, Any]
    """Params that it needs, and their proposed values."""
    reason: str = ""
    """Why it does not fit."""
    parameters: int = 0
    """Change of the number of parameters, of all copies."""
    flops: int = 0
    """Change of the FLOPs at the default sizes."""
    retained: float = 0.0
    """Share of the weights of this place that have the same names and shapes."""
    around: str = ""
    """The block that was at the place, if it fills the slot of this one."""

    def as_json(self, block: BlockType | None) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "use": self.use,
            "doc": block.doc if block else "",
            "family": block.family if block else "other",
            "fits": self.record is not None,
            "proposed": dict(self.proposed),
            "reason": self.reason,
            "parameters": self.parameters,
            "flops": self.flops,
            "kept": round(self.retained, 4),
            "around": self.around,
        }


def menu(graph: Graph, spec: LoadedSpec, path: str) -> list[dict[str, Any]]:
    """Return every block at a place: those that fit first.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: a node, a block in a slot, or an empty slot, such as `encoder.*.attention/f`.

    Raises:
        InputError: there is no such place.
    """
    position = _Place(graph, spec, path)
    judgements = [(position.judge(block.key, {}), block) for block in registry(spec.blocks)]
    judgements.sort(key=lambda pair: (pair[0].record is None, bool(pair[0].proposed), pair[0].use))
    return [judged.as_json(block) for judged, block in judgements]


def judge(graph: Graph, spec: LoadedSpec, path: str, use: str, params: Mapping[str, Any]) -> Judged:
    """Return what the menu says of one block with given params."""
    return _Place(graph, spec, path).judge(use, params)


def accepts(graph: Graph, spec: LoadedSpec, path: str, port: str, type_: str) -> bool:
    """Return whether a block takes a value of a type at a port, and still gives what it gave.

    Args:
        graph: the graph of the spec.
        spec: the spec.
        path: a node with a block.
        port: one of its inputs, wired or not.
        type_: the type of the value.
    """
    return _Place(graph, spec, path, {port: type_}).old is not None


class _Place:
    """One place of a spec, as a spec of its own with that node alone."""

    def __init__(
        self,
        graph: Graph,
        spec: LoadedSpec,
        path: str,
        types: Mapping[str, str] | None = None,
    ) -> None:
        self.graph = graph
        by_path = {visit.path: visit for visit in visits(graph.root)}
        node, _, slots = path.partition("/") if path not in by_path else _split(by_path[path])
        visit = by_path.get(node)
        if visit is None or visit.node.shares or (slots and not isinstance(visit.node, BlockNode)):
            raise InputError(f"'{path}' is not a block", location=path, help="see 'weft show'")
        self.visit, self.slots = visit, slots.split("/") if slots else []
        self.record = value_at(spec.value(), pointers(graph)[node])
        scope = visit.parent.body if visit.parent is not None and visit.parent.body else graph.root
        self.around = Surroundings(graph, spec, scope)
        self.types: dict[str, ValueType | str] = {
            port: scope.type_of(value) for port, value in visit.node.wires.items()
        }
        self.types |= types or {}
        self.old: Graph | None = None
        self.old, _ = self._check(self.record)

    def judge(self, use: str, params: Mapping[str, Any]) -> Judged:
        """Return whether a block fits, and what it changes."""
        block = self.around.registry.get(use)
        if block is None:
            return Judged(use, None, {}, "there is no such block")
        old = self._inner(self.record)
        kept_params = {
            name: value
            for name, value in (old or {}).get("params", {}).items()
            if name in block.params.model_fields
        }
        slots = example_signature(block).slots
        names = {slot.name for slot in slots}
        fill = {slot: part for slot, part in (old or {}).get("fill", {}).items() if slot in names}
        empty = [slot.name for slot in slots if not slot.optional and slot.name not in fill]
        around = ""
        if old and len(empty) == 1 and old.get("use") != use:
            fill = {empty[0]: {key: old[key] for key in ("use", "params", "fill") if key in old}}
            kept_params, around = {}, str(old.get("use", ""))
        arguments = {**kept_params, **params}
        reason = ""
        for proposed in self.around.proposals(
            block, arguments, self.types, self.visit.node.outputs
        ):
            judged = self._judge(use, {**arguments, **proposed}, fill, proposed)
            if judged.record is not None or judged.reason == reason:
                return replace(judged, around=around)  # the sizes are no reason to go on
            reason = reason or judged.reason
        return Judged(use, None, {}, reason)

    def _judge(
        self, use: str, arguments: dict[str, Any], fill: Mapping[str, Any], proposed: dict[str, Any]
    ) -> Judged:
        findings: list[Finding] = []
        for _ in range(_ROUNDS):
            record: dict[str, Any] = {"use": use}
            record |= {"params": arguments} if arguments else {}
            record |= {"fill": fill} if fill else {}
            if not self.slots and "in" in self.record:
                record = {
                    **{k: v for k, v in self.record.items() if k not in ("params", "fill")},
                    **record,
                }
            graph, findings = self._check(self._with(record))
            if graph is not None:
                return self._fitting(use, record, proposed, graph)
            idle = [parts_of(finding.at)[-1] for finding in findings if finding.code == "P08"]
            if not idle or len(idle) < len(findings):
                break
            arguments = {name: value for name, value in arguments.items() if name not in idle}
        reason = findings[0].problem if findings else "it cannot be checked here"
        return Judged(use, None, {}, reason)

    def _fitting(
        self, use: str, record: dict[str, Any], proposed: Mapping[str, Any], graph: Graph
    ) -> Judged:
        if self.old is None:
            return Judged(use, record, proposed)
        before, after = self.old.root.weights(), graph.root.weights()
        same = sum(prod(shape) for name, shape in before.items() if after.get(name) == shape)
        size = sum(map(prod, before.values()))
        sizes = {axis: default_sizes(self.graph).get(axis, 32) for axis in self.old.spec.axes}
        work = flops(graph, sizes) - flops(self.old, sizes)
        return Judged(
            use,
            record,
            proposed,
            parameters=(sum(map(prod, after.values())) - size) * self.visit.sets,
            flops=work * self.visit.runs,
            retained=same / size if size else 1.0,
        )

    def _inner(self, record: Mapping[str, Any]) -> Any:
        """Return the record of the place inside that of its node; None for an empty slot."""
        inner: Any = record
        for slot in self.slots:
            inner = (inner or {}).get("fill", {}).get(slot)
        return inner

    def _with(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record of the node with another one at the place."""

        def put(outer: Mapping[str, Any], slots: list[str]) -> dict[str, Any]:
            if not slots:
                return dict(record)
            fill = dict(outer.get("fill", {}))
            fill[slots[0]] = put(fill.get(slots[0]) or {}, slots[1:])
            return {**outer, "fill": fill}

        return put(self.record, self.slots)

    def _check(self, record: Mapping[str, Any]) -> tuple[Graph | None, list[Finding]]:
        """Check a spec with this node alone, between the types that it has in the spec."""
        return self.around.check(record, self.types, self.visit.node.outputs)


def _split(visit: Visit) -> tuple[str, str, str]:
    """Return the path of the node around a visit, and its slots."""
    slots: list[str] = []
    step = visit
    while step.kind == "slot" and step.parent is not None:
        slots.insert(0, step.pieces[-1][1])
        step = step.parent
    return step.path, "/", "/".join(slots)
