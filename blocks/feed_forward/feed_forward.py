"""Position-wise feed-forward networks, plain and gated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...graphs.ir.block_type import BlockType, Division, Inside, Signature, Step, port
from ...graphs.ir.lora import Adaptable
from ..params import Activation, Base, Count, Flag, Number, Params, Probability, without_usual


def feed_forward(part: Any) -> Inside:
    """Return the operations of one use of `feed_forward`, a `Part`."""
    steps = tuple(_network(part.arguments, "x"))
    return Inside(steps=steps, outputs={"y": steps[-1].name})


def gated_feed_forward(part: Any) -> Inside:
    """Return the operations of one use of `gated_feed_forward`, a `Part`."""
    a = part.arguments
    steps = [
        _linear("inner", ("x",), a["d_ff"], a),
        _linear("gate", ("x",), a["d_ff"], a),
        Step(name="activated", reads=("gate",), title=a["activation"], detail=_limits(a)),
        Step(name="gated", reads=("inner", "activated"), title="multiply", detail=_offset(a)),
        *_dropout(a, "gated", ""),
    ]
    steps.append(_linear("outer", (steps[-1].name,), a["d_model"], a))
    return Inside(steps=tuple(steps), outputs={"y": "outer"}, rows=(("inner", "gate"),))


def _limits(arguments: Mapping[str, Any]) -> str:
    """Return a note on a bounded gate and hidden layer."""
    limit = arguments.get("limit")
    return "" if limit is None else f"of at most {limit:g}, hidden layer too"


def _offset(arguments: Mapping[str, Any]) -> str:
    """Return a note on what is added to the hidden layer."""
    return f"hidden layer + {arguments['offset']:g}" if arguments.get("offset") else ""


def mixture_of_experts(part: Any) -> Inside:
    """Return the operations of one use of `mixture_of_experts`, a `Part`."""
    a = part.arguments
    scaled = ", divided by their sum" if a.get("renormalize", a["top_k"] > 1) else ""
    limit = f"capacity factor {a['capacity']:g} in training{scaled}"
    chosen = Step(
        name="chosen",
        reads=("p", *(("mask",) if "mask" in part.inputs else ())),
        title=f"top {a['top_k']} of {a['experts']}",
        detail=limit,
    )
    network = [*_network(a, "x", "expert")]
    steps = (
        *network,
        Step(
            name="router",
            reads=("x",),
            title="linear",
            detail=f"router: to {a['experts']}{'' if a.get('router_bias') else ', no bias'}",
            family="linear",
        ),
        Step(name="p", reads=("router",), title=a.get("scores", "softmax"), family="softmax"),
        chosen,
        Step(
            name="sum",
            reads=(network[-1].name, "chosen"),
            title="weighted sum",
            detail="of the chosen experts",
        ),
        Step(
            name="balance",
            reads=("p", "chosen"),
            title="balance",
            detail="share times mean probability",
            family="loss",
        ),
    )
    return Inside(
        steps=steps,
        outputs={"y": "sum", "balance": "balance"},
        frames={"expert": ("experts", a["experts"])},
    )


def _network(arguments: Mapping[str, Any], port: str, frame: str = "") -> Iterator[Step]:
    """Yield two linear maps with an activation and dropout in between."""
    a = arguments
    yield _linear("inner", (port,), a["d_ff"], a, frame)
    yield Step(name="activated", reads=("inner",), title=a["activation"], frame=frame)
    dropout = [*_dropout(a, "activated", frame)]
    yield from dropout
    last = "dropout" if dropout else "activated"
    yield _linear("outer", (last,), a["d_model"], a, frame)


def _dropout(arguments: Mapping[str, Any], last: str, frame: str) -> Iterator[Step]:
    if arguments["dropout"]:
        detail = f"{arguments['dropout']:g}"
        yield Step(name="dropout", reads=(last,), title="dropout", detail=detail, frame=frame)


def _linear(
    name: str, reads: tuple[str, ...], width: int, arguments: Mapping[str, Any], frame: str = ""
) -> Step:
    detail = f"to {width}{'' if arguments['bias'] else ', no bias'}"
    return Step(name=name, reads=reads, title="linear", detail=detail, family="linear", frame=frame)


GATE = frozenset({"limit", "offset"})
"""Params of the gate beside its activation."""


class FeedForwardParams(Adaptable, Params):
    """Params of `feed_forward`."""

    d_ff: Count
    """Width of the hidden layer."""
    activation: Activation = "relu"
    """Activation between the two linear maps; `gelu_tanh` is the tanh approximation of gelu."""
    bias: Flag = True
    """Whether both linear maps have biases."""
    dropout: Probability = 0.0
    """Dropout probability after the activation."""


class GatedFeedForwardParams(Adaptable, Params):
    """Params of `gated_feed_forward`."""

    d_ff: Count
    """Width of the hidden layer; 2/3 of that of `feed_forward` gives as many weights."""
    activation: Activation = "silu"
    """Activation of the gate: SwiGLU, GEGLU, ReGLU, GLU; `gelu_tanh` approximates `gelu`."""
    bias: Flag = True
    """Whether the three linear maps have biases."""
    limit: Base | None = None
    """Largest absolute value of the hidden layer, and largest value of the gate before its
    activation; any value by default."""
    offset: Number = 0.0
    """What is added to the hidden layer before it is multiplied by the gate."""
    dropout: Probability = 0.0
    """Dropout probability of the gated hidden layer."""


def _signature(_: FeedForwardParams | GatedFeedForwardParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "input vectors"),),
        outputs=(port("y", "f[... d_model]", "output vectors, each from its own input only"),),
    )


def _gated_arguments(params: GatedFeedForwardParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments; those of `GATE` only where they have an effect."""
    return {**sizes, **without_usual(params, GATE)}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model, d_ff = arguments["d_model"], arguments["d_ff"]
    weights: dict[str, tuple[int, ...]] = {
        "inner.weight": (d_ff, d_model),
        "outer.weight": (d_model, d_ff),
    }
    if arguments["bias"]:
        weights |= {"inner.bias": (d_ff,), "outer.bias": (d_model,)}
    return weights


