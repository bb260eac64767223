"""Noise on ids: masked, dropped and replaced tokens, and tokens drawn from a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from ...graphs.ir.block_type import BlockType, Signature, port
from ..params import BEGIN, UNKNOWN, Count, Flag, Params, Probability, Several, only_params
from .structure import refuse_wrong_ids

FIRST = 4
"""First id after the special tokens of Weft's tokenizers."""
Share = Annotated[float, Field(ge=0.0, le=1.0)]
"""A part of a whole."""


class MaskTokensParams(Params):
    """Params of `mask_tokens`."""

    rate: Annotated[float, Field(gt=0.0, lt=1.0)] | Literal["uniform"] = 0.15
    """Probability of each token to be selected; `uniform`: in a row of n tokens 1 to n of them,
    each number with the same probability (mask-predict)."""
    mask_id: Several = BEGIN
    """Id that stands for a masked token; by default the beginning token."""
    random: Share = 0.1
    """Part of the selected tokens that become a random token instead."""
    keep: Share = 0.1
    """Part of the selected tokens that stay as they are."""
    first: Count = FIRST
    """Ids below it, the special tokens, are never selected and never drawn."""


def _mask_signature(params: MaskTokensParams, _: frozenset[str]) -> Signature:
    """Return the signature; a uniform number depends on the length of the row."""
    axes = "b t" if params.rate == "uniform" else "..."
    return Signature(
        inputs=(port("ids", f"ids:v[{axes}]", "ids without noise"),),
        outputs=(
            port("y", f"ids:v[{axes}]", "ids with noise"),
            port("selected", f"mask[{axes}]", "true at the selected tokens, which are predicted"),
        ),
        behavior={"t": "full"} if params.rate == "uniform" else {},
        by_row=True,
    )


def _mask_arguments(params: MaskTokensParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the constructor arguments.

    Raises:
        ValueError: an id is not in the vocabulary, or the parts exceed the whole.
    """
    refuse_wrong_ids(params, sizes["v"], "mask_id", "first")
    if params.random + params.keep > 1.0:
        msg = f"random {params.random} and keep {params.keep} are more than 1 together"
        raise ValueError(msg, "use parts such as 0.1 and 0.1; the rest is masked")
    return {**sizes, **params.model_dump()}


MASK_TOKENS = BlockType(
    name="mask_tokens",
    mixes="",
    doc="Select tokens to be predicted, and replace most of them by a mask token and some by "
    "random tokens (masked language model). Evaluation has noise too, the same each time.",
    source="Devlin et al. 2019, section 3.1; uniform: Ghazvininejad et al. 2019, section 2.2",
    params=MaskTokensParams,
    signature=_mask_signature,
    arguments=_mask_arguments,
    draws=True,
    module=".noise.corrupt_module:MaskTokens",
    example={"rate": 0.5},
    example_inputs={"ids": "ids:11[B T]"},
)


class DropTokensParams(Params):
    """Params of `drop_tokens`."""

    rate: Probability = 0.1
    """Probability of each token to be dropped."""
    drop_id: Several = UNKNOWN
    """Id that replaces a dropped token; by default the unknown token."""
    first: Count = FIRST
    """Ids below it, the special tokens, are never dropped."""
    in_evaluation: Flag = False
    """Whether tokens are also dropped in evaluation, the same each time, as a model needs that
    learns to restore them; as regularization, they are dropped only in training."""


def _ids_signature(_: Params, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("ids", "ids:v[...]", "ids without noise"),),
        outputs=(port("y", "ids:v[...]", "ids with noise"),),
        by_row=True,
    )


def _drop_arguments(params: DropTokensParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    refuse_wrong_ids(params, sizes["v"], "drop_id", "first")
    return params.model_dump()


DROP_TOKENS = BlockType(
    name="drop_tokens",
    mixes="",
    doc="Word dropout: replace tokens by one id with a probability; the length stays.",
    source="Bowman et al. 2016, section 3.1; Gal & Ghahramani 2016, section 4",
    params=DropTokensParams,
    signature=_ids_signature,
    arguments=_drop_arguments,
    draws=True,
    module=".noise.corrupt_module:DropTokens",
    example={"rate": 0.5, "in_evaluation": True},
    example_inputs={"ids": "ids:11[B T]"},
)


class ReplaceTokensParams(Params):
    """Params of `replace_tokens`."""

    rate: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.15
    """Probability of each token to be replaced."""
    first: Count = FIRST
    """Ids below it, the special tokens, are never replaced and never drawn."""


def _replace_signature(_: ReplaceTokensParams, __: frozenset[str]) -> Signature:
    return Signature(
        inputs=(port("ids", "ids:v[...]", "ids without noise"),),
        outputs=(
            port("y", "ids:v[...]", "ids with noise"),
            port("replaced", "mask[...]", "true where the id is another one now"),
        ),
        by_row=True,
    )


def _replace_arguments(params: ReplaceTokensParams, sizes: Mapping[str, Any]) -> dict[str, Any]:
    refuse_wrong_ids(params, sizes["v"], "first")
    return {**sizes, **params.model_dump()}


REPLACE_TOKENS = BlockType(
    name="replace_tokens",
    mixes="",
    doc="Replace tokens by tokens drawn uniformly from the vocabulary, with a probability. "
    "Evaluation has noise too, the same each time.",
    source="Clark et al. 2020, section 3.3; Collobert et al. 2011, section 4.2",
    params=ReplaceTokensParams,
    signature=_replace_signature,
    arguments=_replace_arguments,
    draws=True,
    module=".noise.corrupt_module:ReplaceTokens",
    example={"rate": 0.5},
    example_inputs={"ids": "ids:11[B T]"},
)


class SampleTokensParams(Params):
    """Params of `sample_tokens`."""

    temperature: Annotated[float, Field(gt=0.0, le=1e6)] = 1.0
    """Divides the logits."""


def _sample_signature(_: SampleTokensParams, wired: frozenset[str]) -> Signature:
    """Return the signature; ids and where to replace them go together."""
    optional = "" if wired & {"ids", "mask"} else "?"
    return Signature(
        inputs=(
            port("logits", "f[... v]", "unnormalized scores of the ids"),
            port("ids", f"ids:v[...]{optional}", "ids where nothing is drawn; needs 'mask'"),
            port("mask", f"mask[...]{optional}", "true where an id is drawn; needs 'ids'"),
        ),
        outputs=(port("y", "ids:v[...]", "drawn ids, without a gradient"),),
        by_row=True,
    )


SAMPLE_TOKENS = BlockType(
    name="sample_tokens",
    mixes="",
    doc="Draw ids from the distribution of logits, without a gradient, everywhere or where a mask "
    "is true; y ~ softmax(logits / temperature).",
    source="Clark et al. 2020, section 2",
    params=SampleTokensParams,
    signature=_sample_signature,
    arguments=only_params,
    draws=True,
    module=".noise.corrupt_module:SampleTokens",
    example={},
    example_inputs={"logits": "f[B T 11]", "ids": "ids:11[B T]", "mask": "mask[B T]"},
)
