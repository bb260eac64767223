"""Alignment: which nodes and weights of two graphs correspond, whatever their names.

Only evaluation counts: dropout is passed over, and rates of dropout are not compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from .....plugin import BlockNode, Filling, Graph, Node, Part, RepeatNode, Scope, TemplatePart

TRAINING = ("dropout", "drop_path", "residual_start", "frozen", "capacity")
"""Constructor arguments that only training reads, or parts of their names."""
SMALL = "eps"
"""Argument whose difference changes outputs a little: the number that a norm adds."""
BIAS = "bias"
"""Argument and weight that may be missing: a zero bias changes nothing."""


@dataclass(frozen=True, slots=True)
class TemplateUse:
    """A use of a template."""

    at: str
    """JSON Pointer of the use in the spec."""
    template: str
    copy: int
    """Number of the copy in a repeat; 0 elsewhere."""


@dataclass(frozen=True, slots=True)
class Location:
    """A record of a spec that a graph has, perhaps several times."""

    at: str
    """JSON Pointer in the spec."""
    uses: tuple[TemplateUse, ...]
    """The uses of templates that it is in, the outermost first."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two blocks that correspond."""

    path: str
    """Path of the node in the first graph, slots after `/`, copies as `*` or their number."""
    location: Location
    """The first block in its spec."""
    reference: Part
    other: Part


@dataclass(slots=True)
class GraphAlignment:
    """What corresponds in two graphs, and what does not."""

    pairs: list[Pair] = field(default_factory=list)
    choices: list[tuple[Location, Part]] = field(default_factory=list)
    """Each block of the first graph that is of another kind in the second, with the block there."""
    repeats: list[tuple[Location, int]] = field(default_factory=list)
    """Each repeat of the first graph, and the number of copies in the second."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Input of the first graph to that of the second."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Output of the first graph to that of the second."""
    weights: dict[str, str] = field(default_factory=dict)
    """Path of a weight in the first graph to its path in the second."""
    lacking: list[str] = field(default_factory=list)
    """Biases of the first graph that the second lacks; zero has the same effect."""
    differences: list[str] = field(default_factory=list)
    """What differs, one sentence for each place; empty if both compute the same."""
    small: list[str] = field(default_factory=list)
    """Differences that change outputs only a little."""
    positions: list[tuple[str, str]] = field(default_factory=list)
    """Forms of position tables that differ only in the order of features, of both graphs."""


def align(reference: Graph, other: Graph) -> GraphAlignment:
    """Return what corresponds in two graphs.

    Args:
        reference: the graph of a spec, such as that of an import table.
        other: the graph that may be an instance of it.
    """
    alignment = GraphAlignment()
    _Walk(alignment).scopes(reference.root, other.root, "", "", first=True)
    tied = {frozenset(_known(alignment, path) for path in group) for group in reference.ties}
    theirs = {frozenset(group) for group in other.ties}
    for group in sorted(map(sorted, tied ^ theirs)):
        whose = "the model does not tie" if frozenset(group) in tied else "only the model ties"
        alignment.differences.append(f"{whose} {' and '.join(group)}")
    return alignment


def _known(alignment: GraphAlignment, path: str) -> str:
    return alignment.weights.get(path, path)


