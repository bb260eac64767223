"""The operations inside of feed-forward networks and mixtures of experts, for drawings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...graphs.ir.block_type import Inside, Step


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
