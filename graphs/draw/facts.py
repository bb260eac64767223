"""Facts: what a page says of each node: its types, costs, and where it is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ...specs.findings import pointer
from ..checker.block_params import choices
from ..cost.table import CostTable, cost_table
from ..ir.graph import BlockNode, Graph, Part, RepeatNode, last_result
from ..ir.traverse import Visit, holds_model, in_model, visits
from ..ir.value_type import ValueType, evaluate
from .labels import number, words_of
from .outline import above, outline


def facts(graph: Graph, sizes: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Return what there is to say of each node and each block in a slot, by path.

    Args:
        graph: a checked graph.
        sizes: axis of the graph to its length.

    Raises:
        InputError: an axis has no size.
    """
    table = cost_table(graph, sizes)
    memory = _memory(table)
    by_path = {visit.path: visit for visit in visits(graph.root)}
    at = pointers(graph)
    entries: dict[str, dict[str, Any]] = {}
    texts = _Texts(sizes)
    for line in outline(graph, sizes):
        visit = by_path[line.path]
        part = visit.part if isinstance(visit.part, Part) else None
        entries[line.path] = {
            "name": line.name,
            "use": line.use,
            "doc": part.block.doc if part else (visit.body.doc if visit.body else ""),
            "source": part.block.source if part else "",
            "title": words_of(visit.part).title if visit.part is not None else "",
            "shown": line.shown,
            "params": _params(part) if part else {},
            "repeat": line.repeat,
            "inputs": texts.of(line.inputs),
            "outputs": texts.of(line.outputs),
            "weights": line.weights,
            "each": line.per_copy,
            "parameters": line.parameters,
            "tied": line.tied,
            "flops": line.flops,
            "memory": memory[line.path],
            "at": at.get(line.path, ""),
            "frozen": visit.node.frozen,
            "shares": visit.node.shares or "",
            "slots": [slot.name for slot in part.signature.slots] if part else [],
        }
    return entries


def param_help(graph: Graph) -> dict[str, dict[str, dict[str, Any]]]:
    """Return what the params of the blocks of a graph mean, and their values if they are few.

    Returns:
        Key of a block to its params, each with `doc` and, if not every value is possible,
        `choices`.
    """
    parts = (visit.part for visit in visits(graph.root))
    used = {part.key: part.block for part in parts if isinstance(part, Part)}
    return {
        key: {
            name: {
                "doc": field.description or "",
                "choices": [False, True]
                if field.annotation is bool
                else list(dict.fromkeys(choices(field.annotation))),
            }
            for name, field in block.params.model_fields.items()
        }
        for key, block in used.items()
    }


def _memory(table: CostTable) -> Counter[str]:
    """Return the bytes of the outputs of each node, and of all that is in it."""
    memory: Counter[str] = Counter()
    for node in table.nodes:
        for line in above(node.path.partition("/")[0]):
            memory[line] += node.activation_bytes
    return memory


@last_result
def _params(part: Part) -> Mapping[str, Any]:
    return {name: _shown(value) for name, value in part.params.model_dump().items()}


def _shown(value: Any) -> Any:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={_shown(inner)}" for name, inner in value.items())
    return number(value) if isinstance(value, float) else value


class _Texts:
    """Types as text, followed by their shapes; most nodes have those of others."""

    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.texts: dict[ValueType, str] = {}

    def of(self, types: Mapping[str, ValueType]) -> dict[str, str]:
        for type_ in types.values():
            if type_ not in self.texts:
                self.texts[type_] = f"{type_}{self._shape(type_)}"
        return {port: self.texts[type_] for port, type_ in types.items()}

    def _shape(self, type_: ValueType) -> str:
        try:
            return f" = {[int(evaluate(axis, self.sizes)) for axis in type_.axes]}"
        except (KeyError, ValueError, ArithmeticError):
            return ""


def pointers(graph: Graph) -> dict[str, str]:
    """Return the JSON Pointer of each node, each template and each filling in the merged spec.

    The nodes of a model that a param holds are in another file, and have none.
    """
    locations: dict[str, str] = {}
    inner: dict[str, str] = {}
    for visit in visits(graph.root):
        if in_model(visit):
            continue
        at = _pointer(visit, inner)
        locations[visit.path] = at
        if visit.body is not None and not holds_model(visit.node):
            inner[visit.path] = pointer("blocks", visit.body.name)
    return locations


def _pointer(visit: Visit, inner: Mapping[str, str]) -> str:
    kind, word = visit.pieces[-1]
    parent = visit.parent
    if kind == "slot" and parent is not None:
        below = [slot.pieces[-1][1] for slot in _slots(visit)]
        node = visit
        while node.kind == "slot" and node.parent is not None:
            node = node.parent
        return _pointer(node, inner) + "".join(pointer("fill", slot) for slot in reversed(below))
    if kind == "index" and visit.body is not None:
        return pointer("blocks", visit.body.name)
    around = inner.get(parent.path, "") if parent is not None else ""
    return around + pointer("nodes", word)


def _slots(visit: Visit) -> Iterator[Visit]:
    """Yield a visit of a slot and those of the slots around it, from the inside."""
    step: Visit | None = visit
    while step is not None and step.kind == "slot":
        yield step
        step = step.parent


def foldable(graph: Graph) -> dict[str, dict[str, Any]]:
    """Return the templates, repeats and models that a page can fold, by path.

    Each has `repeat`, its number of copies or None, and `open`, whether it is open at first.
    """
    entries = {}
    for visit in visits(graph.root):
        if visit.kind != "name" or isinstance(visit.node, BlockNode):
            continue
        repeat = visit.node.repeat if isinstance(visit.node, RepeatNode) else None
        closed = holds_model(visit.node) or bool(visit.node.shares)
        entries[visit.path] = {"repeat": repeat, "open": not closed}
    return entries