@dataclass(frozen=True, slots=True)
class _Walk:
    alignment: GraphAlignment
    uses: tuple[TemplateUse, ...] = ()

    def location(self, at: str) -> Location:
        """Return the location of a record at a JSON Pointer."""
        return Location(at, self.uses)

    def inside(self, at: str, body: Scope, copy: int = 0) -> _Walk:
        """Return the walk through a template that is used at a JSON Pointer."""
        return replace(self, uses=(*self.uses, TemplateUse(at, body.name, copy)))

    def differ(self, text: str) -> None:
        """Record a difference."""
        self.alignment.differences.append(text)

    def scopes(
        self, reference: Scope, other: Scope, ref_path: str, there: str, *, first: bool = False
    ) -> None:
        """Compare two scopes.

        Args:
            reference: scope of the first graph.
            other: scope of the second graph.
            ref_path: path of the first scope.
            there: path of the second scope.
            first: whether these are the roots, whose inputs are recorded.
        """
        ports = _ports(reference, other)
        if first:
            self.alignment.inputs |= ports
        for name in reference.inputs:
            if name not in ports:
                self.differ(f"the model has no input like '{ref_path}{name}'")
        for name in other.inputs.keys() - set(ports.values()):
            self.differ(f"the input '{there}{name}' has no counterpart")
        through = _through(reference), _through(other)
        unmatched = {node.name: node for node in _nodes(other)}
        values = dict(ports)
        for node in _nodes(reference):
            wires = {
                port: _translated(through[0](value), values) for port, value in node.wires.items()
            }
            twin = _twin(node, wires, unmatched, through[1])
            if twin is None:
                self.differ(f"the model has no node like '{ref_path}{node.name}' ({_kind(node)})")
                continue
            del unmatched[twin.name]
            values |= _outputs(node, twin)
            mine = {_port_names(node, twin)[port]: value for port, value in wires.items()}
            wires, theirs = mine, {p: through[1](value) for p, value in twin.wires.items()}
            for port in wires.keys() | theirs.keys():
                if wires.get(port) != theirs.get(port):
                    source = theirs.get(port, "nothing")
                    self.differ(f"the port '{port}' of '{there}{twin.name}' reads {source}")
            self.nodes(node, twin, f"{ref_path}{node.name}", f"{there}{twin.name}")
        for name, node in unmatched.items():
            self.differ(f"'{there}{name}' ({_kind(node)}) has no counterpart")
        outputs = {p: _translated(through[0](v), values) for p, v in reference.outputs.items()}
        theirs = {port: through[1](value) for port, value in other.outputs.items()}
        if first:
            names = {value: port for port, value in theirs.items()}
            self.alignment.outputs |= {p: names[v] for p, v in outputs.items() if v in names}
        if sorted(outputs.values()) != sorted(theirs.values()):
            self.differ(f"the outputs{' of ' + there if there else ''} are {', '.join(theirs)}")

    def nodes(self, reference: Node, other: Node, ref_path: str, there: str) -> None:
        """Compare two nodes of one kind."""
        if reference.shares or other.shares:
            if bool(reference.shares) != bool(other.shares):
                self.differ(f"the weights of '{there}' are shared with another node")
            return
        if isinstance(reference, BlockNode) and isinstance(other, BlockNode):
            self.parts(reference.part, other.part, ref_path, there, reference.at)
            return
        if isinstance(reference, RepeatNode) and isinstance(other, RepeatNode):
            self.alignment.repeats.append((self.location(reference.at), other.repeat))
            if reference.repeat != other.repeat:
                self.differ(f"'{there}' has {other.repeat} copies")
            if reference.share != other.share:
                self.differ(
                    f"the copies of '{there}' do{'' if other.share else ' not'} share weights"
                )
                return
            copies = zip(reference.owners(), other.owners(), strict=False)
            for (index, body), (_, theirs) in copies:
                walk = self.inside(reference.at, body, int(index.strip(".") or 0))
                walk.scopes(body, theirs, f"{ref_path}.{index}", f"{there}.{index}")
            return
        body = next(reference.copies())[1]
        walk = self.inside(reference.at, body)
        walk.scopes(body, next(other.copies())[1], f"{ref_path}.", f"{there}.")

    def parts(self, reference: Filling, other: Filling, ref_path: str, there: str, at: str) -> None:
        """Compare two blocks, and the blocks in their slots."""
        if isinstance(reference, TemplatePart) or isinstance(other, TemplatePart):
            if not (isinstance(reference, TemplatePart) and isinstance(other, TemplatePart)):
                self.differ(f"'{there}' is {other.key}")
                return
            walk = self.inside(at, reference.body)
            walk.scopes(reference.body, other.body, f"{_dotted(ref_path)}.", f"{_dotted(there)}.")
            return
        if reference.key != other.key:
            self.alignment.choices.append((self.location(at), other))
            self.differ(f"'{there}' is {other.key}, not {reference.key}")
            return
        self.alignment.pairs.append(Pair(ref_path, self.location(at), reference, other))
        self.arguments(reference, other, there)
        mine, theirs = (set(p.own_weights()) for p in (reference, other))
        for name in sorted(mine):
            path = f"{_dotted(ref_path)}.{name}"
            if name in theirs:
                self.alignment.weights[path] = f"{_dotted(there)}.{name}"
            elif name.rpartition(".")[2] == BIAS:
                self.alignment.lacking.append(path)
        for name in sorted(theirs - mine):
            self.differ(f"the weight '{_dotted(there)}.{name}' has no counterpart")
        for slot in sorted({*reference.fill, *other.fill}):
            if slot not in other.fill or slot not in reference.fill:
                whose = other if slot in other.fill else reference
                text = "has no counterpart" if slot in other.fill else "is empty in the model"
                self.differ(f"'{there}/{slot}' ({whose.fill[slot].key}) {text}")
                continue
            inner = (reference.fill[slot], other.fill[slot])
            self.parts(*inner, f"{ref_path}/{slot}", f"{there}/{slot}", f"{at}/fill/{slot}")

    def arguments(self, reference: Part, other: Part, there: str) -> None:
        """Compare the constructor arguments of two blocks of one kind."""
        for name in sorted({*reference.arguments, *other.arguments}):
            mine, theirs = reference.arguments.get(name), other.arguments.get(name)
            if mine == theirs or any(word in name for word in TRAINING):
                continue
            text = f"'{there}' has {name} {theirs}, not {mine}"
            if name == SMALL:
                self.alignment.small.append(text)
            elif name == BIAS and (mine, theirs) == (True, False):
                continue  # recorded as lacking, and zero
            elif reference.block.role == "position_table" and {mine, theirs} == {
                "halves",
                "interleaved",
            }:
                self.alignment.positions.append((str(mine), str(theirs)))
            else:
                self.differ(text)


