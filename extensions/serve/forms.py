"""Request and response models as JSON; the OpenAPI description is generated from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ...plugin import BeamSearch, MaskFields, PredictorSettings, SampleFields, changed_predictor
from .limits import Limits

_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _unicode(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("an unpaired surrogate is not a character") from error
    return text


Unicode = Annotated[str, AfterValidator(_unicode)]
"""Text that can be encoded as UTF-8; JSON escapes may also spell unpaired surrogates."""


class RequestProblem(BaseModel):
    """One error in a request."""

    model_config = _CONFIG

    place: str = Field(examples=["/search/beam"])
    """JSON pointer into the body; empty for the request as a whole."""
    problem: str = Field(examples=["64 is more than the limit of 16"])
    """The error."""
    help: str = Field(default="", examples=["set at most 16"])
    """How to fix it."""


class Problems(BaseModel):
    """All errors of a request."""

    model_config = _CONFIG

    error: str = Field(examples=["64 is more than the limit of 16"])
    """The first error."""
    errors: list[RequestProblem]
    """Every error."""


class Text(BaseModel):
    """One text to translate, with requirements on its translation."""

    model_config = _CONFIG

    text: Unicode = Field(examples=["A dog runs."])
    """One sentence; an empty text gets no translation."""
    begin: Unicode = Field(default="", examples=["Ein"])
    """Text that the translation must begin with."""
    include: tuple[Annotated[Unicode, Field(min_length=1)], ...] = Field(
        default=(), examples=[["Hund"]]
    )
    """Words or phrases that the translation must contain."""

    @property
    def row(self) -> Mapping[str, Any]:
        """The row that the predictor reads."""
        return {"source": self.text, "prefix": self.begin, "include": self.include}


def _without_defaults(schema: dict[str, Any]) -> None:
    """Remove the class's defaults from a schema, because the server's settings apply instead."""
    for field in schema["properties"].values():
        field.pop("default", None)


class RequestOptions(MaskFields, SampleFields, BeamSearch):
    """Search settings of a request; the server's settings apply to omitted ones.

    Those of another search than the server's replace it: `temperature` samples, and `metric`
    chooses by minimum Bayes risk.
    """

    model_config = ConfigDict(
        json_schema_extra=_without_defaults, json_schema_serialization_defaults_required=False
    )

    type: Literal["beam", "greedy", "sample", "mbr"] | None = None
    """Another search than the server's."""
    samples: int = Field(default=1, ge=0, le=1000)
    """Number of texts that are sampled for each row; 0 for minimum Bayes risk among beams."""
    metric: Literal["bleu", "bleu_lc", "chrf"] | None = None
    """Metric whose expected value chooses among the samples or beams. Others take too long for
    long texts."""
    candidates: int | None = Field(default=None, ge=1, le=1000)
    """Outputs that are compared with all others by `metric`, the most probable ones."""

    @model_validator(mode="after")
    def _has_room(self) -> RequestOptions:
        # Conflicts can be checked only after merging with the server's settings.
        return self

    @model_validator(mode="after")
    def _groups_are_equal(self) -> RequestOptions:
        return self


def _as_list(value: Any) -> Any:
    """Convert one text to a list of one text, and strings to text objects."""
    many = value if isinstance(value, list) else [value]
    return [{"text": entry} if isinstance(entry, str) else entry for entry in many]


class Ask(BaseModel):
    """Texts to translate, and search settings."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [
                {"source": "A dog runs."},
                {
                    "source": ["A dog runs.", {"text": "Two men.", "begin": "Zwei"}],
                    "search": {"beam": 8, "nbest": 2, "avoid": ["Katze"]},
                },
            ]
        },
    )

    source: Annotated[
        list[Text],
        BeforeValidator(_as_list, json_schema_input_type=str | Text | list[str | Text]),
    ]
    """One text or a list of texts, each a string or an object."""
    search: RequestOptions = RequestOptions()
    """Search settings; the server's settings apply to omitted ones."""
    alignment: bool = False
    """Whether to return the alignment of source tokens to output tokens."""
    stream: bool = False
    """Whether to send each result on a line of its own as soon as it is done."""


class Output(BaseModel):
    """One possible translation."""

    model_config = _CONFIG

    text: str = Field(examples=["Ein Hund läuft."])
    """The translation."""
    score: float | None = Field(examples=[-0.41])
    """Log probability divided by the length penalty; comparable among the outputs of one text."""
    log_probability: float | None = Field(examples=[-0.55])
    """Natural logarithm of the probability of its tokens, including the end token."""
    finished: bool
    """Whether it ended by itself, rather than at the maximum length."""
    tokens: list[str] = Field(examples=[["\u2581Ein", "\u2581Hund", "\u2581läuft", "."]])
    """Pieces of the tokenizer; U+2581 stands for a space."""
    alignment: list[tuple[int, int]] | None = Field(
        default=None, examples=[[[0, 0], [1, 1], [2, 2], [3, 3]]]
    )
    """Pairs of a source token and an output token, counted from 0; only if requested."""


