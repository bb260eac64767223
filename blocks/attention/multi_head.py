"""Multi-head attention: a frame whose slots are filled by small blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import (
    BlockType,
    Division,
    Inside,
    Needs,
    Port,
    Prunable,
    Signature,
    Slot,
    Step,
    port,
)
from ...graphs.ir.graph import Part
from ...graphs.ir.lora import Adaptable
from ...graphs.ir.state_tensor import StateTensor
from ..params import (
    Base,
    Count,
    Flag,
    Params,
    Probability,
)
from .masks import ALLOWED, KEY, QUERY, ROW


def nearest(target: int, candidates: Iterable[int]) -> int:
    """Return the candidate nearest to a target."""
    return min(candidates, key=lambda number: abs(number - target))


def head_widths(d_model: int, heads: int, d_k: int | None, d_v: int | None) -> tuple[int, int]:
    """Return the key and value width of one head; d_model / heads by default.

    Raises:
        ValueError: d_k is not given, and d_model is not divisible by the number of heads.
    """
    if d_k is None and d_model % heads:
        msg = f"width {d_model} is not divisible by {heads} heads"
        fits = (h for h in range(1, min(d_model, 64) + 1) if d_model % h == 0)
        raise ValueError(msg, f"use {nearest(heads, fits)} heads, or set d_k")
    width = d_k or d_model // heads
    return width, d_v or width


def projections(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the weight shapes of the query, key, value and output projections."""
    a = arguments
    d_memory, kv_heads = a.get("d_memory", a["d_model"]), a.get("kv_heads", a["heads"])
    return {
        "query": (a["heads"] * a["d_k"], a["d_model"]),
        "key": (kv_heads * a["d_k"], d_memory),
        "value": (kv_heads * a["d_v"], d_memory),
        "out": (a.get("d_out", a["d_model"]), a["heads"] * a["d_v"]),
    }


def linear_weights(
    shapes: Mapping[str, tuple[int, ...]], *, bias: bool, without: str = ""
) -> dict[str, tuple[int, ...]]:
    """Return the weight and bias shapes of linear maps; the map `without` has no bias."""
    weights: dict[str, tuple[int, ...]] = {}
    for name, shape in shapes.items():
        weights[f"{name}.weight"] = shape
        if bias and name != without:
            weights[f"{name}.bias"] = shape[:1]
    return weights


ROTARY = "rotary@1"
"""Key of the positions that rotate keys before they are stored."""
STORED = ("after_key", "after_value")
"""Slots whose results decoding stores, with the keys and values."""
PROJECTIONS = ("query", "key", "value", "out")
_HEADS = "heads"
"""Name of the frame of what each head computes."""
SCALED_TERMS = frozenset({"relative_keys@1", "transformer_xl_position@1"})
"""Blocks for `position` whose term is added before the scores are scaled."""


class AttentionParams(Adaptable, Params):
    """Params of `attention`."""

    heads: Count
    """Number of heads."""
    kv_heads: Count | None = None
    """Number of key and value heads, a divisor of `heads`, which is the default; with fewer, groups
    of heads share keys and values, and 1 is multi-query attention."""
    d_k: Count | None = None
    """Query and key width of one head; d_model / heads by default."""
    d_v: Count | None = None
    """Value width of one head; d_k by default."""
    causal: Flag = False
    """Whether positions attend only to themselves and earlier ones; with `memory`, its positions
    must be those of `x`."""
    bias: Flag = True
    """Whether the four projections have biases."""
    query_bias: Flag | None = None
    """Whether the query projection has a bias; `bias` by default."""
    key_bias: Flag | None = None
    """Whether the key projection has a bias; `bias` by default.  It shifts all scores of a query
    equally, so the softmax cancels it, except with rotary positions."""
    value_bias: Flag | None = None
    """Whether the value projection has a bias; `bias` by default."""
    out_bias: Flag | None = None
    """Whether the output projection has a bias; `bias` by default."""
    scale: Literal["sqrt", "none"] | Base = "sqrt"
    """Factor of the dot products: `sqrt` for 1 / sqrt(d_k), `none` for 1, or a number."""
    dropout: Probability = 0.0
    """Dropout probability of the attention weights."""
    d_out: Count | None = None
    """Width of the output; d_model by default."""
    softmax: Literal["softmax", "softmax1", "squared_relu", "sparsemax", "sigmoid", "none"] = (
        "softmax"
    )
    """Function that turns scores into weights: those of `softmax@1`, or `none` for the scores
    themselves.  Masked keys have the weight 0."""
    sinks: Annotated[Flag, Needs("softmax", ("softmax",))] = False
    """Whether each head has the learned logit of a further key, whose value is zero, so that it may
    attend to nothing; it starts at 0."""
    cache: Literal["keys_values", "inputs"] = "keys_values"
    """What decoding stores for each position: its keys and values, or the vector of which they are
    projections.  With `inputs` each step projects the vectors of all positions again, as
    latent attention and Transformer-XL do; it needs `causal`."""


