"""Settings of search, sampling and generation, and the hypotheses they return; no torch."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from ...specs.wording import SettingError
from ..metrics.metric import Metric, SumMetric
from ..metrics.registry import METRICS
from ..metrics.text import Chrf
from ..system.plugins import Selected

Penalty = Literal["gnmt", "length", "none"]
"""Divisor of a hypothesis's log probability, for comparing different lengths."""

TextOf = Callable[[Sequence[int]], str]
"""Takes the tokens of an output; returns its text."""
Item = TypeVar("Item")

BUFFER = 1000
"""Default number of rows that a predictor of texts reads ahead."""
_PAIR = 2
"""Outputs that are needed to compare one with another."""
COLDEST, HOTTEST = 0.01, 100.0
"""Bounds of the temperature.

Below them sampling is greedy, above them nearly uniform; far beyond, float32 overflows.
"""


_CONFIG = ConfigDict(
    frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
)


class SampleSettings(BaseModel):
    """How outputs are sampled.

    Source: top_k: Fan et al. 2018, section 5; top_p: Holtzman et al. 2019, section 3.1;
    min_p: Nguyen et al. 2024, section 3.
    """

    model_config = _CONFIG

    temperature: float = Field(default=1.0, ge=COLDEST, le=HOTTEST)
    """Logits are divided by it: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = Field(default=0, ge=0)
    """Sample from this many most probable tokens; 0 from all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the fewest most probable tokens whose probabilities sum to this much."""
    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Sample from the tokens with at least this fraction of the most probable token's probability.
    """
    seed: int = 1
    """Seed of the random numbers, which depend on it and on the source, not on the batch."""


class Restricting(BaseModel):
    """Settings that restrict the tokens of an output."""

    model_config = _CONFIG

    min_length: int = Field(default=0, ge=0, le=1_000_000)
    """Minimum tokens of an output, not counting the end token; the maximum length takes precedence.
    """
    no_repeat: int = Field(default=0, ge=0, le=1000)
    """Length of n-grams that may not occur twice in an output; 0 for no limit."""
    repetition_penalty: float = Field(default=1.0, ge=1)
    """Factor on the log probability of tokens that the output already contains."""


class Writing(Restricting):
    """Settings of every strategy that writes an output token by token."""

    max_factor: float = Field(default=1.0, ge=0, le=1000)
    """Maximum output length is this many tokens per input token, plus `max_extra`."""
    max_extra: int = Field(default=50, ge=0, le=1_000_000)
    """Tokens added to the maximum output length that `max_factor` gives."""
    max_length: int | None = Field(default=None, ge=1, le=1_000_000)
    """Maximum tokens of an output for any input length; by default there is no further limit."""

    def search(self) -> BeamSearch | Sampling:
        """Return the search that these settings describe."""
        raise NotImplementedError


class Avoiding(BaseModel):
    """Settings of strategies whose outputs are texts."""

    model_config = _CONFIG

    avoid: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Words or phrases that no output may contain; they match complete words only."""

    @field_validator("avoid")
    @classmethod
    def _has_words(cls, avoid: tuple[str, ...]) -> tuple[str, ...]:
        if not all(phrase.strip() for phrase in avoid):
            msg = "'avoid' has a phrase of white space alone"
            raise SettingError(msg, help_="remove the phrase")
        return avoid


class Beaming(BaseModel):
    """Settings of beams.

    Source: Vaswani et al. 2017, section 6.1, https://arxiv.org/abs/1706.03762
    """

    model_config = _CONFIG

    beam: int = Field(default=4, ge=1, le=1000)
    """Hypotheses per sentence; 1 is greedy search."""
    penalty: Penalty = "gnmt"
    """`gnmt` divides log P by ((5 + length) / 6)^alpha, `length` by length^alpha, `none` by 1."""
    alpha: float = Field(default=0.6, ge=0)
    """Strength of the length penalty; 0 compares plain log probabilities."""
    ends: Literal["any", "best"] = "any"
    """Which of the 2 K best continuations may end: `any` of them (tensor2tensor), or only the K
    `best`, and at the maximum length all (Hugging Face Transformers).
    """
    groups: int = Field(default=1, ge=1, le=1000)
    """Number of equal groups in diverse beam search; must divide `beam`."""
    diversity: float = Field(default=0.5, ge=0)
    """Penalty on a token's log probability for each hypothesis of an earlier group that takes it.
    """

    @model_validator(mode="after")
    def _groups_are_equal(self) -> Self:
        if self.beam % self.groups:
            msg = f"'beam' {self.beam} is not divisible by 'groups' {self.groups}"
            raise SettingError(msg, "groups", help_=f"set it to a divisor of {self.beam}")
        return self


class BestOfBeams(Beaming):
    """Settings of beams of which several are returned."""

    nbest: int = Field(default=1, ge=1, le=1000)
    """Hypotheses returned for each sentence; at most `beam`."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        if self.nbest > self.beam:
            msg = f"'nbest' {self.nbest} is greater than 'beam' {self.beam}"
            raise SettingError(msg, "nbest", help_="set it to at most 'beam'")
        return self


