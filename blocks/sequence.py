"""Sequence: blocks that make a sequence longer or shorter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..graphs.signature import BlockType, Signature, port
from .fields import Count, Params


class PrependParams(Params):
    """Params of `prepend`."""

    count: Count = 1
    """How many learned vectors go before the sequence."""


def _prepend_signature(params: PrependParams, wired: frozenset[str]) -> Signature:
    """The mask grows with the sequence; it is given only where one is wired."""
    longer = f"t+{params.count}"
    outputs = [port("y", f"f[b {longer} d_model]", "the learned vectors, then the sequence")]
    if "keep" in wired:
        outputs.append(port("keep", f"keep[b {longer}]", "true for the learned vectors"))
    return Signature(
        inputs=(
            port("x", "f[b t d_model]", "vectors"),
            port("keep", "keep[b t]?", "which of them may be read"),
        ),
        outputs=tuple(outputs),
        behavior={"t": "causal"},
    )


def _prepend_weights(arguments: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {"weight": (arguments["count"], arguments["d_model"])}


PREPEND = BlockType(
    name="prepend",
    doc="Learned vectors before a sequence, such as a class token; y = [w; x].",
    source="Devlin et al. 2019, section 3; Dosovitskiy et al. 2021, section 3.1",
    params=PrependParams,
    signature=_prepend_signature,
    weights=_prepend_weights,
    module="sequence:Prepend",
    example={"count": 2},
    example_inputs={"x": "f[B T 8]", "keep": "keep[B T]"},
)