def _slots(read: str, *, causal: bool) -> tuple[Slot, ...]:
    """Return the slots, given the axis of the positions that are read."""

    def slot(name: str, entry: Port, output: str, doc: str, **more: Any) -> Slot:
        return Slot(name, entry, port("y", output), doc, optional=True, **more)

    queries, keys = "f[b heads t d_k]", f"f[b groups {read} d_k]"
    values, scores = f"f[b groups {read} d_v]", f"f[b heads t {read}]"
    outputs = "f[b heads t d_v]"
    pair = [port(value.name, f"pos[b t {read}]", value.doc) for value in (QUERY, KEY, ROW)]
    return (
        slot("after_query", port("x", queries), queries, "applied to the queries"),
        slot("after_key", port("x", keys), keys, "applied to the keys"),
        slot("after_value", port("x", values), values, "applied to the values"),
        slot(
            "position",
            port("query", queries),
            "f[...]",
            "rotates queries and keys, or adds a term to the scores",
            takes="position",
            others=(port("key", keys),),
        ),
        slot("score", port("x", scores), scores, "applied to the scores, before masks", pairs=True),
        slot(
            "mask",
            pair[0],
            f"{ALLOWED.type.kind}[b t {read}]",
            "which keys a query may attend to, besides `causal`",
            takes="mask",
            others=(pair[1], pair[2]),
        ),
        slot(
            "after_softmax",
            port("x", scores),
            scores,
            "applied to the attention weights",
            earlier=causal,
            pairs=True,
        ),
        slot("output", port("x", outputs), outputs, "applied to the output of the heads"),
    )


def _signature(params: AttentionParams, wired: frozenset[str]) -> Signature:
    """Return the signature; without a wired `memory`, it is self-attention and s is t.

    Where positions of `x` and of `memory` are compared, both have the axis t.
    """
    alone = "memory" not in wired
    aligned = not alone and (params.causal or bool({"/position", "/mask"} & wired))
    s = "t" if aligned else "s"
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "queries"),
            port("memory", f"f[b {s} d_memory]?", "the sequence that is attended to; default: x"),
            port("mask", f"mask[b {s}]?", "true at positions that may be attended to"),
            port("bias", f"bias[b t {s}]?", "added to the scores; -inf masks a pair"),
        ),
        outputs=(
            port("y", f"f[b t {params.d_out or 'd_model'}]", "attention output at each position"),
            port("scores", f"f[b {params.heads} t {s}]?", "what enters the softmax, before masks"),
            port("weights", f"f[b {params.heads} t {s}]?", "attention weights, before dropout"),
        ),
        slots=_slots(s, causal=params.causal),
        same={"s": "t", "d_memory": "d_model"} if alone else {},
        behavior={"t": "causal" if params.causal else "full"}
        if alone or aligned
        else {"s": "full"},
        ordered=params.causal or not {"/position", "/mask"}.isdisjoint(wired),
        pairs=("bias", "scores", "weights"),
        earlier={"weights": ("t", s)} if params.causal else {},
    )


