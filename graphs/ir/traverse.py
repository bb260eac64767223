"""Traversal: walk over the nodes and blocks of a graph, with one notation for paths.

Analyses that follow values along wires, such as the checker, go through the scopes themselves.

A path names nodes from the root, separated by dots, in the notation of patch selections:

    decoder.3.self_attention      a node in copy 3 of a repeat
    decoder.*.self_attention      the same node in all copies of `decoder`
    decoder.*.self_attention/f    the block in slot `f` of that node

The path of a module, and of a parameter in the state_dict, has a dot in place of the slash, and
no copy number where copies share their weights.

Binding-time analysis tells which values depend on the step axis: an input with that axis is
*moving*, and so is every value that depends on it; all other values are *fixed* and computed once,
before the first step.  A template may return moving and fixed values, and a repeat may carry both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Set
from dataclasses import dataclass, replace
from typing import Literal

from .graph import (
    BlockNode,
    Filling,
    Graph,
    InitRule,
    Node,
    Part,
    RepeatNode,
    Scope,
    TemplateNode,
    TemplatePart,
    last_result,
)

Copies = Literal["folded", "weights", "each"]
"""How a walk treats the copies of a repeat.

`folded`: the copies of a template are visited once, at `*`.  `weights`: one visit for each set of
weights, so copies that share their weights are visited once.  `each`: every copy is visited.
"""
Piece = tuple[Literal["name", "index", "slot"], str]
"""One piece of a path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One step of a walk: a node, a copy of a repeat, or the block or template in a slot."""

    pieces: tuple[Piece, ...]
    path: str
    """Path of the node or block, in the notation of patch selections."""
    module: str
    """Path of its module; of the first copy where several are folded."""
    node: Node
    """The node; for a copy, its repeat; for a slot, the node that contains it."""
    part: Filling | None = None
    """The block of a block node, or the block or template in a slot."""
    body: Scope | None = None
    """The template of a template node, a repeat, a copy, or a slot."""
    runs: int = 1
    """How often it runs in one forward pass."""
    sets: int = 1
    """Number of sets of its weights; less than `runs` where copies share weights, and 0 where it
    applies the module of another node."""
    parent: Visit | None = None
    """The enclosing visit."""

    @property
    def kind(self) -> str:
        """The kind of its last piece: `name` for a node, `index` for a copy, or `slot`."""
        return self.pieces[-1][0]

    @property
    def folded(self) -> str:
        """Its path with `*` for copies of the repeat's own template, in every kind of walk."""
        return path_of(self._folded())

    def _folded(self) -> tuple[Piece, ...]:
        before = self.parent._folded() if self.parent is not None else ()  # noqa: SLF001
        kind, word = self.pieces[-1]
        if kind == "index" and isinstance(self.node, RepeatNode):
            alike = word == "*" or int(word) not in self.node.instead
            return (*before, (kind, "*" if alike else word))
        return (*before, (kind, word))


def path_of(pieces: tuple[Piece, ...]) -> str:
    """Join pieces into a path.

    >>> path_of((("name", "decoder"), ("index", "3"), ("name", "attention"), ("slot", "f")))
    'decoder.3.attention/f'
    """
    return "".join(f"{'/' if kind == 'slot' else '.'}{word}" for kind, word in pieces)[1:]


def visits(scope: Scope, copies: Copies = "folded") -> Iterator[Visit]:
    """Walk everything below a scope, parents before children.

    Args:
        scope: the root of a graph, or the inside of a template.
        copies: how to visit the copies of a repeat.
    """
    if copies == "folded":
        return iter(_folded(scope))
    return _in_scope(scope, None, "", copies)


@last_result
def _folded(scope: Scope) -> tuple[Visit, ...]:
    return tuple(_in_scope(scope, None, "", "folded"))


def _in_scope(scope: Scope, parent: Visit | None, module: str, copies: Copies) -> Iterator[Visit]:
    before = parent.pieces if parent is not None else ()
    above = f"{parent.path}." if parent is not None else ""
    runs, sets = (parent.runs, parent.sets) if parent is not None else (1, 1)
    for node in scope.nodes:
        if node.shares and copies == "weights":
            continue
        path = module + node.module
        visit = Visit(
            pieces=(*before, ("name", node.name)),
            path=above + node.name,
            module=path,
            node=node,
            part=node.part if isinstance(node, BlockNode) else None,
            body=None if isinstance(node, BlockNode) else node.body,
            runs=runs,
            sets=0 if node.shares else sets,
            parent=parent,
        )
        yield visit
        match node:
            case BlockNode():
                yield from _in_slots(node.part, visit, copies)
            case TemplateNode():
                yield from _in_scope(node.body, visit, f"{path}.", copies)
            case RepeatNode():
                yield from _in_copies(node, visit, copies)