class BeamFields(Beaming, Writing):
    """Settings of beam search besides the number of its answers."""

    def search(self) -> BeamSearch:
        """Return the search for one answer."""
        return BeamSearch(**{name: getattr(self, name) for name in BeamFields.model_fields})


class DraftSettings(BeamFields):
    """How an input of the model is written before the answer, which then depends on it.

    Source: Xia et al. 2017, section 3.
    """

    input: str
    """Input of ids that is written: afterwards it has the begin token and the tokens of the draft,
    as while it was written, and the masks of its axis are true there."""
    output: str
    """Output of the model with the logits of the next token of this input."""


class BeamSearch(BestOfBeams, Avoiding, BeamFields):
    """Beam search, whose defaults follow the paper; with a beam of 1, greedy search."""

    @property
    def rows(self) -> int:
        """Hypotheses that are extended together for each source."""
        return self.beam

    def search(self) -> BeamSearch:
        """Return these settings."""
        return self


def _of_sentences(metric: Metric) -> Metric:
    if not isinstance(metric, SumMetric) or "text" not in (metric.takes or ("text",)):
        msg = f"'{metric.name}' has no value for a sentence"
        raise SettingError(msg, help_="name a metric of texts, such as bleu, chrf, ter or wer")
    if metric.column is not None:
        msg = "'column' has no effect: an output is compared with other outputs"
        raise SettingError(msg, "column", help_="remove it")
    return metric


SentenceMetric = Annotated[Metric, Selected(METRICS), AfterValidator(_of_sentences)]
"""A metric of texts that has a value for each sentence."""


class RiskFields(BaseModel):
    """Settings of minimum Bayes risk decoding, besides those of how outputs are written.

    Source: Kumar and Byrne 2004, section 3; Eikema and Aziz 2022, section 4.
    """

    model_config = _CONFIG

    metric: SentenceMetric | None = None
    """Return the outputs with the best expected value of this metric, such as `chrf`, with the
    others as references: minimum Bayes risk decoding."""
    candidates: int | None = Field(default=None, ge=1, le=1000)
    """Outputs that are compared with all others by `metric`, the most probable ones; `null` for
    all."""

    def refuse_more_than(self, outputs: int, nbest: int) -> None:
        """Check the numbers of candidates and of the outputs that are returned.

        Raises:
            SettingError: one is greater than the number of outputs that are written.
        """
        candidates = outputs if self.candidates is None else self.candidates
        bounds = (("candidates", candidates, outputs), ("nbest", nbest, candidates))
        for name, number, most in bounds:
            if number > most:
                what = "'candidates'" if most < outputs else "outputs"
                msg = f"'{name}' {number} is greater than the {most} {what}"
                raise SettingError(msg, name, help_=f"set it to at most {most}")


@dataclass(frozen=True, slots=True)
class Risk:
    """How outputs are chosen by minimum Bayes risk."""

    metric: SumMetric
    candidates: int | None
    nbest: int
    """Outputs that are returned."""
    beams: BeamSearch | None = None
    """Search for candidates besides the outputs with which they are compared."""

    @property
    def rows(self) -> int:
        """Outputs that are written besides those of the search."""
        return 0 if self.beams is None else self.beams.rows


class SampleFields(SampleSettings):
    """Settings of sampling."""

    samples: int = Field(default=1, ge=1, le=1000)
    """Number of texts that are sampled for each row."""


