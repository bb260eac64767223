"""Chain: what a graph computes, read as stacks of sub-layers, or what keeps it from being one.

An engine that knows one kind of network has no use for a graph of any form.  From the
logits back to the ids, every block of such a network reads the one before it; this finds
those blocks, whatever their names and templates are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx as nx

from ....graphs.ir.graph import Graph, Node, Part, Scope
from ....specs.findings import InputError

MOST_NAMED = 8
"""Obstacles that a refusal lists."""
_ATTENTION = {"attention", "grouped_query_attention"}
_FEED_FORWARD = {"feed_forward", "gated_feed_forward"}
_KNOWN = (
    _ATTENTION
    | _FEED_FORWARD
    | {
        "dropout",
        "embedding",
        "layer_norm",
        "learned_position",
        "linear",
        "rms_norm",
        "scale",
        "sinusoidal_position",
        "sublayer",
    }
)
_INSTEAD = {
    "linear_attention": "attention@1",
    "block_sparse_attention": "attention@1",
}
"""Block to what `weft swap` may put in its place."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A node for which another engine has no counterpart."""

    path: str
    """As a patch selects it, copies of a repeat as `*`."""
    at: str
    """JSON Pointer of the node."""
    problem: str
    use: str = ""
    """The block, such as `attention@1`."""
    swap: str = ""
    """What `weft swap --use` could put there."""


@dataclass(frozen=True, slots=True)
class Place:
    """A block in its place in the expanded graph."""

    path: str
    """Such as `decoder.0.self_attention`."""
    module: str
    """Path of its module: without the number of a copy that shares its weights."""
    at: str
    part: Part

    @property
    def use(self) -> str:
        """Name of the block, without its version."""
        return self.part.block.name

    def obstacle(self, problem: str, *, swap: str = "", slot: str = "") -> Obstacle:
        """Say why it has no counterpart, and what `weft swap` could put there.

        Args:
            problem: why.
            swap: the block that could take its place, params with it.
            slot: `/f` when what stands in that slot is meant.
        """
        part = self.part.fill[slot.strip("/")] if slot else self.part
        return Obstacle(_select(self.path) + slot, self.at, problem, part.block.key, swap)


@dataclass(frozen=True, slots=True)
class Layer:
    """The sub-layers of one layer."""

    attention: Place
    cross: Place | None
    feed_forward: Place

    @property
    def places(self) -> list[Place]:
        """All of them, in order."""
        return [one for one in (self.attention, self.cross, self.feed_forward) if one is not None]


@dataclass(frozen=True, slots=True)
class Stack:
    """Layers between an embedding and what reads the last of them."""

    ids: str
    """The input that is read."""
    embedding: Place
    before: tuple[Place, ...]
    """Blocks between the embedding and the first layer."""
    layers: tuple[Layer, ...]
    after: tuple[Place, ...]
    """Blocks behind the last layer."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """A graph as one stack that writes, and perhaps one that it reads."""

    encoder: Stack | None
    decoder: Stack
    head: Place


class Refusals:
    """Obstacles, collected so that all are told at once."""

    def __init__(self, graph: Graph, target: str) -> None:
        """Begin with none.

        Args:
            graph: what is exported.
            target: the engine, as a person calls it.
        """
        self.graph, self.target = graph, target
        self.found: dict[tuple[str, str], Obstacle] = {}

    def add(self, obstacle: Obstacle) -> None:
        """Note an obstacle; one that copies share counts once."""
        self.found.setdefault((obstacle.path, obstacle.problem), obstacle)

    def check(self) -> None:
        """Refuse the graph if there are any.

        Raises:
            InputError: there are; each node is named.
        """
        if not self.found:
            return
        obstacles = list(self.found.values())
        lines = [f"'{one.path}': {one.problem}" for one in obstacles[:MOST_NAMED]]
        more = len(obstacles) - MOST_NAMED
        lines += [f"and {more} more"] if more > 0 else []
        ways = [*_swaps(obstacles), "weft export CKPT --to onnx, or weft eject"]
        raise InputError(
            f"{self.target} cannot express this spec" + "".join(f"\n      {t}" for t in lines),
            place=f"{self.graph.source}#{obstacles[0].at}",
            help="\n        or: ".join(ways),
        )


def _swaps(obstacles: Sequence[Obstacle]) -> list[str]:
    """Return commands that make a spec to train without the obstacles; one for those alike."""
    groups: dict[tuple[str, str], list[Obstacle]] = {}
    for one in obstacles:
        if one.swap:
            groups.setdefault((one.use, one.swap), []).append(one)
    found = []
    for (use, swap), alike in groups.items():
        slot = "/f" if "/f" in alike[0].path else ""
        select = alike[0].path if len(alike) == 1 else f"**{slot}[use={use}]"
        found.append(f"train without: weft swap SPEC '{select}' --use {swap} -o NEW.json")
    return found[:3]


def _select(path: str) -> str:
    """Return a path as a patch selects it: copies of a repeat as `*`."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", path)


