"""The graph of a checked spec: nodes with their wires, value types and execution order.

Scopes keep the structure of the spec (a repeat is one node with a body), so checking, drawing and
code generation cost the same for 6 layers and for 600.  `traverse.py` walks over all nodes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from heapq import heapify, heappop, heappush
from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from ...specs.form import SpecForm
from .block_type import BlockType, Division, Signature
from .execution import PLAIN, Execution
from .lora import LoraSettings, lora_of, prefix_of
from .state_tensor import DocumentSegments
from .value_type import UNKNOWN, ValueType

if TYPE_CHECKING:
    import networkx as nx

Value = TypeVar("Value")
Reads = Mapping[str, Collection[str]]
"""Each name and the names that it reads."""


def ordered(reads: Reads) -> list[str]:
    """Return the names, each after those that it reads, otherwise in alphabetical order.

    Raises:
        CycleError: names read each other in a cycle.
    """
    sorter = TopologicalSorter(reads)
    sorter.prepare()
    ready, order = list(sorter.get_ready()), list[str]()
    heapify(ready)
    while ready:
        order.append(heappop(ready))
        sorter.done(order[-1])
        for name in sorter.get_ready():
            heappush(ready, name)
    return order


def leading(values: Mapping[str, Value], names: Iterable[str]) -> dict[str, Value]:
    """Return a mapping with the keys among some names first, in the order of these names."""
    return {key: values[key] for key in dict.fromkeys([*names, *values]) if key in values}


def cycles(reads: Reads) -> list[set[str]]:
    """Return each largest set of names that all read each other, directly or not."""
    try:
        TopologicalSorter(reads).prepare()
    except CycleError:
        import networkx as nx  # noqa: PLC0415 - see above

        parts: Iterable[set[str]] = nx.strongly_connected_components(digraph(reads))
        return [part for part in parts if len(part) > 1 or part & set(reads[min(part)])]
    return []


def circle_in(cycle: set[str], reads: Reads) -> list[tuple[str, str]]:
    """Return a circle inside one of the `cycles`: pairs of a name and a name that reads it."""
    import networkx as nx  # noqa: PLC0415 - see above

    edges: list[tuple[str, str]] = nx.find_cycle(digraph(reads).subgraph(cycle), min(cycle))
    return edges


def unread(reads: Reads) -> list[set[str]]:
    """Return each name, and each of the `cycles`, that no other name reads."""
    if not reads:
        return []
    import networkx as nx  # noqa: PLC0415 - see above

    parts = nx.condensation(digraph(reads))
    return [parts.nodes[part]["members"] for part in parts if not parts.out_degree(part)]


def reached(start: str, reads: Reads) -> set[str]:
    """Return a name and all names that it reads, directly or not."""
    visited, waiting = {start}, [start]
    while waiting:
        new = set(reads[waiting.pop()]) - visited
        visited |= new
        waiting += new
    return visited


def digraph(reads: Reads) -> nx.DiGraph:
    """Return the graph with an edge from each name to every name that reads it."""
    import networkx as nx  # noqa: PLC0415 - see above

    graph = nx.DiGraph()
    graph.add_nodes_from(reads)
    graph.add_edges_from((other, name) for name, others in reads.items() for other in others)
    return graph


F = TypeVar("F", bound=Callable[..., Any])


def last_result(function: F) -> F:
    """Keep the last result of a function with its first argument.

    Args:
        function: its first argument has `results`; of any other, nothing is kept.  The others may
            be anything that can be compared.  What it returns is not to be changed.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def answer(part: Any, *more: Any) -> Any:
        results = getattr(part, "results", None)
        if results is None:
            return function(part, *more)
        entry = results.get(name)
        if entry is not None and entry[0] == more:
            return entry[1]
        result = function(part, *more)
        arguments = tuple(
            dict(argument) if isinstance(argument, Mapping) else argument for argument in more
        )
        results[name] = (arguments, result)
        return result

    return answer  # type: ignore[return-value]


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRule:
    """A rule for the initial weights of some parameters of a scope."""

    select: str
    weights: str
    """Pattern of the names of the parameters."""
    action: str
    """`scale`, `normal`, `uniform`, `constant` or `zeros`; empty if the rule only freezes."""
    value: float
    paths: tuple[str, ...] = field(repr=False)
    """The selected parameters, by their paths in the scope."""
    frozen: bool = False
    """Whether they never train."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One use of a registered block: as a node, or in a slot of another block."""

    block: BlockType
    params: BaseModel
    arguments: Mapping[str, Any]
    """Arguments of the module's constructor, except the modules in its slots."""
    signature: Signature = field(repr=False)
    inputs: Mapping[str, ValueType]
    """Types of the wired ports, including those passed on to slots."""
    outputs: Mapping[str, ValueType]
    axes: Mapping[str, Any]
    """The axis or size that each axis name of the signature is bound to."""
    fill: Mapping[str, Filling] = field(default_factory=dict)
    """The block or template in each slot."""
    stores: tuple[str, ...] = ()
    """Ports whose values decoding stores for a block that is written out; see `pairs.py`."""
    offers: Mapping[str, ValueType] = field(default_factory=dict, repr=False)
    """Types of the optional outputs that no wire reads."""
    results: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results of functions of the part; see `last_result`."""

    @property
    def key(self) -> str:
        """The name under which the spec uses it, such as `attention@1`."""
        return self.block.key

    def bodies(self, below: str = "/") -> Iterator[tuple[str, Scope]]:
        """Yield the templates in its slots, as the path below the node (`/f.`) and the scope."""
        for slot, filling in self.fill.items():
            yield from filling.bodies(f"{below}{slot}/")

    @last_result
    def weights(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every parameter by name, slots included."""
        inner = ((slot, filling.weights()) for slot, filling in self.fill.items())
        of_slots = {f"{slot}.{n}": shape for slot, names in inner for n, shape in names.items()}
        return {**self.own_weights(), **of_slots}

    @property
    def lora(self) -> LoraSettings | None:
        """The low-rank matrices that are added to its linear maps."""
        return lora_of(self.params)

    @last_result
    def own_weights(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every parameter by name, without its slots."""
        weights = dict(self.block.weights(self.arguments))
        return weights | (self.lora.weights(self.block.maps, weights) if self.lora else {})

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Return the operations of one `forward`, without its slots; see `BlockType.flops`."""
        work = self.block.flops(self.arguments, sizes)
        if self.lora is None:
            return work
        weights, same = self.block.weights(self.arguments), self.signature.same
        for name in self.lora.chosen(self.block.maps):
            axes = self.block.maps[name].split()
            vectors = prod(sizes[axis if axis in sizes else same[axis]] for axis in axes)
            work += 2 * vectors * self.lora.rank * sum(weights[f"{prefix_of(name)}weight"])
        return work

    @property
    def division(self) -> Division | None:
        """How processes can divide its work; None if they cannot, as with LoRA."""
        return None if self.lora else self.block.division(self.arguments)

    @last_result
    def parameters(self) -> int:
        """Return the number of parameters, slots included."""
        return sum(map(prod, self.weights().values()))

    def size(self) -> int:
        """Return the number of blocks: itself and those in its slots, written out."""
        return 1 + sum(filling.size() for filling in self.fill.values())

    @property
    def drops(self) -> bool:
        """Whether it drops values at random in training, slots included."""
        inner = any(part.drops for part in self.fill.values() if isinstance(part, Part))
        return inner or any(self.arguments.get(name) for name in self.block.dropout)

    def stepped_axes(self, below: str) -> tuple[Any, ...]:
        """Return the axes over whose positions what is at a path of slots, such as `/f.`, runs."""
        part: Any = self
        axes = list[Any]()
        for name in below.strip("/.").split("/"):
            axes.append(part.axes.get(part.signature.slot(name).steps_over, UNKNOWN))
            part = part.fill[name]
        return tuple(axis for axis in axes if axis != UNKNOWN)

    def slot_ports(self, slot: str) -> tuple[str, ...]:
        """Return the wired ports that a slot's block receives, besides the slot's own input."""
        entries = self.signature.slot(slot).entries
        return tuple(name for name in self.fill[slot].inputs if name not in entries)

    @property
    def steps(self) -> bool:
        """Whether decoding calls `begin` and `step` of it or of a block in its slots, in a slot."""
        inner = any(filling.steps for filling in self.fill.values())
        return inner or (self.block.steps and not self.block.fills) or bool(self.stores)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplatePart:
    """A template of the spec in a slot of a block."""

    body: Scope
    inputs: Mapping[str, ValueType]
    """Types of the wired ports."""

    @property
    def key(self) -> str:
        """The name of the template."""
        return self.body.name

    @property
    def outputs(self) -> Mapping[str, ValueType]:
        """Types of the outputs, as many as its slot takes."""
        return self.body.gives()

    @property
    def steps(self) -> bool:
        """Whether decoding calls `begin` and `step`: every template's class has them."""
        return True

    def bodies(self, below: str = "/") -> Iterator[tuple[str, Scope]]:
        """Yield the template itself, with the path below the node."""
        yield f"{below.removesuffix('/')}.", self.body

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, by name."""
        return self.body.weights()

    def size(self) -> int:
        """Return the number of nodes of the template, written out."""
        return 1 + self.body.size()


Filling = Part | TemplatePart
"""A block or template that fills a slot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Placed:
    """The fields of every node of a scope."""

    name: str
    at: str
    """JSON Pointer of the node in the spec."""
    wires: Mapping[str, str]
    """Port to the value that it reads: `node.port`, or the name of an input."""
    outputs: Mapping[str, ValueType]
    shares: str = ""
    """Node of the scope whose module it applies again; then it has no weights of its own."""
    frozen: bool = False
    """Whether training leaves its weights as they are."""

    @property
    def module(self) -> str:
        """Name of the node whose module it applies: its own, unless it shares another's."""
        return self.shares or self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockNode(_Placed):
    """A node that is one registered block."""

    part: Part
    replaced: tuple[str, ...] = ()
    """The nodes that it stands for, itself included, if a pass has merged them."""

    @property
    def steps(self) -> bool:
        """Whether decoding calls `begin` and `step` of its module."""
        return self.part.steps or self.part.block.steps

    def copies(self) -> Iterator[tuple[int, Scope]]:
        """Yield nothing: a block has no copies."""
        yield from ()

    def insides(self) -> Iterator[tuple[str, Scope, int]]:
        """Yield the templates in its slots: path below the node, scope, number of copies (1)."""
        for below, body in self.part.bodies():
            yield below, body, 1

    def weights(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape of every parameter of the block, by path from the node."""
        return {} if self.shares else self.part.weights()

    def parameters(self) -> int:
        """Return the number of parameters; a tied one counts at each place that it has."""
        return 0 if self.shares else self.part.parameters()

    def size(self) -> int:
        """Return the number of nodes that it stands for, written out."""
        return self.part.size()


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateNode(_Placed):
    """A node that is one template, used once."""

    body: Scope
    """The inside of the template, or of the model."""
    model: Graph | None = None
    """The model that a param holds, with axes of its own; None for a template."""

    @property
    def steps(self) -> bool:
        """Whether decoding calls `begin` and `step` of its module: every template has them."""
        return True

    def copies(self) -> Iterator[tuple[int, Scope]]:
        """Yield the body as copy 0."""
        yield 0, self.body

    def insides(self) -> Iterator[tuple[str, Scope, int]]:
        """Yield the body: path below the node (empty), scope, number of copies (1)."""
        yield "", self.body, 1

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter of the template, by path from the node."""
        return {} if self.shares else self.body.weights()

    def parameters(self) -> int:
        """Return the number of parameters; a tied one counts at each place that it has."""
        return 0 if self.shares else self.body.parameters()

    def size(self) -> int:
        """Return the number of nodes that it stands for, written out; a model counts as one."""
        return 1 if self.model is not None else 1 + self.body.size()


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatNode(_Placed):
    """A node that applies several copies of a template in sequence."""

    body: Scope
    """The inside of the template."""
    repeat: int
    """Number of copies."""
    carry: tuple[str, ...] = ()
    """Ports that each copy passes to the next one."""
    collect: tuple[str, ...] = ()
    """Outputs of all copies that are stacked along a new first axis."""
    share: bool = False
    """Whether the copies share one set of weights, whose paths have no copy number."""
    instead: Mapping[int, Scope] = field(default_factory=dict)
    """Copies that use another template than `body`, by number."""

    @property
    def steps(self) -> bool:
        """Whether decoding calls `begin` and `step` of its module: every template has them."""
        return True

    def copies(self) -> Iterator[tuple[int, Scope]]:
        """Yield the number and the scope of every copy, in order."""
        yield from ((index, self.instead.get(index, self.body)) for index in range(self.repeat))

    def insides(self) -> Iterator[tuple[str, Scope, int]]:
        """Yield the distinct scopes: path below the node, scope, number of copies.

        The path is empty where the copies share their weights, `*.` for the copies of `body`,
        and `4.` for a copy that uses another template.
        """
        if self.share:
            yield "", self.body, 1
            return
        if len(self.instead) < self.repeat:
            yield "*.", self.body, self.repeat - len(self.instead)
        for index, body in sorted(self.instead.items()):
            yield f"{index}.", body, 1

    def owners(self) -> Iterator[tuple[str, Scope]]:
        """Yield each copy with its own weights: its path (`3.`; empty if shared) and scope."""
        if self.share:
            yield "", self.body
            return
        yield from ((f"{index}.", body) for index, body in self.copies())

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter of all copies, by path from the node."""
        if self.shares:
            return {}
        inner = {id(body): body.weights() for _, body, _ in self.insides()}
        return {
            f"{path}{name}": shape
            for path, body in self.owners()
            for name, shape in inner[id(body)].items()
        }

    def parameters(self) -> int:
        """Return the number of parameters; a tied one counts at each place that it has."""
        if self.shares:
            return 0
        return sum(count * body.parameters() for _, body, count in self.insides())

    def size(self) -> int:
        """Return the number of nodes of all copies, written out."""
        if self.share:
            return self.repeat * self.body.size()
        return sum(count * body.size() for _, body, count in self.insides())


Node = BlockNode | TemplateNode | RepeatNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The root of a graph, or the inside of a template."""

    name: str
    inputs: Mapping[str, ValueType]
    """In the order in which nodes read them."""
    outputs: Mapping[str, str]
    """Output port to the value that it returns, in the order in which nodes compute the values."""
    nodes: tuple[Node, ...] = field(repr=False)
    """In topological order."""
    doc: str = ""
    ties: tuple[tuple[str, ...], ...] = ()
    """Of a template: groups of paths below it that share one tensor, as written."""
    init: tuple[InitRule, ...] = ()
    """Rules for the initial weights of its parameters, in order."""
    params: Mapping[str, tuple[Any, str]] = field(default_factory=dict, repr=False, compare=False)
    """Of a template: its own params with their values, and the JSON Pointer where each is set."""
    _types: Mapping[str, ValueType] = field(init=False, repr=False, compare=False)
    results: dict[Any, Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Results of functions of the scope; see `last_result`."""

    def __post_init__(self) -> None:
        """Index the type of every value for `type_of`."""
        types = dict(self.inputs)
        for node in self.nodes:
            types |= {f"{node.name}.{port}": type_ for port, type_ in node.outputs.items()}
        object.__setattr__(self, "_types", types)

    @last_result
    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter, by path; the result is not to be changed."""
        pairs = ((node.name, *item) for node in self.nodes for item in node.weights().items())
        return {f"{node}.{name}": shape for node, name, shape in pairs}

    def parameters(self) -> int:
        """Return the number of parameters; a tied one counts at each place that it has."""
        return sum(node.parameters() for node in self.nodes)

    @last_result
    def size(self) -> int:
        """Return the number of nodes with all copies and slots written out; at least 1."""
        return max(1, sum(node.size() for node in self.nodes))

    def shape_of(self, path: str) -> tuple[int, ...] | None:
        """Return the shape of one parameter without listing all; None if there is none."""
        name, _, remainder = path.partition(".")
        node = next((node for node in self.nodes if node.name == name), None)
        if node is not None and node.shares:
            return None
        match node:
            case None:
                return None
            case BlockNode():
                return node.part.weights().get(remainder)
            case RepeatNode(share=False):
                index, _, remainder = remainder.partition(".")
                in_range = index.isdecimal() and len(index) <= len(str(node.repeat))
                if not in_range or int(index) >= node.repeat or index != str(int(index)):
                    return None
                return node.instead.get(int(index), node.body).shape_of(remainder)
            case TemplateNode() | RepeatNode():
                return node.body.shape_of(remainder)

    def unwired_losses(self) -> list[str]:
        """Return the losses of models that nothing in the scope reads; training adds them."""
        wires = {*self.outputs.values(), *(w for n in self.nodes for w in n.wires.values())}
        return [
            f"{node.name}.{port}"
            for node in self.nodes
            if isinstance(node, TemplateNode) and node.model is not None and not node.frozen
            for port, type_ in node.outputs.items()
            if type_.kind == "loss" and f"{node.name}.{port}" not in wires
        ]

    def type_of(self, value: str) -> ValueType:
        """Return the type of a value: `node.port`, or the name of an input."""
        return self._types[value]

    def gives(self) -> dict[str, ValueType]:
        """Return the type of every output, by port."""
        return {port: self._types[value] for port, value in self.outputs.items()}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Graph:
    """A checked spec."""

    name: str
    doc: str
    spec: SpecForm
    """The spec as it was checked, with overrides applied."""
    source: str
    """File of the spec, as the user named it."""
    params: Mapping[str, Any]
    """Values of the spec's params."""
    root: Scope
    ties: tuple[tuple[str, ...], ...]
    """Parameters that share one tensor; no parameter is in two groups."""
    written_ties: tuple[tuple[str, ...], ...]
    """Ties of the spec and its templates, then those of its models; a parameter may be in one of
    each.  The canonical form is written from them."""
    step_axis: str | None
    inputs: Mapping[str, ValueType]
    outputs: Mapping[str, ValueType]
    deploy: str | None = None
    """In an objective: the node whose model a finished training leaves behind."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Output of kind `loss` to its weight in the sum of an objective."""
    segments: DocumentSegments | None = None
    blocks: tuple[BlockType, ...] = field(default=(), compare=False)
    """The block types that `blocks=` added to the registry for this graph."""
    execution: Execution = PLAIN
    """How the passes of `graphs/passes/` compute it."""

    def __repr__(self) -> str:
        """Return name, ports and number of parameters."""
        sides = (self.inputs, self.outputs)
        ports = (", ".join(f"{name} {type_}" for name, type_ in side.items()) for side in sides)
        return f"<Graph {self.name}: {' -> '.join(ports)}; {self.parameters():,} parameters>"

    def models(self) -> Iterator[tuple[TemplateNode, Graph]]:
        """Yield the nodes of the root that contain a model of their own, and the model."""
        for node in self.root.nodes:
            if isinstance(node, TemplateNode) and node.model is not None and not node.shares:
                yield node, node.model

    def weights(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of every distinct parameter; tied ones have only their first path."""
        again = {path for group in self.ties for path in group[1:]}
        return {path: s for path, s in self.root.weights().items() if path not in again}

    def parameters(self) -> int:
        """Return the number of parameters; a tied one counts once."""
        again = [path for group in self.ties for path in group[1:]]
        tied = sum(prod(shape) for path in again if (shape := self.root.shape_of(path)))
        return self.root.parameters() - tied