class Sampling(Avoiding, SampleFields, Writing):
    """Sampling of several outputs; scores have the usual length penalty."""

    penalty: ClassVar[Penalty] = "gnmt"
    alpha: ClassVar[float] = 0.6
    ranked: ClassVar[bool] = True
    """Whether outputs of different texts are returned by their scores, best first."""

    @property
    def rows(self) -> int:
        """Outputs that are written together for each source."""
        return self.samples

    @property
    def nbest(self) -> int:
        """Outputs that are returned."""
        return self.samples

    def search(self) -> Sampling:
        """Return these settings."""
        return self


class Draws(Sampling):
    """Sampling whose outputs are all returned, as they were drawn."""

    ranked: ClassVar[bool] = False


class RiskSearch(RiskFields, Avoiding, SampleFields, Writing):
    """Minimum Bayes risk decoding.

    Outputs are compared with samples, each of the same weight, or, without samples, with the
    hypotheses of a beam search, by their probabilities.
    """

    metric: SentenceMetric = Chrf()
    """Metric whose expected value chooses the outputs; each pair of outputs is compared once."""
    samples: int = Field(default=32, ge=0, le=1000)
    """Samples, with which candidates are compared and which are candidates; 0 for none."""
    beam: int = Field(default=0, ge=0, le=1000)
    """Hypotheses of a beam search that are candidates too; without samples, candidates are compared
    with them."""
    nbest: int = Field(default=1, ge=1, le=1000)
    """Outputs that are returned, best first."""

    @model_validator(mode="after")
    def _has_pairs(self) -> Self:
        if max(self.samples, self.beam) < _PAIR:
            msg = f"'samples' {self.samples} and 'beam' {self.beam} leave nothing to choose"
            raise SettingError(msg, "samples", help_="set 'samples' or 'beam' to 2 or more")
        for name in SampleSettings.model_fields if not self.samples else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                msg = f"'{name}' has no effect without samples"
                raise SettingError(msg, name, help_="set 'samples', or remove it")
        self.refuse_more_than(self.samples + self.beam, self.nbest)
        return self

    @property
    def pairs(self) -> int:
        """Largest number of pairs of outputs that are compared for each source."""
        outputs = self.samples + self.beam
        return min(outputs, self.candidates or outputs) * (self.samples or self.beam)

    def search(self) -> BeamSearch | Sampling:
        """Return the search for the outputs with which candidates are compared."""
        if not self.samples:
            return self._beams()
        return Draws(**{name: getattr(self, name) for name in Draws.model_fields})

    def risk(self) -> Risk:
        """Return how outputs are chosen."""
        beams = self._beams() if self.samples and self.beam else None
        return Risk(self.metric, self.candidates, self.nbest, beams)  # type: ignore[arg-type]

    def _beams(self) -> BeamSearch:
        names = {*Writing.model_fields, *Avoiding.model_fields}
        settings = {name: getattr(self, name) for name in names}
        return BeamSearch(beam=self.beam, nbest=self.beam, **settings)


class MaskFields(BaseModel):
    """Settings of mask-predict, which writes all tokens at once and rewrites the least probable."""

    model_config = _CONFIG

    iterations: int = Field(default=10, ge=1, le=1000)
    """Iterations of mask-predict, which rewrites the least probable tokens."""
    lengths: int = Field(default=5, ge=1, le=1000)
    """Candidate lengths per output in mask-predict."""
    max_length: int | None = Field(default=None, ge=1, le=1_000_000)
    """Maximum tokens of an output for any input length; by default there is no further limit."""


def search_of(strategy: object) -> BeamSearch | Sampling:
    """Return the search of a strategy; beam search if it does not write token by token."""
    return strategy.search() if isinstance(strategy, Writing) else BeamSearch()


def risk_of(strategy: object) -> Risk | None:
    """Return how a strategy chooses outputs by minimum Bayes risk; None if it does not."""
    return strategy.risk() if isinstance(strategy, RiskSearch | GenerateSettings) else None


def _zero_or_warm(temperature: float) -> float:
    if 0 < temperature < COLDEST:
        msg = f"must be 0 or at least {COLDEST:g}"
        raise ValueError(msg)
    return temperature


