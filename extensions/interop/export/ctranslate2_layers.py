"""Features of a stack of layers, which must be the same in all of its layers.

CTranslate2 sets most options once per stack: the order of norms, the number of heads, the
activation.  This module reads them from the blocks and names the first block that differs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import networkx as nx

from ....blocks.feed_forward.feed_forward import GATE
from ....blocks.registry import key_for
from ....graphs.ir.traverse import fillings
from ....plugin import BlockNode, Graph, InputError, Node, Part, TemplatePart, Visit, visits
from .flat import flat_graph

ACTIVATIONS = {
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_tanh": "GELUTanh",
    "silu": "SWISH",
    "sigmoid": "Sigmoid",
}
"""Weft's activation name to the member of `ctranslate2.specs.Activation`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Options that CTranslate2 sets once per stack."""

    heads: int
    kv_heads: int
    """Key-value heads of every attention; `heads` if they differ, and weights are repeated."""
    d_head: int
    d_model: int
    pre_norm: bool
    rms: bool
    activation: str
    gated: bool
    position: str
    """`table` (added to the embedding), or the block in attention: `rotary`, `alibi`, ..."""
    rotary_base: float
    scale_embedding: bool
    embedding_norm: Vertex | None
    table: Vertex | None
    """The block whose vectors are added to the embedding."""
    final_norm: Vertex | None
    scale: float
    """Factor on the last hidden vectors before the output projection."""


def features_of(stack: Stack, refusals: Refusals, *, decoder: bool) -> Features:
    """Return the features of a stack, and collect the nodes without a counterpart.

    Args:
        stack: the blocks of the stack.
        refusals: receives the obstacles.
        decoder: whether the stack is the decoder.
    """
    subs = [site for layer in stack.layers for site in layer.places]
    attentions = [site for layer in stack.layers for site in layer.places[:-1]]
    for site in subs:
        _sublayer(site, refusals)
    for attention in attentions:
        _attention(attention, refusals, decoder=decoder)
    self_attentions = [layer.attention for layer in stack.layers]
    forward = [layer.feed_forward for layer in stack.layers]

    def same(places: list[Vertex], what: str, read: Callable[[Vertex], Any], slot: str = "") -> Any:
        value = read(places[0])
        for site in places[1:]:
            if read(site) != value:
                difference = f"its {what} is {read(site)}, {value} in '{places[0].path}'"
                refusals.add(
                    site.obstacle(
                        f"{difference}: all layers of a stack must have the same", slot=slot
                    )
                )
        return value

    for feed_forward in forward:
        _feed_forward(feed_forward, refusals)
    inner = _inner
    heads = same(attentions, "number of heads", lambda site: inner(site)["heads"], "/f")
    kv_heads = {inner(site)["kv_heads"] for site in attentions}
    position = same(self_attentions, "position", _position, "/f")
    before = _before(stack, position, refusals)
    _alibi(self_attentions, heads, refusals, decoder=decoder) if position == "alibi" else None
    final, scale = _after(stack, refusals, decoder=decoder)
    same(subs, "norm", lambda site: site.part.arguments["norm"])
    return Features(
        heads=heads,
        kv_heads=kv_heads.pop() if len(kv_heads) == 1 else heads,
        d_head=same(attentions, "width of a head", lambda site: inner(site)["d_k"], "/f"),
        d_model=stack.embedding.part.arguments["d_model"],
        pre_norm=same(subs, "order", lambda site: site.part.arguments["order"]) == "pre",
        rms=subs[0].part.arguments["norm"] == "rms_norm",
        activation=same(forward, "activation", lambda site: inner(site)["activation"], "/f"),
        gated=same(forward, "block", lambda site: site.inner.block.role, "/f")
        == "gated_feed_forward",
        position="table" if position == "none" else position,
        rotary_base=same(self_attentions, "base of rotary positions", _rotary_base, "/f"),
        scale_embedding=stack.embedding.part.arguments["scale"] == "sqrt",
        embedding_norm=before["norm"],
        table=before["table"],
        final_norm=final,
        scale=scale,
    )


def _inner(site: Vertex) -> Any:
    return site.inner.arguments


def _position(site: Vertex) -> str:
    """Return the name of the block of relative positions in an attention, or `none`."""
    part = site.inner.fill.get("position")
    return part.block.name if isinstance(part, Part) else "none"


def _rotary_base(site: Vertex) -> float:
    part = site.inner.fill.get("position")
    arguments = part.arguments if isinstance(part, Part) else {}
    return float(arguments.get("base", 10_000.0))