def _in_copies(node: RepeatNode, around: Visit, copies: Copies) -> Iterator[Visit]:
    """Walk the copies of a repeat; copies that share weights have no number in paths."""
    if node.share and copies != "each":
        inside = replace(around, runs=around.runs * node.repeat)
        yield from _in_scope(node.body, inside, f"{around.module}.", copies)
        return
    if copies == "folded":
        insides = [(below.removesuffix("."), body, count) for below, body, count in node.insides()]
    else:
        insides = [(str(index), body, 1) for index, body in node.copies()]
    for index, body, count in insides:
        first = next((i for i, copy in node.copies() if copy is body), 0) if index == "*" else index
        module = around.module if node.share else f"{around.module}.{first}"
        visit = Visit(
            pieces=(*around.pieces, ("index", index)),
            path=f"{around.path}.{index}",
            module=module,
            node=node,
            body=body,
            runs=around.runs * count,
            sets=around.sets * count,
            parent=around,
        )
        yield visit
        yield from _in_scope(body, visit, f"{module}.", copies)


def _in_slots(part: Part, around: Visit, copies: Copies) -> Iterator[Visit]:
    for slot, filling in part.fill.items():
        visit = Visit(
            pieces=(*around.pieces, ("slot", slot)),
            path=f"{around.path}/{slot}",
            module=f"{around.module}.{slot}",
            node=around.node,
            part=filling,
            body=filling.body if isinstance(filling, TemplatePart) else None,
            runs=around.runs,
            sets=around.sets,
            parent=around,
        )
        yield visit
        if isinstance(filling, TemplatePart):
            yield from _in_scope(filling.body, visit, f"{visit.module}.", copies)
        else:
            yield from _in_slots(filling, visit, copies)


def walk(scope: Scope) -> Iterator[tuple[str, Node]]:
    """Yield every node below a scope with its path; templates are visited once."""
    for visit in visits(scope):
        if visit.kind == "name":
            yield visit.path, visit.node


def placed(scope: Scope) -> Iterator[tuple[str, BlockNode, int, int]]:
    """Yield every block node below a scope; templates are visited once.

    Yields:
        Path, node, number of runs in one forward pass, and number of sets of weights.
    """
    for visit in visits(scope):
        if visit.kind == "name" and isinstance(visit.node, BlockNode):
            yield visit.path, visit.node, visit.runs, visit.sets


def owned_parts(scope: Scope) -> Iterator[tuple[str, str, Part]]:
    """Yield every block below a scope, slots included, once for each set of weights.

    Blocks inside a template in a slot are omitted.

    Yields:
        Path in the state_dict, path as a patch selects it, and the block.
    """
    for visit in visits(scope, "weights"):
        if isinstance(visit.part, Part) and not in_slot_template(visit):
            yield visit.module, visit.path, visit.part


def in_slot_template(visit: Visit) -> bool:
    """Return whether a visit is inside a template that fills a slot."""
    around = visit.parent
    while around is not None:
        if isinstance(around.part, TemplatePart):
            return True
        around = around.parent
    return False


def fillings(part: Filling, below: str = "") -> Iterator[tuple[str, Filling]]:
    """Yield a block and everything in its slots, with the path below it, such as `/f/g`."""
    yield below, part
    if isinstance(part, Part):
        for slot, inner in part.fill.items():
            yield from fillings(inner, f"{below}/{slot}")


def uses(node: BlockNode) -> Iterator[tuple[str, Part]]:
    """Yield the block of a node and those in its slots, with the JSON Pointers of their uses.

    Blocks inside templates in slots are omitted.
    """
    for below, filling in fillings(node.part):
        if isinstance(filling, Part):
            yield node.at + below.replace("/", "/fill/"), filling


def scopes(root: Scope, *, models: bool = True) -> Iterator[Scope]:
    """Yield a scope and every distinct scope below it, each once however often it is used.

    Args:
        root: the root of a graph, or the inside of a template.
        models: whether to enter the models that params hold, whose places are in their own specs.
    """
    waiting, visited = [root], {id(root)}
    while waiting:
        scope = waiting.pop()
        yield scope
        nodes = [node for node in scope.nodes if models or not holds_model(node)]
        inside = [body for node in nodes for _, body, _ in node.insides()]
        for body in reversed(inside):
            if id(body) not in visited:
                visited.add(id(body))
                waiting.append(body)


def model_of(node: Node) -> Graph | None:
    """Return the model that a node contains, which a param holds, or None."""
    return node.model if isinstance(node, TemplateNode) else None


def holds_model(node: Node) -> bool:
    """Return whether a node contains a model of its own, which a param holds."""
    return model_of(node) is not None


