"""Residual sub-layers, norms, linear maps and dropout: block types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from ...graphs.ir.block_type import BlockType, Needs, Port, Signature, Slot, port
from ...graphs.ir.lora import Adaptable
from ...graphs.ir.value_type import parse_type
from ..params import Count, Epsilon, Flag, Number, Params, Probability, only_params

LAYER_NORM_EPS = 1e-6
"""Default value added to the variance, as in the released code of the paper."""


class LayerNormParams(Params):
    """Params of `layer_norm`."""

    eps: Epsilon = LAYER_NORM_EPS
    """Added to the variance."""
    weight: Flag = True
    """Whether the vectors are scaled by a learned weight; without one, they are not shifted."""
    bias: Annotated[Flag, Needs("weight", (True,))] = True
    """Whether the vectors are shifted by a learned bias."""


class RmsNormParams(Params):
    """Params of `rms_norm`."""

    eps: Epsilon = LAYER_NORM_EPS
    """Added to the mean square."""
    weight: Flag = True
    """Whether the vectors are scaled by a learned weight."""


def _signature(_: LayerNormParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "input vectors"),),
        outputs=(port("y", "f[... d_model]", "normalized, scaled and shifted vectors"),),
        scale="normalized",
    )


def _rms_signature(_: RmsNormParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "input vectors"),),
        outputs=(port("y", "f[... d_model]", "normalized and scaled vectors"),),
        scale="normalized",
    )


def _rms_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["d_model"],)} if arguments.get("weight", True) else {}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    weights = _rms_weights(arguments)
    if weights and arguments.get("bias", True):
        weights["bias"] = weights["weight"]
    return weights


LAYER_NORM = BlockType(
    name="layer_norm",
    family="norm",
    role="layer_norm",
    doc="Layer normalization of each vector; weight * (x - mean) / sqrt(variance + eps) + bias.",
    source="Ba et al. 2016, section 3",
    params=LayerNormParams,
    signature=_signature,
    weights=_weights,
    module=".residual.sublayer_module:LayerNorm",
    example={},
    example_inputs={"x": "f[B T 8]"},
)

RMS_NORM = BlockType(
    name="rms_norm",
    title="RMS norm",
    family="norm",
    role="rms_norm",
    doc="RMS normalization of each vector; weight * x / sqrt(mean(x^2) + eps).",
    source="Zhang and Sennrich 2019, section 4",
    params=RmsNormParams,
    signature=_rms_signature,
    weights=_rms_weights,
    module=".residual.sublayer_module:RMSNorm",
    example={},
    example_inputs={"x": "f[B T 8]"},
)


_NORMED = Needs("norm", ("layer_norm", "rms_norm"))


class ResidualParams(Params):
    """Params of blocks with a residual path."""

    dropout: Probability = 0.0
    """Dropout probability of the sub-layer's output."""
    eps: Annotated[Epsilon, _NORMED] = LAYER_NORM_EPS
    """Term that the norm adds before it takes the square root."""
    norm: Literal["layer_norm", "rms_norm", "none"] = "layer_norm"
    """Type of the norm; `none` omits it."""
    norm_bias: Annotated[Flag, Needs("norm", ("layer_norm",))] = True
    """Whether the layer norm has a bias."""
    residual: Literal["plain", "rezero", "layer_scale"] = "plain"
    """Scale of the sub-layer's output.  `rezero` multiplies it by a learned scalar that starts at
    0, `layer_scale` by a learned vector whose elements start at `residual_start`."""
    residual_start: Annotated[Number, Needs("residual", ("layer_scale",))] = 0.1
    """Initial value of `layer_scale`; 0.1 for up to 18 layers, 1e-5 for up to 24, then 1e-6."""
    drop_path: Probability = 0.0
    """Probability, in training, of adding nothing to a row of the batch."""


class OrderParams(Params):
    """The param of `sublayer` that comes before the others."""

    order: Annotated[Literal["post", "pre", "sandwich"], _NORMED] = "post"
    """`post`: norm(x + dropout(f(x))), as in the paper. `pre`: x + dropout(f(norm(x))).
    `sandwich`: x + dropout(norm(f(norm(x)))), where the outer norm is named `after`."""


class SublayerParams(ResidualParams, OrderParams):
    """Params of `sublayer`."""


class ParallelSublayerParams(ResidualParams):
    """Params of `parallel_sublayer`."""


class LinearParams(Adaptable, Params):
    """Params of `linear`."""

    d_out: Count
    """Width of the output."""
    bias: Flag = True
    """Whether to add a bias."""


class DropoutParams(Params):
    """Params of `dropout`."""

    dropout: Probability
    """Probability of dropping an element in training."""


def _slot(name: str, doc: str) -> Slot:
    vectors, _optional = parse_type("f[... d_model]", {})
    return Slot(name, Port("x", vectors), Port("y", vectors), doc)


def _scale(norm: str, order: str) -> Literal["", "normalized", "accumulated"]:
    """Return what the norm of a residual block says of the magnitude of its output."""
    if norm == "none":
        return ""
    return "normalized" if order == "post" else "accumulated"