def _gated_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    d_model, d_ff = arguments["d_model"], arguments["d_ff"]
    gate: dict[str, tuple[int, ...]] = {"gate.weight": (d_ff, d_model)}
    if arguments["bias"]:
        gate["gate.bias"] = (d_ff,)
    return gate | _weights(arguments)


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count two linear maps."""
    work: int = 4 * sizes["..."] * arguments["d_model"] * arguments["d_ff"]
    return work


def _gated_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count three linear maps."""
    return 3 * _flops(arguments, sizes) // 2


def _division(arguments: Mapping[str, Any]) -> Division:
    """Divide along the hidden width."""
    return Division(parts={"d_ff": arguments["d_ff"]}, enter=("inner",), leave=("outer",))


def _gated_division(arguments: Mapping[str, Any]) -> Division:
    """Divide along the hidden width, which gate and values share."""
    width = {"d_ff": arguments["d_ff"]}
    return Division(parts=width, enter=("gate", "inner"), leave=("outer",))


FEED_FORWARD = BlockType(
    name="feed_forward",
    title="feed-forward",
    family="feed_forward",
    inside=feed_forward,
    role="feed_forward",
    doc="Two linear maps with an activation in between; max(0, x W1 + b1) W2 + b2.",
    source="Vaswani et al. 2017, section 3.3",
    params=FeedForwardParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    division=_division,
    module=".feed_forward.feed_forward_module:FeedForward",
    maps={"inner": "...", "outer": "..."},
    dropout=("dropout",),
    example={"d_ff": 16},
    example_inputs={"x": "f[B T 8]"},
)

GATED_FEED_FORWARD = BlockType(
    name="gated_feed_forward",
    title="gated feed-forward",
    family="feed_forward",
    inside=gated_feed_forward,
    role="gated_feed_forward",
    doc="Gated feed-forward network: a linear map gated by an activated second map, then a map "
    "back; (silu(x Wg) * x W1) W2.  With a limit c and an offset b, the hidden layer is "
    "silu(min(x Wg, c)) * (clip(x W1, -c, c) + b).",
    source="Shazeer 2020, section 2; limit and offset: OpenAI 2025, gpt-oss, section 2.2",
    params=GatedFeedForwardParams,
    signature=_signature,
    arguments=_gated_arguments,
    weights=_gated_weights,
    flops=_gated_flops,
    division=_gated_division,
    module=".feed_forward.feed_forward_module:GatedFeedForward",
    maps={"gate": "...", "inner": "...", "outer": "..."},
    dropout=("dropout",),
    example={"d_ff": 16},
    example_inputs={"x": "f[B T 8]"},
)