def read_stacks(graph: Graph, refusals: Refusals) -> Stacks:
    """Return a graph as stacks.

    Args:
        graph: a checked graph.
        refusals: hears of nodes that have no place in a stack.

    Raises:
        InputError: it is no such graph; the nodes that prevent it are named.
    """
    flat = graph.flat()
    if "output:logits" not in flat or graph.step_axis is None:
        refusals.add(
            Obstacle("/", "", "it does not write one token after the other: no 'logits', no 'step'")
        )
    for vertex, data in flat.nodes(data=True):
        if data["kind"] == "block":
            for obstacle in _unknown(vertex, "", data["node"].at, data["node"].part):
                refusals.add(obstacle)
    refusals.check()
    chain = _chain(graph, flat, "output:logits", refusals)
    refusals.check()
    if not chain or chain[-1].use != "linear":
        last = chain[-1]
        refusals.add(last.obstacle(f"{last.part.block.key} gives the logits, not linear@1"))
    refusals.check()
    decoder = _stack(flat, chain[:-1], refusals)
    refusals.check()
    sources = {_wired(flat, layer.cross.path)["memory"] for layer in decoder.layers if layer.cross}
    encoder = None
    if sources:
        if len(sources) > 1 or any(layer.cross is None for layer in decoder.layers):
            odd = next((one for one in decoder.layers if one.cross is None), decoder.layers[-1])
            refusals.add(odd.feed_forward.obstacle("not every layer reads the same memory"))
        refusals.check()
        encoder = _stack(flat, _chain(graph, flat, sources.pop(), refusals), refusals)
        refusals.check()
    return Stacks(encoder, decoder, chain[-1])


def _unknown(path: str, slot: str, at: str, part: Part) -> Iterator[Obstacle]:
    """Yield the blocks of a node, slots included, that no stack of sub-layers has."""
    if part.body is not None:
        yield Obstacle(_select(path) + slot, at, "a template in a slot has no counterpart")
        return
    name, key = part.block.name, part.block.key
    if name not in _KNOWN:
        swap = _INSTEAD.get(name, "")
        if name == "linear_attention":
            swap += f" --set heads={part.arguments['heads']}"
        yield Obstacle(_select(path) + slot, at, f"{key} has no counterpart", key, swap)
    for below, inner in part.fill.items():
        yield from _unknown(path, f"{slot}/{below}", at, inner)


def _wired(flat: nx.DiGraph, vertex: str) -> dict[str, str]:
    """Return the vertex that each port of a vertex reads."""
    return {
        wire["port"]: source
        for source, _, data in flat.in_edges(vertex, data=True)
        for wire in data["wires"]
    }


