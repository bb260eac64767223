"""Settings of search, and what a search gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from ...specs.findings import InputError

Penalty = Literal["gnmt", "length", "none"]
"""By what the log probability of a hypothesis is divided, to compare lengths."""


class SampleSettings(BaseModel):
    """How outputs are drawn by chance.

    Source: top_k: Fan et al. 2018, section 5; top_p: Holtzman et al. 2019, section 3.1;
    min_p: Nguyen et al. 2024, section 3.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    temperature: float = Field(default=1.0, gt=0)
    """By which logits are divided: below 1 sharpens, above 1 flattens."""
    top_k: int = Field(default=0, ge=0)
    """Draw among this many best tokens; 0 among all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Draw among the fewest best tokens that hold this much probability together."""
    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Draw among tokens at least this share as probable as the best."""
    seed: int = 1
    """Decides the draws, together with the source: other lines of a batch change nothing."""


class SearchSettings(BaseModel):
    """How outputs are looked for; the defaults are those of the paper.

    Source: Vaswani et al. 2017, section 6.1, https://arxiv.org/abs/1706.03762
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    beam: int = Field(default=4, ge=1)
    """Hypotheses kept for each sentence; 1 takes the best token each time."""
    penalty: Penalty = "gnmt"
    """`gnmt` divides log P by ((5 + length) / 6)^alpha, `length` by length^alpha, `none` by 1."""
    alpha: float = Field(default=0.6, ge=0)
    """Strength of the length penalty; 0 compares bare log probabilities."""
    ends: Literal["any", "best"] = "any"
    """What may end: `any` of the 2 K continuations that are looked at (tensor2tensor); or `best`,
    those among the K best alone, and at the longest length all (Hugging Face's library)."""
    max_factor: float = Field(default=1.0, ge=0)
    """Tokens that an output may have for each token of its input; `max_extra` comes on top."""
    max_extra: int = Field(default=50, ge=0)
    """Tokens by which an output may be longer than that."""
    max_length: int | None = Field(default=None, ge=1)
    """Most tokens of any output, however long its input; null for no such bound."""
    min_length: int = Field(default=0, ge=0)
    """Fewest tokens of an output, its end aside, where there is room for them."""
    nbest: int = Field(default=1, ge=1)
    """Hypotheses returned for each sentence; at most `beam`."""
    groups: int = Field(default=1, ge=1)
    """Groups of equal size that the beam is divided into, which keep apart from one another."""
    diversity: float = Field(default=0.5, ge=0)
    """Taken off a token's log probability for each hypothesis of an earlier group that takes it."""
    no_repeat: int = Field(default=0, ge=0)
    """Tokens in a row of which no run comes twice in an output; 0 for no such rule."""
    repetition_penalty: float = Field(default=1.0, ge=1)
    """By which the log probability of a token is multiplied that the output already has."""
    avoid: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Words or phrases that no output holds; they end and begin at the ends of words."""
    iterations: int = Field(default=10, ge=1)
    """Times that mask-predict writes words; it alone reads this."""
    lengths: int = Field(default=5, ge=1)
    """Lengths of an output that mask-predict tries; it alone reads this."""
    sample: SampleSettings | None = None
    """Draw `beam` outputs by chance instead of searching; null searches."""

    @model_validator(mode="after")
    def _has_room(self) -> SearchSettings:
        if self.nbest > self.beam:
            msg = f"nbest {self.nbest} is more than beam {self.beam} keeps"
            raise ValueError(msg)
        if self.beam % self.groups:
            msg = f"beam {self.beam} does not divide into {self.groups} groups"
            raise ValueError(msg)
        if self.sample is not None and self.groups > 1:
            raise ValueError("samples are independent: leave 'groups' out, or 'sample'")
        return self


def search_settings(search: Mapping[str, Any]) -> SearchSettings:
    """Return settings of search.

    Raises:
        InputError: one is out of its range, or two clash.
    """
    try:
        return SearchSettings(**search)
    except ValidationError as error:
        told = [
            ".".join(map(str, one["loc"])) + ": " * bool(one["loc"]) + one["msg"]
            for one in error.errors()
        ]
        raise InputError(
            "; ".join(told), place="search", help="weft translate --help says what each is"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One possible output of a sentence."""

    tokens: tuple[int, ...]
    """Ids, without `bos` and `eos`."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, `eos` among them."""
    score: float
    """`log_probability` over the length penalty; comparable within one sentence."""
    finished: bool
    """Whether it ended by itself, with `eos`, and not at the longest length."""


def length_penalty(length: Tensor | int, alpha: float, form: Penalty = "gnmt") -> Tensor:
    """Return what log P is divided by; `length` counts `eos`.

    `gnmt`: ((5 + length) / 6)^alpha; `length`: length^alpha; `none`: 1.

    Source: Wu et al. 2016, section 7, https://arxiv.org/abs/1609.08144, without the
    coverage penalty.
    """
    lengths = torch.as_tensor(length, dtype=torch.float32)
    if form == "none":
        return torch.ones_like(lengths)
    return (lengths if form == "length" else (5.0 + lengths) / 6.0) ** alpha
