"""Read a graph as stacks of sub-layers, or list the nodes that prevent it.

CTranslate2 supports one kind of network only.  In such a network, every block from the logits
back to the ids reads the block before it; this module finds those blocks, whatever their names
and templates are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import networkx as nx

from .....blocks.registry import key_for
from .....graphs.ir.traverse import fillings
from .....plugin import BlockNode, Graph, InputError, Node, Part, TemplatePart, Visit, visits
from ..flat import flat_graph

MOST_NAMED = 8
"""Most obstacles that a refusal lists."""
_FEED_FORWARD = ("feed_forward", "gated_feed_forward")
"""Roles of the blocks that end a layer."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A node for which another engine has no counterpart."""

    path: str
    """Path as in a patch selection, with `*` for copies of a repeat."""
    at: str
    """JSON Pointer of the node."""
    problem: str
    use: str = ""
    """The block, such as `attention@1`."""
    swap: str = ""
    """Replacement block for `weft swap --use`, with its options."""


@dataclass(frozen=True, slots=True)
class Place:
    """A block at its place in the expanded graph."""

    path: str
    """Such as `decoder.0.self_attention`."""
    module: str
    """Path of its module, without the index of a copy that shares its weights."""
    at: str
    part: Part

    @property
    def role(self) -> str:
        """The part that the block plays in a standard Transformer layer."""
        return self.part.block.role

    @property
    def inner(self) -> Part:
        """The block in its slot."""
        inner = next(iter(self.part.fill.values()))
        if not isinstance(inner, Part):
            msg = f"a template is in the slot of '{self.path}'"
            raise TypeError(msg)
        return inner

    def obstacle(self, problem: str, *, swap: str = "", slot: str = "") -> Obstacle:
        """Return an obstacle for this block, with a replacement for `weft swap`.

        Args:
            problem: why the block has no counterpart.
            swap: replacement block, with its options.
            slot: `/f` if the block in that slot is the obstacle.
        """
        part = self.inner if slot else self.part
        return Obstacle(_select(self.path) + slot, self.at, problem, part.key, swap)


@dataclass(frozen=True, slots=True)
class Layer:
    """The sub-layers of one layer."""

    attention: Place
    cross: Place | None
    feed_forward: Place

    @property
    def places(self) -> list[Place]:
        """All of them, in order."""
        return [
            site for site in (self.attention, self.cross, self.feed_forward) if site is not None
        ]


@dataclass(frozen=True, slots=True)
class Stack:
    """An embedding, the layers after it, and the blocks around the layers."""

    ids: str
    """Name of the ids input."""
    embedding: Place
    before: tuple[Place, ...]
    """Blocks between the embedding and the first layer."""
    layers: tuple[Layer, ...]
    after: tuple[Place, ...]
    """Blocks after the last layer."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """A graph as a decoder stack, and optionally an encoder stack."""

    encoder: Stack | None
    decoder: Stack
    head: Place


class Refusals:
    """Obstacles, collected so that all are reported at once."""

    def __init__(self, graph: Graph, target: str) -> None:
        """Start with no obstacles.

        Args:
            graph: the exported graph.
            target: display name of the engine.
        """
        self.graph, self.target = graph, target
        self.found: dict[tuple[str, str], Obstacle] = {}

    def add(self, obstacle: Obstacle) -> None:
        """Add an obstacle; an obstacle shared by copies counts once."""
        self.found.setdefault((obstacle.path, obstacle.problem), obstacle)

    def check(self) -> None:
        """Refuse the graph if there are obstacles.

        Raises:
            InputError: there are obstacles; the nodes are named.
        """
        if not self.found:
            return
        obstacles = list(self.found.values())
        lines = [f"'{obstacle.path}': {obstacle.problem}" for obstacle in obstacles[:MOST_NAMED]]
        more = len(obstacles) - MOST_NAMED
        lines += [f"and {more} more"] if more > 0 else []
        ways = [*_swaps(obstacles), "weft export CKPT --to onnx, or weft eject"]
        raise InputError(
            f"{self.target} cannot express this spec" + "".join(f"\n      {t}" for t in lines),
            location=f"{self.graph.source}#{obstacles[0].at}",
            help="\n        or: ".join(ways),
        )


def _swaps(obstacles: Sequence[Obstacle]) -> list[str]:
    """Return `weft swap` commands that remove the obstacles, one per kind of obstacle."""
    groups: dict[tuple[str, str], list[Obstacle]] = {}
    for obstacle in obstacles:
        if obstacle.swap:
            groups.setdefault((obstacle.use, obstacle.swap), []).append(obstacle)
    swaps = []
    for (use, swap), alike in groups.items():
        slot = "/f" if "/f" in alike[0].path else ""
        select = alike[0].path if len(alike) == 1 else f"**{slot}[use={use}]"
        swaps.append(
            f"train a variant without it: weft swap SPEC '{select}' --use {swap} -o NEW.json"
        )
    return swaps[:3]


def _select(path: str) -> str:
    """Return a path as in a patch selection, with `*` for copies of a repeat."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", path)