def _sublayer(site: Vertex, refusals: Refusals) -> None:
    order = site.part.arguments["order"]
    if order == "sandwich":
        swap = f"{site.part.key} --set order=pre"
        refusals.add(
            site.obstacle("a norm before it and another after it are not supported", swap=swap)
        )
    if site.part.arguments["norm"] == "none":
        swap = f"{site.part.key} --set norm=layer_norm"
        refusals.add(site.obstacle("a sub-layer without a norm is not supported", swap=swap))


def _attention(site: Vertex, refusals: Refusals, *, decoder: bool) -> None:
    arguments = _inner(site)
    self_attention = "memory" not in site.inner.inputs
    key = site.inner.key
    if arguments["d_k"] != arguments["d_v"]:
        widths = f"keys are {arguments['d_k']} wide and values {arguments['d_v']}"
        problem = f"{widths}: the widths must be equal"
        swap = f"{key} --set d_v={arguments['d_k']}"
        refusals.add(site.obstacle(problem, swap=swap, slot="/f"))
    if self_attention and bool(arguments["causal"]) != decoder:
        problem = "it is not causal" if decoder else "it is causal in an encoder"
        swap = f"{key} --set causal={str(decoder).lower()}"
        refusals.add(site.obstacle(problem, swap=swap, slot="/f"))
    for name, usual in _USUAL.items():
        if name in arguments:
            problem = f"its param '{name}' is not supported"
            refusals.add(site.obstacle(problem, swap=f"{key} --set {name}={usual}", slot="/f"))
    # CTranslate2 4.8.5 computes wrong results for prompts longer than its sliding window.
    for slot, part in site.inner.fill.items():
        supported = isinstance(part, Part) and part.block.name in _EXPRESSED.get(slot, ())
        if not supported or (
            isinstance(part, Part) and part.block.name == "rotary" and _bent(part)
        ):
            problem = f"{part.key} in the slot '{slot}' of its attention is not supported"
            refusals.add(site.obstacle(problem, slot="/f"))


_EXPRESSED = {
    "position": ("rotary", "alibi", "relative_bias", "relative_keys"),
    "output": ("head_gates",),
}
"""Slot of attention to the blocks that CTranslate2 can express."""


_USUAL = {"d_out": "null", "sinks": "false", "softmax": "softmax"}
"""Params of attention that CTranslate2 does not have, with the values that it computes."""


def _bent(rotary: Part) -> bool:
    """Return whether rotary positions have other options than a base."""
    return not rotary.arguments.keys() <= {"width", "base"} or (
        rotary.arguments["width"] != rotary.axes.get("d_k")
    )


def _feed_forward(site: Vertex, refusals: Refusals) -> None:
    activation = _inner(site)["activation"]
    for name in sorted(GATE & _inner(site).keys()):
        problem = f"a gated feed-forward network with '{name}' is not supported"
        refusals.add(site.obstacle(problem, slot="/f"))
    if activation not in ACTIVATIONS:
        swap = f"{site.inner.key} --set activation=relu"
        problem = f"the activation '{activation}' is not supported"
        refusals.add(site.obstacle(problem, swap=swap, slot="/f"))


def _alibi(places: list[Vertex], heads: int, refusals: Refusals, *, decoder: bool) -> None:
    """Refuse ALiBi in an encoder, and head counts whose ALiBi slopes differ."""
    for site in places:
        if not decoder:
            refusals.add(site.obstacle("alibi is not supported in an encoder", slot="/f"))
        elif heads & (heads - 1):
            problem = f"alibi with {heads} heads, which is not a power of two"
            refusals.add(site.obstacle(problem, slot="/f"))


def _before(stack: Stack, position: str, refusals: Refusals) -> dict[str, Vertex | None]:
    """Return the blocks between embedding and layers: a position table, then a norm."""
    parts: dict[str, Vertex | None] = {"table": None, "norm": None}
    for site in stack.before:
        kind = _KINDS.get(site.role, "")
        if kind == "drop":
            continue
        after_norm = kind == "table" and parts["norm"] is not None
        if not kind or kind == "scale" or parts[kind] is not None or after_norm:
            refusals.add(
                site.obstacle(f"{site.part.key} is not supported between embedding and layers")
            )
            continue
        if kind == "table" and position != "none":
            problem = (
                f"positions are added, but attention has {position} positions; use only one kind"
            )
            refusals.add(site.obstacle(problem, swap=f"{key_for('dropout')} --set dropout=0.1"))
        parts[kind] = site
    return parts