def _chain(graph: Graph, flat: nx.DiGraph, last: str, refusals: Refusals) -> list[Place]:
    """Return the blocks of which each reads the one before it, from the ids to the last."""
    found: list[Place] = []
    vertex = last
    while flat.nodes[vertex]["kind"] != "input":
        wires = _wired(flat, vertex)
        if flat.nodes[vertex]["kind"] == "output":
            vertex = next(iter(wires.values()))
            continue
        node: Node | None = flat.nodes[vertex]["node"]
        part = node.part if node is not None else None
        if node is None or part is None:
            refusals.add(Obstacle(vertex, node.at if node else "", "gathers what copies give"))
            return []
        place = Place(vertex, _module_path(graph.root, vertex), node.at, part)
        found.append(place)
        if part.block.name in _ATTENTION | _FEED_FORWARD:
            refusals.add(place.obstacle(f"{part.block.key} stands in no sublayer@1"))
        vertex = wires["ids" if part.block.name == "embedding" else "x"]
    return found[::-1]


def _module_path(scope: Scope, path: str) -> str:
    """Return a vertex's path without the numbers of copies that share their weights."""
    name, _, rest = path.partition(".")
    node = next(one for one in scope.nodes if one.name == name)
    if not rest:
        return name
    if node.repeat is None:
        return f"{name}.{_module_path(_body(node, 0), rest)}"
    index, _, rest = rest.partition(".")
    inner = _module_path(_body(node, int(index)), rest)
    return f"{name}.{inner}" if node.share else f"{name}.{index}.{inner}"


def _body(node: Node, index: int) -> Scope:
    return dict(node.copies())[index]


def _stack(flat: nx.DiGraph, chain: Sequence[Place], refusals: Refusals) -> Stack:
    """Return a chain of blocks as a stack, its end included."""
    if not chain or chain[0].use != "embedding":
        path, at = (chain[0].path, chain[0].at) if chain else ("/", "")
        refusals.add(Obstacle(path, at, "the chain does not begin with an embedding of ids"))
        refusals.check()
    middle = list(chain[1:])
    subs = [i for i, one in enumerate(middle) if one.use == "sublayer"]
    if not subs:
        refusals.add(chain[0].obstacle("no sub-layer reads it"))
        refusals.check()
    first, end = subs[0], subs[-1] + 1
    between = [one for one in middle[first:end] if one.use != "dropout"]
    layers = tuple(_layers(flat, between, refusals))
    ids = _wired(flat, chain[0].path)["ids"]
    return Stack(ids, chain[0], tuple(middle[:first]), layers, tuple(middle[end:]))


def _layers(flat: nx.DiGraph, places: Sequence[Place], refusals: Refusals) -> Iterator[Layer]:
    """Group sub-layers: an attention to itself, perhaps one to a memory, a feed-forward."""
    held: list[Place] = []
    for place in places:
        kind = _kind(flat, place, refusals)
        wanted = [{"self"}, {"cross", "feed_forward"}, {"feed_forward"}][len(held)]
        if kind and kind not in wanted:
            refusals.add(
                place.obstacle("a layer is self-attention, attention to a memory, feed-forward")
            )
            held = []
        elif kind == "feed_forward":
            yield Layer(held[0], held[1] if len(held) > 1 else None, place)
            held = []
        elif kind in {"self", "cross"}:
            held.append(place)
    if held:
        refusals.add(held[-1].obstacle("no feed-forward follows it in its layer"))


def _kind(flat: nx.DiGraph, place: Place, refusals: Refusals) -> str:
    """Say what a sub-layer does: `self`, `cross`, `feed_forward`, or nothing known."""
    inner = place.part.fill["f"]
    if inner.block.name in _FEED_FORWARD:
        return "feed_forward"
    if inner.block.name in _ATTENTION:
        wires = _wired(flat, place.path)
        if "bias" in wires:
            refusals.add(place.obstacle("its scores get a bias by wire", slot="/f"))
        return "cross" if "memory" in wires else "self"
    refusals.add(place.obstacle(f"{inner.block.key} in a sub-layer", slot="/f"))
    return ""
