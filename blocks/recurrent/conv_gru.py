"""Convolutional GRU: a gated unit that updates all positions of a sequence at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...graphs.ir.block_type import Behavior, BlockType, Signature, port
from ...graphs.ir.state_tensor import StateTensor
from ..params import Count, Params


class ConvGRUParams(Params):
    """Params of `conv_gru`."""

    kernel: Count = 3
    """Kernel size in positions; an even kernel reads one more position after its center than before
    it."""


class ConvGRUDecoderParams(ConvGRUParams):
    """Params of `conv_gru_decoder`."""

    cells: Count = 2
    """Number of convolutional GRUs, each with its own weights, applied in sequence per step."""


def _signature(params: ConvGRUParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "state of every position"),
            port("mask", "mask[b t]?", "true at non-padding positions; the others are zeros"),
        ),
        outputs=(port("y", "f[b t d_model]", "next state of every position"),),
        behavior={} if params.kernel == 1 else {"t": "full"},
    )


def _decoder_signature(params: ConvGRUDecoderParams, _: frozenset[str]) -> Signature:
    # A kernel of two reads nothing before its center, and nothing later is written yet.
    reads: Behavior = "causal" if params.kernel > 2 else "pointwise"  # noqa: PLR2004
    return Signature(
        inputs=(
            port("x", "f[b t d_in]", "vectors written to the tape, one before each step"),
            port("memory", "f[b s d_model]", "initial state"),
            port("mask", "mask[b s]?", "true at non-padding positions of the memory"),
        ),
        outputs=(port("y", "f[b t d_model]", "position t of the state after step t"),),
        behavior={"s": "full", "t": reads},
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    width, kernel = arguments["d_model"], arguments["kernel"]
    return {
        "gates.weight": (2 * width, width, kernel),
        "gates.bias": (2 * width,),
        "candidate.weight": (width, width, kernel),
        "candidate.bias": (width,),
    }


def _decoder_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    a = arguments
    written = {"written.weight": (3 * a["d_model"], a["d_in"], a["kernel"])}
    return {
        f"cells.{cell}.{name}": shape
        for cell in range(a["cells"])
        for name, shape in (_weights(a) | written).items()
    }


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    a = arguments
    return 2 * sizes["b"] * sizes["t"] * int(3 * a["d_model"] ** 2 * a["kernel"])


def _decoder_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the convolutions of every step over all max(s, t) positions."""
    a, longer = arguments, max(sizes["s"], sizes["t"])
    per_position: int = 3 * a["d_model"] * (a["d_model"] + a["d_in"]) * a["kernel"] * a["cells"]
    return 2 * sizes["b"] * sizes["t"] * longer * per_position


def _hops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the layers until both ends are connected; each applies two kernels in sequence."""
    before, after = (arguments["kernel"] - 1) // 2, arguments["kernel"] // 2
    reach = 2 * (before or after)
    return max(1, -(-(sizes["t"] - 1) // reach)) if reach else 0


def _decoder_state(
    arguments: Mapping[str, Any], sizes: Mapping[str, int], _: frozenset[str]
) -> dict[str, StateTensor]:
    """Return state and tape at all max(s, t) positions, and which of these are in the memory."""
    rows, longer = sizes["b"], max(sizes["s"], sizes["t"])
    return {
        "state": StateTensor((rows, arguments["d_model"], longer)),
        "tape": StateTensor((rows, arguments["d_in"], longer)),
        "alive": StateTensor((rows, longer), "bool"),
    }


CONV_GRU = BlockType(
    name="conv_gru",
    family="recurrent",
    mixes="convolutional recurrence",
    doc="Convolutional gated recurrent unit; y = u x + (1 - u) tanh(U * (r x) + b) with gates "
    "u, r = sigmoid(U' * x + b').",
    source="Kaiser & Sutskever 2016, section 2; Kaiser & Bengio 2016, section 2",
    params=ConvGRUParams,
    signature=_signature,
    weights=_weights,
    flops=_flops,
    sequential=lambda _, __: 2,
    hops=_hops,
    module=".recurrent.conv_gru_module:ConvGRU",
    example={"kernel": 3},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)

CONV_GRU_DECODER = BlockType(
    name="conv_gru_decoder",
    family="recurrent",
    mixes="convolutional recurrence",
    loops=True,
    doc="Decoder with an active memory: step t writes x_t to position t of a tape p, updates the "
    "entire state s with convolutional GRUs that also read p, and outputs position t of s.",
    source="Kaiser & Bengio 2016, section 3.1, with states of one row (w = 1)",
    params=ConvGRUDecoderParams,
    signature=_decoder_signature,
    weights=_decoder_weights,
    flops=_decoder_flops,
    sequential=lambda arguments, sizes: 2 * sizes["t"] * int(arguments["cells"]),
    module=".recurrent.conv_gru_module:ConvGRUDecoder",
    steps=True,
    state=_decoder_state,
    example={"kernel": 3},
    example_inputs={"x": "f[B T 6]", "memory": "f[B S 8]", "mask": "mask[B S]"},
)
