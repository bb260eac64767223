"""The operations inside of multi-head attention, for drawings: Figure 2 of Vaswani et al. 2017."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....graphs.ir.block_type import Inside, Step

_HEADS = "heads"
"""Name of the frame of what each head computes."""


def inside(part: Any) -> Inside:
    """Return the operations of one use of `attention`, with the parts in its slots.

    Args:
        part: the `Part` of the use.
    """
    arguments, fill = part.arguments, part.fill
    wired = {port for port in ("memory", "mask", "bias") if port in part.inputs}
    steps = [*_projections(arguments, "memory" if "memory" in wired else "x")]
    ends = {name: name for name in ("value", "key", "query")}
    for name in ends:
        if f"after_{name}" in fill:
            steps.append(_slot(f"after_{name}", (name,)))
            ends[name] = f"after_{name}"
    position = fill.get("position")
    rotates = position is not None and "key" not in position.inputs
    if rotates:
        for name in ("key", "query"):
            steps.append(_slot("position", (ends[name],), f"position of {name}"))
            ends[name] = f"position of {name}"
    steps.append(_in_heads("scores", (ends["query"], ends["key"]), "matmul", "linear", "Q Kᵀ"))
    scaled = arguments["scale"] not in ("none", 1.0)
    inner = [*_scores(arguments, fill, ends, wired, term=position is not None and not rotates)]
    steps += inner
    weights = steps[-1].name
    steps.append(_in_heads("read", (weights, ends["value"]), "matmul", "linear", "weights times V"))
    if "output" in fill:
        steps.append(_slot("output", ("read",)))
    steps.append(
        Step(
            name="concat",
            reads=(steps[-1].name,),
            title="concat",
            detail=f"{arguments['heads']} × {arguments['d_v']}",
            family="norm",
        )
    )
    out = f"to {arguments['d_model']}{_bias(arguments, 'out')}"
    steps.append(Step(name="out", reads=("concat",), title="linear", detail=out, family="linear"))
    title = "scaled dot-product attention" if scaled else "dot-product attention"
    return Inside(
        steps=tuple(steps),
        outputs={"y": "out"},
        frames={_HEADS: (title, arguments["heads"])},
        rows=(("value", "key", "query"),),
    )


def _projections(arguments: Mapping[str, Any], source: str) -> Iterator[Step]:
    """Yield the linear maps of values, keys and queries."""
    heads, groups = arguments["heads"], arguments["kv_heads"]
    shared = f", each for {heads // groups} heads" if groups < heads else ""
    for name, count, width in (
        ("value", groups, arguments["d_v"]),
        ("key", groups, arguments["d_k"]),
        ("query", heads, arguments["d_k"]),
    ):
        query = name == "query"
        detail = f"{name[0].upper()}: {arguments['d_model' if query else 'd_memory']}"
        detail += f" to {count} × {width}{'' if query else shared}{_bias(arguments, name)}"
        yield Step(
            name=name,
            reads=("x" if query else source,),
            title="linear",
            detail=detail,
            family="linear",
            letter=name[0].upper(),
        )


def _scores(
    arguments: Mapping[str, Any],
    fill: Mapping[str, Any],
    ends: Mapping[str, str],
    wired: set[str],
    *,
    term: bool,
) -> Iterator[Step]:
    """Yield what happens to the scores, up to the attention weights."""
    last = "scores"
    scale = arguments["scale"]
    by = f"by 1/√{arguments['d_k']}" if scale == "sqrt" else f"by {scale}"
    scaling = [] if scale in ("none", 1.0) else [("scale", "scale", by)]
    adding = [("add position", "add", "")] if term else []
    early = term and fill["position"].block.key in SCALED_TERMS
    if term:
        yield _slot("position", (ends["query"], ends["key"]))
    for name, title, detail in (*adding, *scaling) if early else (*scaling, *adding):
        reads = (last, "position") if title == "add" else (last,)
        yield _in_heads(name, reads, title, "other", detail)
        last = name
    if "score" in fill:
        yield _slot("score", (last,))
        last = "score"
    if "bias" in wired:
        yield _in_heads("add bias", (last, "bias"), "add", "other", "bias")
        last = "add bias"
    causal = "causal" if arguments["causal"] else ""
    if causal or "mask" in fill or "mask" in wired:
        reads = (last, "mask") if "mask" in wired else (last,)
        slot = "mask" if "mask" in fill else ""
        yield Step(
            name="masked",
            reads=reads,
            title="mask",
            detail=causal,
            family="embedding",
            slot=slot,
            frame=_HEADS,
        )
        last = "masked"
    yield _in_heads("weights", (last,), "softmax", "softmax")
    last = "weights"
    if "after_softmax" in fill:
        yield _slot("after_softmax", (last,))
        last = "after_softmax"
    if arguments["dropout"]:
        yield _in_heads("dropout", (last,), "dropout", "other", f"{arguments['dropout']:g}")


SCALED_TERMS = frozenset({"relative_keys@1", "transformer_xl_position@1"})
"""Blocks for `position` whose term is added before the scores are scaled."""


def _slot(slot: str, reads: tuple[str, ...], name: str = "") -> Step:
    """Return the step of what fills a slot."""
    return Step(name=name or slot, reads=reads, slot=slot, frame=_HEADS)


def _in_heads(name: str, reads: tuple[str, ...], title: str, family: str, detail: str = "") -> Step:
    return Step(name=name, reads=reads, title=title, detail=detail, family=family, frame=_HEADS)


def _bias(arguments: Mapping[str, Any], name: str) -> str:
    """Return a note on a projection without a bias."""
    biases = arguments["bias"]
    has = biases if isinstance(biases, bool) else name in biases
    return "" if has else ", no bias"