def _after(stack: Stack, refusals: Refusals, *, decoder: bool) -> tuple[Vertex | None, float]:
    """Return the blocks after the layers: a norm, then in a decoder a constant factor."""
    norm: Vertex | None = None
    scale = 1.0
    for site in stack.after:
        kind = _KINDS.get(site.role, "")
        if kind == "norm" and norm is None and scale == 1.0:
            norm = site
        elif kind == "scale" and decoder:
            scale *= float(site.part.arguments["factor"])
        elif kind != "drop":
            refusals.add(site.obstacle(f"{site.part.key} is not supported after the layers"))
    return norm, scale


_KINDS = {
    "position_table": "table",
    "layer_norm": "norm",
    "rms_norm": "norm",
    "dropout": "drop",
    "scale": "scale",
}


def epsilon_of(stacks: list[tuple[Stack, Features]], refusals: Refusals) -> float:
    """Return the epsilon of all norms, and refuse norms of several kinds."""
    first: tuple[Vertex, float] | None = None
    for stack, features in stacks:
        norms = list(_norms(stack, features))
        for site, part in norms:
            rms = _is_rms(part)
            if rms != features.rms:
                mixture = "an RMS norm among layer norms" if rms else "a layer norm among RMS norms"
                refusals.add(site.obstacle(mixture))
            eps = float(part.arguments["eps"])
            if first is None:
                first = site, eps
            elif eps != first[1]:
                difference = f"its norm's eps is {eps:g}, {first[1]:g} in '{first[0].path}'"
                refusals.add(
                    site.obstacle(f"{difference}: all norms of the model must have the same")
                )
    return first[1] if first is not None else 1e-6


def _is_rms(part: Part) -> bool:
    return part.block.role == "rms_norm" or part.arguments.get("norm") == "rms_norm"


def _norms(stack: Stack, features: Features) -> Iterator[tuple[Vertex, Part]]:
    for site in (features.embedding_norm, features.final_norm):
        if site is not None:
            yield site, site.part
    for layer in stack.layers:
        for sublayer in layer.places:
            if sublayer.part.arguments["norm"] != "none":
                yield sublayer, sublayer.part


MOST_NAMED = 8
"""Most obstacles that a refusal lists."""
_FEED_FORWARD = ("feed_forward", "gated_feed_forward")
"""Roles of the blocks that end a layer."""


def role_of(part: Part) -> str:
    """Return the part that a block plays in a standard layer; `scale` for a constant factor."""
    return "scale" if "factor" in part.arguments else part.block.role


@dataclass(frozen=True, slots=True)
class Unmatched:
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
class Vertex:
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
        return role_of(self.part)

    @property
    def inner(self) -> Part:
        """The block in its slot."""
        inner = next(iter(self.part.fill.values()))
        if not isinstance(inner, Part):
            msg = f"a template is in the slot of '{self.path}'"
            raise TypeError(msg)
        return inner

    def obstacle(self, problem: str, *, swap: str = "", slot: str = "") -> Unmatched:
        """Return an obstacle for this block, with a replacement for `weft swap`.

        Args:
            problem: why the block has no counterpart.
            swap: replacement block, with its options.
            slot: `/f` if the block in that slot is the obstacle.
        """
        part = self.inner if slot else self.part
        return Unmatched(_select(self.path) + slot, self.at, problem, part.key, swap)


@dataclass(frozen=True, slots=True)
class SubLayers:
    """The sub-layers of one layer."""

    attention: Vertex
    cross: Vertex | None
    feed_forward: Vertex

    @property
    def places(self) -> list[Vertex]:
        """All of them, in order."""
        return [
            site for site in (self.attention, self.cross, self.feed_forward) if site is not None
        ]