def _slot_sizes(params: AttentionParams, sizes: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of heads; without a width of the model, those that do not depend on it."""
    heads = {"heads": params.heads, "groups": params.kv_heads or params.heads}
    try:
        d_k, d_v = head_widths(sizes["d_model"], params.heads, params.d_k, params.d_v)
    except (KeyError, ValueError):
        return heads
    return {**heads, "d_k": d_k, "d_v": d_v}


def _arguments(params: AttentionParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: the heads do not divide the width, or the key and value heads not the heads; or
            `cache` has no effect.
    """
    if params.cache != "keys_values" and not params.causal:
        msg = f"'cache' is '{params.cache}', but without 'causal' no positions are added"
        raise ValueError(msg, "set 'causal' to true, or remove 'cache'")
    d_model, heads = sizes["d_model"], params.heads
    kv_heads = params.kv_heads or heads
    d_k, d_v = head_widths(d_model, heads, params.d_k, params.d_v)
    if heads % kv_heads:
        msg = f"{heads} heads are not divisible by {kv_heads} key and value heads"
        fits = (h for h in range(1, heads + 1) if heads % h == 0)
        raise ValueError(msg, f"use {nearest(kv_heads, fits)} kv_heads")
    flags = {name: getattr(params, f"{name}_bias") for name in PROJECTIONS}
    biases = tuple(n for n, has in flags.items() if (params.bias if has is None else has))
    return {
        "d_model": d_model,
        "d_memory": sizes.get("d_memory", d_model),
        "heads": heads,
        "d_k": d_k,
        "d_v": d_v,
        "kv_heads": kv_heads,
        "causal": params.causal,
        "bias": bool(biases) if len(biases) in (0, len(PROJECTIONS)) else biases,
        "dropout": params.dropout,
        "scale": params.scale,
        **({"cache": params.cache} if params.cache != "keys_values" else {}),
        **({"d_out": params.d_out} if params.d_out not in (None, d_model) else {}),
        **({"softmax": params.softmax} if params.softmax != "softmax" else {}),
        **({"sinks": True} if params.sinks else {}),
    }


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a, weights = arguments, dict[str, tuple[int, ...]]()
    biases = a["bias"] if isinstance(a["bias"], tuple) else PROJECTIONS if a["bias"] else ()
    for name, shape in projections(a).items():
        weights[f"{name}.weight"] = shape
        if name in biases:
            weights[f"{name}.bias"] = shape[:1]
    return weights | ({"sinks": (a["heads"],)} if a.get("sinks") else {})


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the four projections and both products of every head, without regard to masks."""
    a, t = arguments, sizes["t"]
    s = sizes.get("s", t)
    widths = a["d_k"] + a["d_v"]
    of_queries = (
        t * a["heads"] * (a["d_model"] * a["d_k"] + a.get("d_out", a["d_model"]) * a["d_v"])
    )
    of_memory = s * a["d_memory"] * a["kv_heads"] * widths
    work: int = 2 * sizes["b"] * (of_queries + of_memory + a["heads"] * t * s * widths)
    return work


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], wired: frozenset[str]
) -> dict[str, StateTensor]:
    """Return what is stored of all positions, or of the memory, and the masks."""
    a, crossed = arguments, "memory" in wired and "s" in sizes
    rows, length = sizes["b"], sizes.get("s", sizes["t"])
    stored = {
        "key": StateTensor((rows, a["kv_heads"], length, a["d_k"])),
        "value": StateTensor((rows, a["kv_heads"], length, a["d_v"])),
    }
    if a.get("cache") == "inputs":
        stored = {"input": StateTensor((rows, length, a["d_memory"]))}
    if "mask" in wired:
        stored["mask"] = StateTensor((rows, length) if crossed else (rows, length, 1), "bool")
    for name in sorted(wired - {"x", "memory", "mask", "bias"}):
        stored[name] = StateTensor((rows, length, 1), "int64")
    return stored


def _carries(part: Part) -> str:
    """Return why its state cannot lose its oldest positions; empty if it can."""
    stores_inputs = part.arguments.get("cache") == "inputs"
    for slot in ("position", "mask"):
        inner = part.fill.get(slot)
        if not isinstance(inner, Part) or inner.key == ROTARY:
            continue
        if inner.block.carries is None or inner.block.carries(inner):
            return f"{inner.key} depends on positions in the text, not on distances"
    position = part.fill.get("position")
    if position is not None and position.key == ROTARY and not stores_inputs:
        return "its keys are stored as rotated for their positions in the text"
    if stores_inputs and any(slot in part.fill and part.fill[slot].steps for slot in STORED):
        return "a block in 'after_key' or 'after_value' would read positions that were dropped"
    return ""


def _division(arguments: Mapping[str, Any]) -> Division | None:
    """Divide along the heads, unless each has a sink."""
    if arguments.get("sinks"):
        return None
    names = ("heads", "kv_heads")
    return Division(
        parts={name: arguments[name] for name in names},
        counted=names,
        enter=("query", "key", "value"),
        leave=("out",),
    )


def inside(part: Any) -> Inside:
    """Return the operations inside, for drawings: Figure 2 of Vaswani et al. 2017.

    Args:
        part: the `Part` of the use.
    """
    arguments, fill = part.arguments, part.fill
    wired = {port for port in ("memory", "mask", "bias") if port in part.inputs}
    steps = [*_projections(arguments, "memory" if "memory" in wired else "x")]
    ends = {name: name for name in ("value", "key", "query")}
    for name in ends:
        if f"after_{name}" in fill:
            steps.append(_in_slot(f"after_{name}", (name,)))
            ends[name] = f"after_{name}"
    position = fill.get("position")
    rotates = position is not None and "key" not in position.inputs
    if rotates:
        for name in ("key", "query"):
            steps.append(_in_slot("position", (ends[name],), f"position of {name}"))
            ends[name] = f"position of {name}"
    steps.append(_in_heads("scores", (ends["query"], ends["key"]), "matmul", "linear", "Q Kᵀ"))
    scaled = arguments["scale"] not in ("none", 1.0)
    steps += _scores(arguments, fill, ends, wired, term=position is not None and not rotates)
    weights = steps[-1].name
    names = [step.name for step in steps]
    entering = next((names.index(name) for name in ("masked", "weights") if name in names), -1)
    others = {
        "scores": names[entering - 1] if entering > 0 else weights,
        "weights": names[-2] if weights == "dropout" else weights,
    }
    steps.append(_in_heads("read", (weights, ends["value"]), "matmul", "linear", "weights times V"))
    if "output" in fill:
        steps.append(_in_slot("output", ("read",)))
    steps.append(
        Step(
            name="concat",
            reads=(steps[-1].name,),
            title="concat",
            detail=f"{arguments['heads']} × {arguments['d_v']}",
            family="norm",
        )
    )
    width = arguments.get("d_out", arguments["d_model"])
    out = f"to {width}{_bias(arguments, 'out')}"
    steps.append(Step(name="out", reads=("concat",), title="linear", detail=out, family="linear"))
    title = "scaled dot-product attention" if scaled else "dot-product attention"
    return Inside(
        steps=tuple(steps),
        outputs={"y": "out", **{n: step for n, step in others.items() if n in part.outputs}},
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
        yield _in_slot("position", (ends["query"], ends["key"]))
    for name, title, detail in (*adding, *scaling) if early else (*scaling, *adding):
        reads = (last, "position") if title == "add" else (last,)
        yield _in_heads(name, reads, title, "other", detail)
        last = name
    if "score" in fill:
        yield _in_slot("score", (last,))
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
    kind = str(arguments.get("softmax", "softmax")).replace("_", " ")
    if kind != "none":
        sinks = "with sinks" if arguments.get("sinks") else ""
        yield _in_heads("weights", (last,), kind, "softmax", sinks)
        last = "weights"
    if "after_softmax" in fill:
        yield _in_slot("after_softmax", (last,))
        last = "after_softmax"
    if arguments["dropout"]:
        yield _in_heads("dropout", (last,), "dropout", "other", f"{arguments['dropout']:g}")


def _in_slot(slot: str, reads: tuple[str, ...], name: str = "") -> Step:
    """Return the step of what fills a slot."""
    return Step(name=name or slot, reads=reads, slot=slot, frame=_HEADS)


def _in_heads(name: str, reads: tuple[str, ...], title: str, family: str, detail: str = "") -> Step:
    return Step(name=name, reads=reads, title=title, detail=detail, family=family, frame=_HEADS)


def _bias(arguments: Mapping[str, Any], name: str) -> str:
    """Return a note on a projection without a bias."""
    biases = arguments["bias"]
    has = biases if isinstance(biases, bool) else name in biases
    return "" if has else ", no bias"


ATTENTION = BlockType(
    name="attention",
    title="multi-head attention",
    family="attention",
    inside=inside,
    mixes="attention",
    role="attention",
    doc="Multi-head scaled dot-product attention; softmax(q k^T / sqrt(d_k)) v for each head.  "
    "Slots take positions, masks, and functions of queries, keys, values, scores and outputs.",
    source="Vaswani et al. 2017, section 3.2; kv_heads: Ainslie et al. 2023, section 2.2, and "
    "Shazeer 2019, section 3; no scale: Luong et al. 2015, section 3.1; sinks: OpenAI 2025, "
    "gpt-oss, section 2.3",
    params=AttentionParams,
    signature=_signature,
    slot_sizes=_slot_sizes,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    division=_division,
    prunable=Prunable(
        rows={"query": "heads", "key": "kv_heads", "value": "kv_heads"},
        columns=("out.weight",),
        last_axis=("sinks",),
    ),
    module=".attention.multi_head_module:Attention",
    maps={"query": "b t", "key": "b s", "value": "b s", "out": "b t"},
    dropout=("dropout",),
    steps=True,
    unpads=True,
    state=_state,
    carries=_carries,
    example={"heads": 2},
    example_inputs={"x": "f[B T 8]", "memory": "f[B S 6]", "mask": "mask[B S]"},
)