def _dotted(path: str) -> str:
    """Return the path of a weight's owner: slots are separated by dots."""
    return path.replace("/", ".")


def _nodes(scope: Scope) -> list[Node]:
    return [node for node in scope.nodes if not _is_dropout(node)]


def _is_dropout(node: Node) -> bool:
    return isinstance(node, BlockNode) and node.part.block.role == "dropout"


@dataclass(frozen=True, slots=True)
class _through:  # noqa: N801 - used as a function
    """Maps a value to the one that dropout nodes read."""

    scope: Scope

    def __call__(self, value: str) -> str:
        skipped = {node.name: node for node in self.scope.nodes if _is_dropout(node)}
        while (name := value.partition(".")[0]) in skipped and "." in value:
            [value] = skipped[name].wires.values()
        return value


def _translated(value: str, names: Mapping[str, str]) -> str:
    """Return a value of the first scope with the names of the second."""
    return names.get(value, value)


def _port_names(reference: Node, other: Node) -> dict[str, str]:
    """Return the port of a node that corresponds to each wired port of its twin."""
    names = {port: port for port in reference.wires}
    if not isinstance(reference, BlockNode) and not isinstance(other, BlockNode):
        names |= _ports(reference.body, other.body)
    return names


def _outputs(reference: Node, other: Node) -> dict[str, str]:
    """Return the value of a node that corresponds to each value of its twin."""
    port_names = _port_names(reference, other)
    unmatched = [port for port in other.outputs if port not in reference.outputs]
    values = {}
    for port in reference.outputs:
        twin = port if port in other.outputs else port_names.get(port, port)
        if twin not in other.outputs and unmatched:
            twin = unmatched[0]
        unmatched = [name for name in unmatched if name != twin]
        values[f"{reference.name}.{port}"] = f"{other.name}.{twin}"
    return values


def _kind(node: Node) -> str:
    if isinstance(node, BlockNode):
        return node.part.key
    return "repeat" if isinstance(node, RepeatNode) else "template"


def _twin(
    node: Node, wires: Mapping[str, str], unmatched: Mapping[str, Node], through: _through
) -> Node | None:
    """Return the node that corresponds: of the same kind, with the same wires or name."""
    alike = [other for other in unmatched.values() if _kind(other) == _kind(node)]
    wired = [
        other
        for other in alike
        if {p: through(v) for p, v in other.wires.items()}
        == {_port_names(node, other)[p]: v for p, v in wires.items()}
    ]
    part = node.part.block if isinstance(node, BlockNode) else None
    if part is not None and part.role and not wired:  # a block of another kind for one purpose
        alike = [
            other
            for other in unmatched.values()
            if isinstance(other, BlockNode)
            and other.part.block.role == part.role
            and {p: through(v) for p, v in other.wires.items()} == dict(wires)
        ] or alike
    for group in (wired, alike):
        namesakes = [other for other in group if other.name == node.name]
        if namesakes or (group is wired and group):
            return (namesakes or group)[0]
    return None


def _ports(reference: Scope, other: Scope) -> dict[str, str]:
    """Return the inputs that correspond: those of one name, then those of one kind, in order."""
    ports = {
        name: name
        for name, type_ in reference.inputs.items()
        if name in other.inputs and other.inputs[name].kind == type_.kind
    }
    for name, type_ in reference.inputs.items():
        matching: Iterator[str] = (
            theirs
            for theirs, kind in other.inputs.items()
            if theirs not in ports.values() and kind.kind == type_.kind
        )
        if name not in ports and (match := next(matching, None)) is not None:
            ports[name] = match
    return ports