class TextTranslations(BaseModel):
    """Translations of one text."""

    model_config = _CONFIG

    index: int | None = None
    """Position of the text in the request; only in a stream."""
    source: str = Field(examples=["A dog runs."])
    """The text."""
    source_tokens: list[str] | None = Field(
        default=None, examples=[["\u2581A", "\u2581dog", "\u2581runs", "."]]
    )
    """Pieces of the source; only if an alignment was requested."""
    translations: list[Output]
    """Best first; none for an empty text."""


class TranslationList(BaseModel):
    """Translations, in the order of the texts."""

    model_config = _CONFIG

    results: list[TextTranslations]


class LibreAnswer(BaseModel):
    """Translations in the form of LibreTranslate, for a request in that form."""

    model_config = _CONFIG

    translated_text: str | list[str] = Field(alias="translatedText", examples=["Ein Hund läuft."])
    """The translation, or a list for a list of texts."""
    alternatives: list[str] | list[list[str]] | None = None
    """Further translations; only if requested."""


class Health(BaseModel):
    """Status of the server."""

    model_config = _CONFIG

    status: str = Field(examples=["ready"])
    """`starting` while the model is opened, `ready`, or `stopping` if new requests are rejected."""
    model: str = Field(examples=["transformer-base"])
    """Name of the spec."""
    waiting: int
    """Sentences in the queue."""
    seconds: float
    """Seconds since the server started."""


def known_keys(where: Sequence[str | int]) -> list[str]:
    """Return the keys of an object in a body; empty if the path is not an object.

    >>> known_keys(("source", 3))
    ['text', 'begin', 'include']
    """
    names = tuple(part for part in where if isinstance(part, str))
    forms: dict[tuple[str, ...], type[BaseModel]] = {
        (): Ask,
        ("source",): Text,
        ("search",): RequestOptions,
    }
    return list(forms[names].model_fields) if names in forms else []


def merged(
    defaults: PredictorSettings, requested: RequestOptions, limits: Limits
) -> PredictorSettings:
    """Return the settings to serve a request with.

    Args:
        defaults: the server's settings.
        requested: the request's settings, which override them.
        limits: bounds on the length of outputs.

    Raises:
        InputError: settings conflict, or one has no effect.
    """
    chosen = requested.model_dump(exclude_unset=True)
    if "nbest" in chosen and "beam" not in chosen:
        chosen["beam"] = max(getattr(defaults, "beam", 1), chosen["nbest"])
    combined = changed_predictor(defaults, chosen, "/search")
    if combined.type == "mbr" != defaults.type and "samples" not in chosen:
        most = {"samples": min(limits.beam, getattr(combined, "samples", limits.beam))}
        combined = changed_predictor(defaults, {**chosen, **most}, "/search")
    longest: dict[str, Any] = {
        name: min(limits.output, getattr(combined, name) or limits.output)
        for name in ("max_length", "max_extra")
        if name in type(combined).model_fields
    }
    return combined.model_copy(update=longest)


MOST: Mapping[str, float] = {
    "alpha": 10.0,
    "max_factor": 100.0,
    "diversity": 100.0,
    "repetition_penalty": 100.0,
    "min_length": 10_000,
    "no_repeat": 10_000,
    "iterations": 100,
}
"""Maximum values of settings that have no limit option of their own."""


def too_much(
    ask: Ask, search: PredictorSettings, defaults: PredictorSettings, limits: Limits
) -> list[RequestProblem]:
    """Return a problem for every value of a request that exceeds a limit.

    Args:
        ask: the request.
        search: the merged settings.
        defaults: the server's own settings.
        limits: the server's limits.
    """
    problems = []

    def check(location: str, unit: str, amount: float, most: float) -> None:
        if amount > most:
            problem = f"{amount:,} {unit}".rstrip() + f" is more than the limit of {most:,}"
            problems.append(
                RequestProblem(place=location, problem=problem, help=f"use at most {most:,}")
            )

    check("/source", "texts", len(ask.source), limits.texts)
    for index, text in enumerate(ask.source[: limits.texts]):
        location = f"/source/{index}"
        check(f"{location}/text", "characters", len(text.text), limits.characters)
        check(f"{location}/begin", "characters", len(text.begin), limits.characters)
        check(f"{location}/include", "phrases", len(text.include), limits.phrases)
        size = sum(map(len, text.include))
        check(f"{location}/include", "characters", size, limits.characters)
    avoid = getattr(search, "avoid", ())
    check("/search/avoid", "phrases", len(avoid), limits.phrases)
    check("/search/avoid", "characters", sum(map(len, avoid)), limits.characters)
    for name, most in {
        **dict.fromkeys(("beam", "lengths", "samples"), limits.beam),
        **MOST,
    }.items():
        # A request may always set the server's own value explicitly.
        most_served = max(most, getattr(defaults, name, most))
        check(f"/search/{name}", "", getattr(search, name, 0), most_served)
    return problems