class GenerateSettings(RiskFields, BestOfBeams, Avoiding, Restricting):
    """How continuations are generated: by beams or, above temperature 0, by sampling."""

    max_new: int = Field(default=50, ge=1, le=1_000_000)
    """Maximum number of tokens to generate, not counting the prompt."""
    temperature: Annotated[float, AfterValidator(_zero_or_warm)] = Field(
        default=0.0, ge=0.0, le=HOTTEST
    )
    """Sampling temperature: logits are divided by it; 0 takes the most probable token."""
    top_k: int | None = Field(default=None, ge=1)
    """Sample from this many most probable tokens; by default from all."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    """Sample from the fewest most probable tokens whose probabilities sum to this much."""
    min_p: float = Field(default=0.0, ge=0, lt=1)
    """Sample from the tokens with at least this fraction of the most probable token's probability.
    """
    seed: int = Field(default=1, ge=0, lt=2**63)
    """Seed of the random numbers; they depend on it and on the prompt."""
    samples: int = Field(default=1, ge=1, le=1000)
    """Continuations of each prompt that are sampled."""
    beam: int = Field(default=1, ge=1, le=1000)
    """Hypotheses per prompt; 1 takes the most probable token at each step."""

    @model_validator(mode="after")
    def _has_room(self) -> Self:
        # Of samples that are compared, `_chooses` checks the numbers.
        return self if self.metric and self.temperature else super()._has_room()  # type: ignore[operator]

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if self.samples > 1 and self.temperature == 0:
            msg = "'samples' has no effect at temperature 0"
            raise SettingError(
                msg, "samples", help_="set 'temperature', or give 'beam' and 'nbest'"
            )
        for name in BestOfBeams.model_fields:
            if (
                self.temperature > 0
                and not (self.metric and name == "nbest")
                and getattr(self, name) != type(self).model_fields[name].default
            ):
                msg = f"'{name}' has no effect above temperature 0"
                raise SettingError(msg, name, help_="set 'temperature' to 0, or give 'samples'")
        return self

    @model_validator(mode="after")
    def _chooses(self) -> Self:
        if self.metric is None:
            if self.candidates is not None:
                msg = "'candidates' has no effect without 'metric'"
                raise SettingError(msg, "candidates", help_="set 'metric', such as chrf")
            return self
        if self._outputs < _PAIR:
            msg = "'metric' has no effect on a single output"
            raise SettingError(msg, "metric", help_="set 'temperature' and 'samples', or 'beam'")
        self.refuse_more_than(self._outputs, self.nbest)
        return self

    @property
    def _outputs(self) -> int:
        """Outputs that are written for each prompt."""
        return self.samples if self.temperature > 0 else self.beam

    def search(self) -> BeamSearch | Sampling:
        """Return the search for continuations of `max_new` tokens at most."""
        names = {*Restricting.model_fields, "avoid"}
        if self.temperature == 0:
            names |= BestOfBeams.model_fields.keys()
            settings = self.model_dump(include=names)
            if self.metric is not None:
                settings["nbest"] = self.beam
            return BeamSearch(max_factor=0, max_extra=self.max_new, **settings)
        names |= SampleFields.model_fields.keys() - {"top_k"}
        settings = self.model_dump(include=names) | {"top_k": self.top_k or 0}
        return Draws(max_factor=0, max_extra=self.max_new, **settings)

    def risk(self) -> Risk | None:
        """Return how continuations are chosen; None if they are returned as they are."""
        if self.metric is None:
            return None
        return Risk(self.metric, self.candidates, self.nbest)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One possible output of a sentence."""

    tokens: tuple[int, ...]
    """Ids, without `bos` and `eos`."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, including `eos`."""
    score: float
    """`log_probability` divided by the length penalty; comparable within one sentence."""
    finished: bool
    """Whether it ended with `eos`, rather than at the maximum length."""


def different(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[Item]:
    """Return the first item of each key, in order.

    >>> different(["Hund", "Hut", "Igel"], lambda word: word[0])
    ['Hund', 'Igel']
    """
    first: dict[Hashable, Item] = {}
    for item in items:
        first.setdefault(key(item), item)
    return list(first.values())