def in_model(visit: Visit) -> bool:
    """Return whether a visit is inside a model that a param holds."""
    around = visit.parent
    while around is not None:
        if holds_model(around.node):
            return True
        around = around.parent
    return False


def init_rules(root: Scope) -> Iterator[tuple[str, InitRule]]:
    """Yield the rules for initial weights in the order in which they apply, each with a prefix.

    Those of a template apply once for each set of its weights, and before those of the scope that
    contains it; the prefix turns the paths of a rule into paths in the graph.
    """
    rules: list[tuple[int, str, InitRule]] = []
    if any(body.init for body in scopes(root)):
        for visit in visits(root, "weights"):
            body, node = visit.body, visit.node
            around = isinstance(node, RepeatNode) and not node.share and visit.kind == "name"
            if body is not None and not around:
                rules += [(len(visit.pieces), f"{visit.module}.", rule) for rule in body.init]
    for _, prefix, rule in sorted(rules, key=lambda entry: -entry[0]):
        yield prefix, rule
    for rule in root.init:
        yield "", rule


def fixed_weights(graph: Graph) -> dict[str, None]:
    """Return the paths of the weights that rules of the spec freeze, and of those tied to them."""
    rules = [pair for pair in init_rules(graph.root) if pair[1].frozen]
    fixed = dict.fromkeys(prefix + path for prefix, rule in rules for path in rule.paths)
    for group in graph.ties if fixed else ():
        if not fixed.keys().isdisjoint(group):
            fixed |= dict.fromkeys(group)
    return fixed


def position_limits(graph: Graph) -> tuple[int, ...]:
    """Return the maximum sequence length of each block that has one."""
    return _limits(graph.root)


@last_result
def _limits(root: Scope) -> tuple[int, ...]:
    """Return the maximum sequence lengths of the blocks in a scope."""
    limits = (part.block.max_length(part.arguments) for _, _, part in owned_parts(root))
    return tuple(limit for limit in limits if limit is not None)


@dataclass(frozen=True, slots=True)
class WeightLocation:
    """The node that a parameter belongs to."""

    path: str
    """The node outside templates in slots, such as `decoder.3.self_attention`."""
    folded: str
    """The innermost node, with `*` for the copies of a repeat's own template, as `visits` does."""
    line: str
    """`folded`, then the slots that lead to the parameter's block, each after a slash."""


def find_weight(scope: Scope, weight: str) -> WeightLocation:
    """Return the node that a parameter belongs to, without walking the other nodes.

    Args:
        scope: the root of a graph.
        weight: path of a parameter, such as `decoder.3.self_attention.f.query.weight`.
    """
    parts = weight.split(".")
    path, folded, part = _block_of(scope, parts)
    line = folded
    while parts and parts[0] in part.fill:
        filling = part.fill[parts[0]]
        line = f"{line}/{parts.pop(0)}"
        if isinstance(filling, Part):
            part = filling
        else:
            _, below, part = _block_of(filling.body, parts)
            line = folded = f"{line}.{below}"
    return WeightLocation(path, folded, line)


def _block_of(scope: Scope, parts: list[str]) -> tuple[str, str, Part]:
    """Return the path of a parameter's node in a scope, the same folded, and the node's block.

    Args:
        scope: where the path begins.
        parts: path of the parameter, from which the path of the node is removed.
    """
    path, folded, body = list[str](), list[str](), scope
    while True:
        path.append(parts.pop(0))
        folded.append(path[-1])
        node = next(inner for inner in body.nodes if inner.name == path[-1])
        if isinstance(node, BlockNode):
            return ".".join(path), ".".join(folded), node.part
        body = node.body
        if isinstance(node, RepeatNode) and not node.share:
            path.append(parts.pop(0))
            index = int(path[-1])
            body = node.instead.get(index, body)
            folded.append(path[-1] if index in node.instead else "*")


def moving_values(scope: Scope, moving_inputs: frozenset[str]) -> frozenset[str]:
    """Return the values of a scope that depend on moving ones.

    Args:
        scope: the root or the inside of a template.
        moving_inputs: the inputs that move.

    Returns:
        Names of values: inputs, and outputs of nodes as `node.port`.
    """
    results = scope.results.setdefault(f"{__name__}.moving_values", {})
    if moving_inputs not in results:
        moving = set(moving_inputs)
        for node in scope.nodes:
            moving.update(f"{node.name}.{port}" for port in _moving_outputs(node, moving))
        results[moving_inputs] = frozenset(moving)
    values: frozenset[str] = results[moving_inputs]
    return values


