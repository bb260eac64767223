"""Rotary positions: rotate pairs of features of queries and keys by their positions."""

from __future__ import annotations

from collections.abc import Mapping
from math import log
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Needs, Signature, no_state, port
from ..params import Base, Count, Flag, Params

_SCALED = ("linear", "dynamic", "yarn", "llama3")


class RotaryParams(Params):
    """Params of `rotary`."""

    base: Base = 10_000.0
    """Base of the angles; a larger base means slower rotation."""
    fraction: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Fraction of the features of a head that are rotated: the first ones."""
    pairs: Literal["interleaved", "halves"] = "interleaved"
    """Which features form a pair: `interleaved` 2i and 2i + 1, as in the paper; `halves` i and
    i + K/2 of K rotated features (GPT-NeoX, Llama in Hugging Face's form)."""
    scaling: Literal["none", "linear", "dynamic", "yarn", "llama3"] = "none"
    """How angles are scaled for sequences longer than those of pre-training.  `linear` divides
    positions by `factor`; `dynamic` enlarges the base with the length of the sequence; `yarn` and
    `llama3` divide only the frequencies that complete few turns within `original_length`."""
    factor: Annotated[Annotated[float, Field(ge=1.0, le=1e6)], Needs("scaling", _SCALED)] = 1.0
    """Factor by which sequences become longer; above 1 with `scaling`."""
    original_length: Annotated[Count | None, Needs("scaling", ("dynamic", "yarn", "llama3"))] = None
    """Longest sequence of pre-training, in positions; required with these values of `scaling`."""
    slow_turns: Annotated[Base, Needs("scaling", ("yarn", "llama3"))] = 1.0
    """Frequencies with fewer turns within `original_length` are divided by `factor`."""
    fast_turns: Annotated[Base, Needs("scaling", ("yarn", "llama3"))] = 32.0
    """Frequencies with more turns stay as they are; 32 for YaRN, 4 for Llama 3.  Between both, the
    two are interpolated."""
    magnitude: Annotated[Base | None, Needs("scaling", ("yarn",))] = None
    """Factor of rotated queries and keys; 0.1 ln(factor) + 1 by default."""
    rounded: Annotated[Flag, Needs("scaling", ("yarn",))] = True
    """Whether the first and the last interpolated pair are rounded to whole numbers."""


def _signature(params: RotaryParams, _: frozenset[str]) -> Signature:
    """Return the signature; with `dynamic`, angles depend on the number of positions."""
    full = params.scaling == "dynamic"
    return Signature(
        inputs=(port("query", "f[b heads t d_k]", "queries; keys are rotated alike"),),
        outputs=(port("y", "f[b heads t d_k]", "rotated queries"),),
        behavior={"t": "full"} if full else {},
    )


def _arguments(params: RotaryParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: the number of rotated features is odd, or scaling lacks a param or has a base
            that it cannot use.
    """
    rotated = int(sizes["d_k"] * params.fraction)
    if rotated < 2 or rotated % 2:  # noqa: PLR2004 - features come in pairs
        msg = f"{rotated} of {sizes['d_k']} features are rotated, but they come in pairs"
        raise ValueError(msg, "use an even width of the heads, or change 'fraction'")
    if params.scaling != "none" and params.factor == 1.0:
        msg = f"scaling is '{params.scaling}', but factor is 1"
        raise ValueError(msg, "set factor above 1, or remove 'scaling'")
    if params.scaling not in ("none", "linear") and params.original_length is None:
        msg = f"scaling '{params.scaling}' needs original_length"
        raise ValueError(msg, "set original_length to the longest sequence of pre-training")
    if params.scaling in ("yarn", "llama3") and params.slow_turns >= params.fast_turns:
        msg = f"slow_turns is {params.slow_turns:g}, but fast_turns is {params.fast_turns:g}"
        raise ValueError(msg, "set slow_turns below fast_turns")
    if params.scaling == "yarn" and params.base <= 1.0:
        msg = f"scaling 'yarn' finds pairs by their frequencies, but base is {params.base:g}"
        raise ValueError(msg, "set base above 1")
    defaults = RotaryParams().model_dump()
    if params.scaling == "yarn" and params.magnitude == 0.1 * log(params.factor) + 1:
        defaults["magnitude"] = params.magnitude
    changed = {k: v for k, v in params.model_dump().items() if v != defaults[k]}
    return {"width": rotated, **{k: v for k, v in changed.items() if k != "fraction"}}


ROTARY = BlockType(
    name="rotary",
    title="rotary",
    family="position",
    mixes="",
    fills="position",
    doc="Rotate pairs of features of queries and keys by multiples of their positions, in the slot "
    "`position` or as a node of attention written out; the angle of pair i is pos * base^(-2i/K).",
    source="Su et al. 2021, section 3.4; fraction: Black et al. 2022, section 2; linear: Chen et "
    "al. 2023, section 2.3; dynamic, yarn: Peng et al. 2023, sections 2.3, 3.3 and 3.4; llama3: "
    "Grattafiori et al. 2024, section 3.2",
    params=RotaryParams,
    signature=_signature,
    arguments=_arguments,
    steps=True,
    state=no_state,
    module=".position.rotary_module:Rotary",
    example={"base": 500_000.0},
    example_inputs={"query": "f[B 2 T 4]"},
)
