"""Recurrent networks: simple RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import Behavior, BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Flag, Params


class RecurrentParams(Params):
    """Params of `rnn`, `gru` and `lstm`."""

    d_hidden: Count
    """Width of the hidden state, and of the output of one direction."""
    direction: Literal["forward", "backward", "both"] = "forward"
    """`backward` starts at the last position; `both` concatenates the two, 2 * d_hidden wide."""
    bias: Flag = True
    """Whether to add biases, one for the input and one for the state."""


def _directions(direction: str) -> int:
    return 2 if direction == "both" else 1


def _signature(params: RecurrentParams, _: frozenset[str]) -> Signature:
    reads: Behavior = "causal" if params.direction == "forward" else "full"
    width = params.d_hidden * _directions(params.direction)
    return Signature(
        inputs=(
            port("x", "f[b t d_in]", "input vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; the others are skipped"),
        ),
        outputs=(
            port("y", f"f[b t {width}]", "hidden state after each position; zeros if masked"),
        ),
        behavior={"t": reads},
    )


def _weights(arguments: Mapping[str, Any], gates: int) -> dict[str, tuple[int, ...]]:
    rows, suffixes = gates * arguments["d_hidden"], ("", "_reverse")
    weights: dict[str, tuple[int, ...]] = {}
    for suffix in suffixes[: _directions(arguments["direction"])]:
        weights[f"weight_ih{suffix}"] = (rows, arguments["d_in"])
        weights[f"weight_hh{suffix}"] = (rows, arguments["d_hidden"])
        if arguments["bias"]:
            weights |= {f"bias_ih{suffix}": (rows,), f"bias_hh{suffix}": (rows,)}
    return weights


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int], gates: int) -> int:
    """Count the products of input and state with their weights, at every position."""
    d_in, d_hidden = arguments["d_in"], arguments["d_hidden"]
    per_step: int = gates * d_hidden * (d_in + d_hidden) * _directions(arguments["direction"])
    return 2 * sizes["b"] * sizes["t"] * per_step


def _state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], names: tuple[str, ...]
) -> dict[str, StateTensor]:
    """Return one vector for each name."""
    return {name: StateTensor((sizes["b"], arguments["d_hidden"])) for name in names}


def _block(
    name: str, doc: str, source: str, *, gates: int, state_names: tuple[str, ...] = ("hidden",)
) -> BlockType:
    """Return a recurrent block; the three blocks differ only in their cell.

    Args:
        name: name of the block; in upper case, name of its module.
        doc: see `BlockType`.
        source: see `BlockType`.
        gates: number of vectors of the width of the state that the cell computes.
        state_names: names of the vectors that decoding keeps.
    """
    return BlockType(
        name=name,
        title=name.upper(),
        family="recurrent",
        mixes="recurrence",
        onnx_form="_scan=.recurrent.recurrent_onnx:scan",
        doc=doc,
        source=source,
        params=RecurrentParams,
        signature=_signature,
        weights=lambda arguments: _weights(arguments, gates),
        flops=lambda arguments, sizes: _flops(arguments, sizes, gates),
        sequential=lambda _, sizes: sizes["t"],
        module=f".recurrent.recurrent_module:{name.upper()}",
        steps=True,
        state=lambda arguments, sizes, _: _state(arguments, sizes, state_names),
        example={"d_hidden": 6},
        example_inputs={"x": "f[B T 8]"},
    )


RNN = _block(
    "rnn",
    "Simple recurrent network; h_t = tanh(W x_t + U h_{t-1} + b).",
    "Elman 1990",
    gates=1,
)

GRU = _block(
    "gru",
    "Gated recurrent unit; h_t = (1 - z) n + z h_{t-1}, n = tanh(W x_t + r (U h_{t-1})) with "
    "gates r and z.",
    "Cho et al. 2014, section 2.3, with r after U as in torch.nn.GRU",
    gates=3,
)

LSTM = _block(
    "lstm",
    "Long short-term memory; c_t = f c_{t-1} + i g, h_t = o tanh(c_t) with gates i, f and o.",
    "Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000",
    gates=4,
    state_names=("hidden", "cell"),
)
