"""Token routing: a router chooses the positions that the blocks after it compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import Params


class TokenRouterParams(Params):
    """Params of `token_router`."""

    capacity: Annotated[float, Field(gt=0.0, le=1.0)] = 0.125
    """Fraction of the positions of each row that are chosen."""
    choose: Literal["threshold", "top"] = "threshold"
    """`threshold`: positions with a probability above 0.5, each on its own, so that the model
    decodes; `balance` then moves their number towards the capacity.  `top`: those with the highest
    probabilities of their row, which depends on later positions, so that the model does not
    decode; the weights fit both."""


def _signature(params: TokenRouterParams, _: frozenset[str]) -> Signature:
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("mask", "mask[b t]?", "true at non-padding positions; others are not chosen"),
        ),
        outputs=(
            port("weight", "f[b t d_model]", "probability of each position, 0 if not chosen"),
            port("mask", "mask[b t]", "true at the chosen positions"),
            port("balance", "loss[]", "cross-entropy of the probabilities and the top positions"),
        ),
        behavior={"t": "full"} if params.choose == "top" else {},
    )


def _arguments(params: TokenRouterParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    return {"d_model": sizes["d_model"], **params.model_dump()}


def _weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"router.weight": (1, arguments["d_model"]), "router.bias": (1,)}


def _flops(arguments: Mapping[str, Any], sizes: Mapping[str, int]) -> int:
    """Count the map of each vector to one number."""
    work: int = 2 * sizes["b"] * sizes["t"] * arguments["d_model"]
    return work


TOKEN_ROUTER = BlockType(
    name="token_router",
    mixes="token routing",
    doc="Choose positions for the blocks of a layer, whose output is multiplied by the weight and "
    "added to x: x + p f(x) if chosen, else x; p = sigmoid(w x + b).  The mask of the chosen "
    "positions is that of the layer's attention.",
    source="Raposo et al. 2024, mixture of depths, sections 3.3 and 3.4; threshold and balance: "
    "section 3.5",
    params=TokenRouterParams,
    signature=_signature,
    arguments=_arguments,
    weights=_weights,
    flops=_flops,
    module=".feed_forward.token_router_module:TokenRouter",
    example={"capacity": 0.5},
    example_inputs={"x": "f[B T 8]", "mask": "mask[B T]"},
)