def _sublayer_signature(params: SublayerParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "vectors"),),
        outputs=(port("y", "f[... d_model]", "vectors with the output of `f` added"),),
        slots=(_slot("f", "the sub-layer; it receives the other wires"),),
        by_row=params.drop_path > 0,
        scale=_scale(params.norm, params.order),
    )


def _sublayer_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    weights: dict[str, tuple[int, ...]] = {}
    for name in ("norm", "after") if arguments.get("order") == "sandwich" else ("norm",):
        if arguments["norm"] != "none":
            block = RMS_NORM if arguments["norm"] == "rms_norm" else LAYER_NORM
            shapes = block.weights({**arguments, "bias": arguments["norm_bias"]}).items()
            weights |= {f"{name}.{weight}": shape for weight, shape in shapes}
    if arguments["residual"] != "plain":
        weights["gain"] = (1 if arguments["residual"] == "rezero" else arguments["d_model"],)
    return weights


def _bands(params: ResidualParams) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the bands that a diagram draws before and after the block in the slot."""
    norm = "RMS norm" if params.norm == "rms_norm" else "norm"
    add = "add" if params.residual == "plain" else "scale & add"
    order = params.order if isinstance(params, SublayerParams) else "pre"
    if params.norm == "none":
        return (), (add,)
    if order == "post":
        return (), (f"{add} & {norm}",)
    return (norm,), (f"{norm} & {add}" if order == "sandwich" else add,)


SUBLAYER = BlockType(
    name="sublayer",
    role="residual",
    bands=_bands,
    doc="Residual path, dropout and a norm around a sub-layer; norm(x + dropout(f(x))).",
    source="Vaswani et al. 2017, section 3.1; pre order: Xiong et al. 2020; sandwich: Ding et al. "
    "2021, section 2.4; rezero: Bachlechner et al. 2020, section 3; layer_scale: Touvron et al. "
    "2021, section 2; drop_path: Huang et al. 2016, section 3",
    params=SublayerParams,
    signature=_sublayer_signature,
    weights=_sublayer_weights,
    module=".residual.sublayer_module:Sublayer",
    dropout=("dropout", "drop_path"),
    example={"order": "post"},
    example_inputs={"x": "f[B T 8]"},
    example_fill={"f": {"use": "attention@1", "params": {"heads": 2, "causal": True}}},
)


def _parallel_signature(params: ParallelSublayerParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_model]", "vectors"),),
        outputs=(port("y", "f[... d_model]", "vectors with the outputs of `f` and `g` added"),),
        slots=(
            _slot("f", "one sub-layer; it receives the other wires that it has ports for"),
            _slot("g", "the other sub-layer; it reads the same vectors as `f`"),
        ),
        by_row=params.drop_path > 0,
        scale=_scale(params.norm, "pre"),
    )


PARALLEL_SUBLAYER = BlockType(
    name="parallel_sublayer",
    bands=_bands,
    doc="Two sub-layers side by side on one residual path; x + dropout(f(norm(x)) + g(norm(x))).",
    source="Chowdhery et al. 2022, section 2; Wang and Komatsuzaki 2021 (GPT-J)",
    params=ParallelSublayerParams,
    signature=_parallel_signature,
    weights=_sublayer_weights,
    module=".residual.sublayer_module:ParallelSublayer",
    dropout=("dropout", "drop_path"),
    example={},
    example_inputs={"x": "f[B T 8]"},
    example_fill={
        "f": {"use": "attention@1", "params": {"heads": 2, "causal": True}},
        "g": {"use": "feed_forward@1", "params": {"d_ff": 16}},
    },
)


def _linear_signature(params: LinearParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[... d_in]", "vectors"),),
        outputs=(port("y", f"f[... {params.d_out}]", "vectors of another width"),),
    )


def _linear_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    weight: dict[str, tuple[int, ...]] = {"weight": (arguments["d_out"], arguments["d_in"])}
    return weight | ({"bias": (arguments["d_out"],)} if arguments["bias"] else {})


def _linear_flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    work: int = 2 * sizes["..."] * arguments["d_in"] * arguments["d_out"]
    return work


LINEAR = BlockType(
    name="linear",
    family="linear",
    adapts=("f", "f"),
    role="linear",
    doc="Linear map; x W^T + b.",
    source="Vaswani et al. 2017, section 3.4",
    params=LinearParams,
    signature=_linear_signature,
    weights=_linear_weights,
    flops=_linear_flops,
    module=".residual.sublayer_module:Linear",
    is_linear_map=True,
    maps={"": "..."},
    example={"d_out": 6},
    example_inputs={"x": "f[B T 8]"},
)


def _dropout_signature(_: DropoutParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("x", "f[...]", "vectors"),),
        outputs=(port("y", "f[...]", "vectors with some elements dropped in training"),),
        factors=("x",),
    )


DROPOUT = BlockType(
    name="dropout",
    role="dropout",
    doc="Drop elements with a probability in training, and scale up the rest.",
    source="Srivastava et al. 2014; Vaswani et al. 2017, section 5.4",
    params=DropoutParams,
    signature=_dropout_signature,
    arguments=only_params,
    module=".kernels.dropout:Dropout",
    dropout=("dropout",),
    example={"dropout": 0.1},
    example_inputs={"x": "f[B T 8]"},
)