def moving_ports(node: Node, moving: Set[str]) -> frozenset[str]:
    """Return the ports of a node that read moving values.

    A carried value of a repeat moves from the first copy on if it moves in any copy.
    """
    measured = node.part.signature.measured if isinstance(node, BlockNode) else ()
    ports = frozenset(
        port for port, value in node.wires.items() if value in moving and port not in measured
    )
    if not isinstance(node, RepeatNode) or not ports:
        return ports
    while carried := set(node.carry) - ports - _fixed_in_all(node, ports):
        ports |= carried
    return ports


def begun_ports(node: Node, moving: Set[str]) -> frozenset[str]:
    """Return the outputs of a node's template that are fixed although the node reads moving values.

    They are computed before the first step.  A node with a model in it has none: all its outputs
    move.
    """
    ports = moving_ports(node, moving)
    if not ports or isinstance(node, BlockNode) or model_of(node) is not None:
        return frozenset()
    carried = ports.intersection(node.carry) if isinstance(node, RepeatNode) else ()
    return _fixed_in_all(node, ports).difference(carried)


def _moving_outputs(node: Node, moving: Set[str]) -> frozenset[str]:
    """Return the outputs of a node that depend on moving values."""
    ports = moving_ports(node, moving)
    return frozenset(node.outputs) - begun_ports(node, moving) if ports else frozenset()


def _fixed_in_all(node: TemplateNode | RepeatNode, ports: frozenset[str]) -> frozenset[str]:
    """Return the outputs of a node's template that depend on none of some ports, in any copy."""
    fixed = set(node.body.outputs)
    for _, body, _ in node.insides():
        moving = moving_values(body, ports.intersection(body.inputs))
        fixed -= {port for port, value in body.outputs.items() if value in moving}
    return frozenset(fixed)


def root_moving(graph: Graph) -> frozenset[str]:
    """Return the inputs of a graph that have its step axis."""
    return frozenset(n for n, t in graph.inputs.items() if graph.step_axis in t.axes)


def written_ids(graph: Graph, answered: Collection[str] = ()) -> str | None:
    """Return the input of ids that decoding writes: the only one with the step axis, or None.

    Args:
        graph: graph of a model.
        answered: inputs that the answers fill, of which one is written if several have the axis.
    """
    if graph.step_axis is None:
        return None
    ids = [name for name in root_moving(graph) if graph.inputs[name].kind == "ids"]
    ids = ids if len(ids) == 1 else [name for name in ids if name in answered]
    return ids[0] if len(ids) == 1 else None


def late_values(scope: Scope, moving: frozenset[str]) -> frozenset[str]:
    """Return the fixed values that depend on nodes that read moving values."""
    late = set[str]()
    for node in scope.nodes:
        if moving_ports(node, moving):
            late.update(f"{node.name}.{port}" for port in begun_ports(node, moving))
        elif not late.isdisjoint(node.wires.values()):
            late.update(f"{node.name}.{port}" for port in node.outputs)
    return frozenset(late)


def fixed_outputs(
    scope: Scope, moving: frozenset[str], begun: Set[str] = frozenset(), *, root: bool
) -> list[str]:
    """Return the values that a template returns at every step although they do not move.

    Args:
        scope: the root or the inside of a template.
        moving: the values that move.
        begun: the outputs that its `begin` returns instead.
        root: whether the scope is the complete graph, which returns none of them.
    """
    outputs = {} if root else scope.outputs
    return [value for port, value in outputs.items() if value not in moving and port not in begun]


def saved_values(
    scope: Scope, moving: frozenset[str], begun: Set[str] = frozenset(), *, root: bool
) -> list[str]:
    """Return the fixed values that decoding keeps because a node reads them at every step.

    A node with `begin` keeps what it needs of its own fixed inputs.  Arguments as in
    `fixed_outputs`.
    """
    saved = dict.fromkeys(fixed_outputs(scope, moving, begun, root=root))
    for node in scope.nodes:
        ports = moving_ports(node, moving)
        for port, value in node.wires.items() if ports else ():
            if value not in moving and (port in ports or not node.steps):
                saved[value] = None
    return list(saved)


def state_owner(scope: Scope, node: Node) -> str:
    """Return the name of the node whose decoding state a node uses: its own, or an earlier one.

    Nodes of one block share a state if it would be the same: they have the same arguments, and the
    same values at the ports that determine it.
    """
    if not isinstance(node, BlockNode) or not node.part.block.keeps or node.part.fill:
        return node.name

    def keeping(candidate: BlockNode) -> tuple[object, ...]:
        block = candidate.part.block
        return (
            block.key,
            candidate.part.arguments,
            *(candidate.wires.get(port) for port in block.keeps),
        )

    same = (n for n in scope.nodes if isinstance(n, BlockNode) and keeping(n) == keeping(node))
    return next(same, node).name