@dataclass(frozen=True, slots=True)
class Stack:
    """An embedding, the layers after it, and the blocks around the layers."""

    ids: str
    """Name of the ids input."""
    embedding: Vertex
    before: tuple[Vertex, ...]
    """Blocks between the embedding and the first layer."""
    layers: tuple[SubLayers, ...]
    after: tuple[Vertex, ...]
    """Blocks after the last layer."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """A graph as a decoder stack, and optionally an encoder stack."""

    encoder: Stack | None
    decoder: Stack
    head: Vertex


class Refusals:
    """Obstacles, collected so that all are reported at once."""

    def __init__(self, graph: Graph, target: str) -> None:
        """Start with no obstacles.

        Args:
            graph: the exported graph.
            target: display name of the engine.
        """
        self.graph, self.target = graph, target
        self.obstacles: dict[tuple[str, str], Unmatched] = {}

    def add(self, obstacle: Unmatched) -> None:
        """Add an obstacle; an obstacle shared by copies counts once."""
        self.obstacles.setdefault((obstacle.path, obstacle.problem), obstacle)

    def check(self) -> None:
        """Refuse the graph if there are obstacles.

        Raises:
            InputError: there are obstacles; the nodes are named.
        """
        if not self.obstacles:
            return
        obstacles = list(self.obstacles.values())
        lines = [f"'{obstacle.path}': {obstacle.problem}" for obstacle in obstacles[:MOST_NAMED]]
        more = len(obstacles) - MOST_NAMED
        lines += [f"and {more} more"] if more > 0 else []
        ways = [*_swaps(obstacles), "weft export CKPT --to onnx, or weft eject"]
        raise InputError(
            f"{self.target} cannot express this spec" + "".join(f"\n      {t}" for t in lines),
            location=f"{self.graph.source}#{obstacles[0].at}",
            help="\n        or: ".join(ways),
        )


def _swaps(obstacles: Sequence[Unmatched]) -> list[str]:
    """Return `weft swap` commands that remove the obstacles, one per kind of obstacle."""
    groups: dict[tuple[str, str], list[Unmatched]] = {}
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
            Unmatched("/", "", "it does not decode token by token: it needs 'logits' and 'step'")
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


def _unknown(visit: Visit) -> Iterator[Unmatched]:
    """Yield the unsupported blocks of a node and of its slots."""
    attentions: list[str] = []  # `features_of` judges the parts in their slots
    for below, inner in fillings(visit.node.part) if isinstance(visit.node, BlockNode) else ():
        if below.startswith(tuple(attentions)):
            continue
        if isinstance(inner, Part) and inner.block.role == "attention":
            attentions.append(f"{below}/")
        select, at = visit.folded + below, visit.node.at
        if isinstance(inner, TemplatePart):
            yield Unmatched(select, at, "a template in a slot has no counterpart")
        elif not role_of(inner):
            swap = inner.block.stands_in.format_map(inner.arguments)
            yield Unmatched(select, at, f"{inner.key} has no counterpart", inner.key, swap)


def _wired(flat: nx.DiGraph, vertex: str) -> dict[str, str]:
    """Return the vertex that each port of a vertex reads."""
    return {
        wire["port"]: source
        for source, _, data in flat.in_edges(vertex, data=True)
        for wire in data["wires"]
    }


def _chain(graph: Graph, flat: nx.DiGraph, last: str, refusals: Refusals) -> list[Vertex]:
    """Return the chain of blocks from the ids to `last`; each reads the one before it."""
    chain: list[Vertex] = []
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
                Unmatched(
                    vertex,
                    node.at if node else "",
                    "collecting the outputs of copies is not supported",
                )
            )
            return []
        site = Vertex(vertex, modules[vertex], node.at, node.part)
        chain.append(site)
        if site.role in ("attention", *_FEED_FORWARD):
            residual = key_for("residual")
            refusals.add(site.obstacle(f"{node.part.key} is not inside a {residual}"))
        vertex = wires["ids" if site.role == "embedding" else "x"]
    return chain[::-1]


def _stack(flat: nx.DiGraph, chain: Sequence[Vertex], refusals: Refusals) -> Stack:
    """Return a chain of blocks as a stack."""
    if not chain or chain[0].role != "embedding":
        path, at = (chain[0].path, chain[0].at) if chain else ("/", "")
        refusals.add(Unmatched(path, at, "the chain does not begin with an embedding of ids"))
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


def _layers(flat: nx.DiGraph, places: Sequence[Vertex], refusals: Refusals) -> Iterator[SubLayers]:
    """Group sub-layers into layers: self-attention, optional cross-attention, feed-forward."""
    layer: list[Vertex] = []
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
            yield SubLayers(layer[0], layer[1] if len(layer) > 1 else None, site)
            layer = []
        elif kind in {"self", "cross"}:
            layer.append(site)
    if layer:
        refusals.add(layer[-1].obstacle("no feed-forward follows it in its layer"))


def _kind(flat: nx.DiGraph, site: Vertex, refusals: Refusals) -> str:
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
