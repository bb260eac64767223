"""Embeddings of tokens, and absolute position encodings: sinusoidal, learned, and of the step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from ...graphs.ir.block_type import BlockType, NoParams, Signature, no_state, port
from ..params import Count, Flag, Params, Probability, Several, no_arguments


class EmbeddingParams(Params):
    """Params of `embedding`."""

    d_model: Count
    """Width of the vectors."""
    scale: Literal["none", "sqrt"] = "none"
    """`sqrt`: multiply every vector by sqrt(d_model)."""
    frozen: Flag = False
    """Whether to freeze the table in training, including for weights tied to it."""


def _embedding_signature(params: EmbeddingParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("ids", "ids:vocab[...]", "token ids"),),
        outputs=(port("y", f"f[... {params.d_model}]", "one vector per id"),),
    )


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["vocab"], arguments["d_model"])}


EMBEDDING = BlockType(
    name="embedding",
    family="embedding",
    adapts=("ids", "f"),
    role="embedding",
    doc="Look up a learned vector for each id; y = scale * weight[ids].",
    source="Vaswani et al. 2017, section 3.4",
    params=EmbeddingParams,
    signature=_embedding_signature,
    weights=_weights,
    fans={"weight": "in out"},
    multiplier=lambda arguments: arguments["d_model"] ** (0.5 * (arguments["scale"] == "sqrt")),
    module=".position.position_module:Embedding",
    example={"d_model": 8, "scale": "sqrt"},
    example_inputs={"ids": "ids:11[B T]"},
)


class SinusoidalPositionParams(Params):
    """Params of `sinusoidal_position`."""

    dropout: Probability = 0.0
    """Dropout probability of the sum."""
    form: Literal["interleaved", "concatenated", "halves"] = "interleaved"
    """`interleaved`: sin, cos, sin, cos, as in the paper.  `concatenated`: all sines, then all
    cosines, with slightly different wavelengths, as in the released code.  `halves`: the paper's
    wavelengths, all sines first (Marian)."""
    first: Several = 0
    """Number of the first position; fairseq counts from the id of padding + 1."""


class LearnedPositionParams(Params):
    """Params of `learned_position`."""

    max_length: Count = 1024
    """Number of positions in the table; longer input is an error."""
    dropout: Probability = 0.0
    """Dropout probability of the sum."""


def _signature(_: Params, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[b t d_model]", "input vectors"),),
        outputs=(port("y", "f[b t d_model]", "input vectors plus position encodings"),),
    )


def check_even(sizes: Mapping[str, Any]) -> None:
    """Raise if d_model is odd.

    Raises:
        ValueError: d_model is odd; the second argument says how to fix it.
    """
    if sizes["d_model"] % 2:
        msg = f"width {sizes['d_model']} is odd, but sines and cosines come in pairs"
        raise ValueError(msg, "use an even d_model")


def _sinusoidal_arguments(
    params: SinusoidalPositionParams, sizes: Mapping[str, Any]
) -> dict[str, Any]:
    check_even(sizes)
    return params.model_dump()


def _learned_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["max_length"], arguments["d_model"])}


SINUSOIDAL_POSITION = BlockType(
    name="sinusoidal_position",
    title="sinusoidal positions",
    family="position",
    role="position_table",
    doc="Add fixed sinusoidal position encodings; PE(pos, 2i) = sin(pos / 10000^(2i/d)), "
    "PE(pos, 2i+1) = cos(pos / 10000^(2i/d)).",
    source="Vaswani et al. 2017, section 3.5",
    params=SinusoidalPositionParams,
    signature=_signature,
    arguments=_sinusoidal_arguments,
    module=".position.position_module:SinusoidalPosition",
    dropout=("dropout",),
    steps=True,
    state=no_state,
    example={},
    example_inputs={"x": "f[B T 8]"},
)


def _longest(arguments: Mapping[str, Any]) -> int:
    """Return the number of positions that have a vector."""
    length: int = arguments["max_length"]
    return length


LEARNED_POSITION = BlockType(
    name="learned_position",
    title="learned positions",
    family="position",
    role="position_table",
    max_length=_longest,
    doc="Add a learned vector for each position; y = x + weight[position].",
    source="Vaswani et al. 2017, table 3 row E; Gehring et al. 2017, section 3.1",
    params=LearnedPositionParams,
    signature=_signature,
    weights=_learned_weights,
    fans={"weight": "in out"},
    module=".position.position_module:LearnedPosition",
    dropout=("dropout",),
    steps=True,
    state=no_state,
    example={"max_length": 32},
    example_inputs={"x": "f[B T 8]"},
)


def _step_signature(_: NoParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[... d_model]", "input vectors"),
            port("clock", "f[... d_model]", "number of previous steps, in every element"),
        ),
        outputs=(
            port("y", "f[... d_model]", "input vectors plus the encoding of this step"),
            port("clock", "f[... d_model]", "the input clock plus 1"),
        ),
    )


STEP_POSITION = BlockType(
    name="step_position",
    family="position",
    doc="Add a sinusoidal encoding of the number of this step, counted from 1, and increment the "
    "clock; y = x + PE(clock + 1).",
    source="Dehghani et al. 2019, section 2.1, equations 6 and 7",
    signature=_step_signature,
    arguments=no_arguments,
    module=".position.position_module:StepPosition",
    example_inputs={"x": "f[B T 8]", "clock": "f[B T 8]"},
)
