"""Features of a stack of layers, which must be the same in all of its layers.

CTranslate2 sets most options once per stack: the order of norms, the number of heads, the
activation.  This module reads them from the blocks and names the first block that differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .....blocks.registry import key_for
from .....plugin import Part
from .layer_stacks import Place, Refusals, Stack

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
    embedding_norm: Place | None
    table: Place | None
    """The block whose vectors are added to the embedding."""
    final_norm: Place | None
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

    def same(places: list[Place], what: str, read: Callable[[Place], Any], slot: str = "") -> Any:
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


def _inner(site: Place) -> Any:
    return site.inner.arguments


def _position(site: Place) -> str:
    """Return the name of the block of relative positions in an attention, or `none`."""
    part = site.inner.fill.get("position")
    return part.block.name if isinstance(part, Part) else "none"


def _rotary_base(site: Place) -> float:
    part = site.inner.fill.get("position")
    arguments = part.arguments if isinstance(part, Part) else {}
    return float(arguments.get("base", 10_000.0))


def _sublayer(site: Place, refusals: Refusals) -> None:
    order = site.part.arguments["order"]
    if order == "sandwich":
        swap = f"{site.part.key} --set order=pre"
        refusals.add(
            site.obstacle("a norm before it and another after it are not supported", swap=swap)
        )
    if site.part.arguments["norm"] == "none":
        swap = f"{site.part.key} --set norm=layer_norm"
        refusals.add(site.obstacle("a sub-layer without a norm is not supported", swap=swap))


def _attention(site: Place, refusals: Refusals, *, decoder: bool) -> None:
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


def _bent(rotary: Part) -> bool:
    """Return whether rotary positions have other options than a base."""
    return not rotary.arguments.keys() <= {"width", "base"} or (
        rotary.arguments["width"] != rotary.axes.get("d_k")
    )


def _feed_forward(site: Place, refusals: Refusals) -> None:
    activation = _inner(site)["activation"]
    if activation not in ACTIVATIONS:
        swap = f"{site.inner.key} --set activation=relu"
        problem = f"the activation '{activation}' is not supported"
        refusals.add(site.obstacle(problem, swap=swap, slot="/f"))


def _alibi(places: list[Place], heads: int, refusals: Refusals, *, decoder: bool) -> None:
    """Refuse ALiBi in an encoder, and head counts whose ALiBi slopes differ."""
    for site in places:
        if not decoder:
            refusals.add(site.obstacle("alibi is not supported in an encoder", slot="/f"))
        elif heads & (heads - 1):
            problem = f"alibi with {heads} heads, which is not a power of two"
            refusals.add(site.obstacle(problem, slot="/f"))


def _before(stack: Stack, position: str, refusals: Refusals) -> dict[str, Place | None]:
    """Return the blocks between embedding and layers: a position table, then a norm."""
    parts: dict[str, Place | None] = {"table": None, "norm": None}
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


def _after(stack: Stack, refusals: Refusals, *, decoder: bool) -> tuple[Place | None, float]:
    """Return the blocks after the layers: a norm, then in a decoder a constant factor."""
    norm: Place | None = None
    scale = 1.0
    for site in stack.after:
        kind = _KINDS.get(site.role, "")
        if kind == "norm" and norm is None and scale == 1.0:
            norm = site
        elif kind == "scale" and decoder:
            scale *= float(site.part.arguments["by"])
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
    first: tuple[Place, float] | None = None
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


def _norms(stack: Stack, features: Features) -> Iterator[tuple[Place, Part]]:
    for site in (features.embedding_norm, features.final_norm):
        if site is not None:
            yield site, site.part
    for layer in stack.layers:
        for sublayer in layer.places:
            if sublayer.part.arguments["norm"] != "none":
                yield sublayer, sublayer.part