def read_stacks(graph: Graph, refusals: Refusals) -> Stacks:
    """Return a graph as stacks.

    Args:
        graph: a checked graph.
        refusals: receives the nodes that do not fit into a stack.

    Raises:
        InputError: the graph cannot be read as stacks; the nodes that prevent it are named.
    """
    flat = flat_graph(graph)
    if "output:logits" not in flat or graph.step_axis is None:
        refusals.add(
            Obstacle("/", "", "it does not decode token by token: it needs 'logits' and 'step'")
        )
    for visit in visits(graph.root):
        if visit.kind == "name":
            for obstacle in _unknown(visit):
                refusals.add(obstacle)
    refusals.check()
    chain = _chain(graph, flat, "output:logits", refusals)
    refusals.check()
    if not chain or chain[-1].role != "linear":
        last = chain[-1]
        refusals.add(
            last.obstacle(f"{last.part.key} computes the logits; it must be {key_for('linear')}")
        )
    refusals.check()
    decoder = _stack(flat, chain[:-1], refusals)
    refusals.check()
    sources = {_wired(flat, layer.cross.path)["memory"] for layer in decoder.layers if layer.cross}
    encoder = None
    if sources:
        if len(sources) > 1 or any(layer.cross is None for layer in decoder.layers):
            odd = next(
                (layer for layer in decoder.layers if layer.cross is None), decoder.layers[-1]
            )
            refusals.add(odd.feed_forward.obstacle("all layers must read the same memory"))
        refusals.check()
        encoder = _stack(flat, _chain(graph, flat, sources.pop(), refusals), refusals)
        refusals.check()
    return Stacks(encoder, decoder, chain[-1])


def _unknown(visit: Visit) -> Iterator[Obstacle]:
    """Yield the unsupported blocks of a node and of its slots."""
    attentions: list[str] = []  # `layer_features.py` judges the parts in their slots
    for below, inner in fillings(visit.node.part) if isinstance(visit.node, BlockNode) else ():
        if below.startswith(tuple(attentions)):
            continue
        if isinstance(inner, Part) and inner.block.role == "attention":
            attentions.append(f"{below}/")
        select, at = visit.folded + below, visit.node.at
        if isinstance(inner, TemplatePart):
            yield Obstacle(select, at, "a template in a slot has no counterpart")
        elif not inner.block.role:
            swap = inner.block.stands_in.format_map(inner.arguments)
            yield Obstacle(select, at, f"{inner.key} has no counterpart", inner.key, swap)


def _wired(flat: nx.DiGraph, vertex: str) -> dict[str, str]:
    """Return the vertex that each port of a vertex reads."""
    return {
        wire["port"]: source
        for source, _, data in flat.in_edges(vertex, data=True)
        for wire in data["wires"]
    }


def _chain(graph: Graph, flat: nx.DiGraph, last: str, refusals: Refusals) -> list[Place]:
    """Return the chain of blocks from the ids to `last`; each reads the one before it."""
    chain: list[Place] = []
    modules = {visit.path: visit.module for visit in visits(graph.root, "each")}
    vertex = last
    while flat.nodes[vertex]["kind"] != "input":
        wires = _wired(flat, vertex)
        if flat.nodes[vertex]["kind"] == "output":
            vertex = next(iter(wires.values()))
            continue
        node: Node | None = flat.nodes[vertex]["node"]
        if not isinstance(node, BlockNode):
            refusals.add(
                Obstacle(
                    vertex,
                    node.at if node else "",
                    "collecting the outputs of copies is not supported",
                )
            )
            return []
        site = Place(vertex, modules[vertex], node.at, node.part)
        chain.append(site)
        if site.role in ("attention", *_FEED_FORWARD):
            residual = key_for("residual")
            refusals.add(site.obstacle(f"{node.part.key} is not inside a {residual}"))
        vertex = wires["ids" if site.role == "embedding" else "x"]
    return chain[::-1]


def _stack(flat: nx.DiGraph, chain: Sequence[Place], refusals: Refusals) -> Stack:
    """Return a chain of blocks as a stack."""
    if not chain or chain[0].role != "embedding":
        path, at = (chain[0].path, chain[0].at) if chain else ("/", "")
        refusals.add(Obstacle(path, at, "the chain does not begin with an embedding of ids"))
        refusals.check()
    middle = list(chain[1:])
    subs = [i for i, site in enumerate(middle) if site.role == "residual"]
    if not subs:
        refusals.add(chain[0].obstacle("no sub-layer reads it"))
        refusals.check()
    first, end = subs[0], subs[-1] + 1
    between = [site for site in middle[first:end] if site.role != "dropout"]
    layers = tuple(_layers(flat, between, refusals))
    ids = _wired(flat, chain[0].path)["ids"]
    return Stack(ids, chain[0], tuple(middle[:first]), layers, tuple(middle[end:]))


def _layers(flat: nx.DiGraph, places: Sequence[Place], refusals: Refusals) -> Iterator[Layer]:
    """Group sub-layers into layers: self-attention, optional cross-attention, feed-forward."""
    layer: list[Place] = []
    for site in places:
        kind = _kind(flat, site, refusals)
        expected = [{"self"}, {"cross", "feed_forward"}, {"feed_forward"}][len(layer)]
        if kind and kind not in expected:
            refusals.add(
                site.obstacle(
                    "a layer must be self-attention, cross-attention, feed-forward, in this order"
                )
            )
            layer = []
        elif kind == "feed_forward":
            yield Layer(layer[0], layer[1] if len(layer) > 1 else None, site)
            layer = []
        elif kind in {"self", "cross"}:
            layer.append(site)
    if layer:
        refusals.add(layer[-1].obstacle("no feed-forward follows it in its layer"))


def _kind(flat: nx.DiGraph, site: Place, refusals: Refusals) -> str:
    """Return the kind of a sub-layer: `self`, `cross`, `feed_forward`, or "" if unknown."""
    inner = site.inner
    if inner.block.role in _FEED_FORWARD:
        return "feed_forward"
    if inner.block.role == "attention":
        wires = _wired(flat, site.path)
        if "bias" in wires:
            refusals.add(site.obstacle("a wired attention bias is not supported", slot="/f"))
        return "cross" if "memory" in wires else "self"
    refusals.add(site.obstacle(f"{inner.key} is not supported in a sub-layer", slot="/f"))
    return ""
