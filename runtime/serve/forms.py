"""Forms: what a request asks and what an answer says, as JSON; OpenAPI is made of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ..decode.settings import SampleSettings, SearchSettings
from ..decode.translate import TranslationRequest
from .limits import Limits

_CONFIG = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


def _unicode(given: str) -> str:
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise ValueError("half of a surrogate pair, which is no character") from error
    return given


Unicode = Annotated[str, AfterValidator(_unicode)]
"""Text that can be written as UTF-8: JSON may also spell what cannot."""


class Problem(BaseModel):
    """One thing wrong with a request."""

    model_config = _CONFIG

    place: str = Field(examples=["/search/beam"])
    """Where, as a JSON pointer into the body; empty when it is the request as a whole."""
    problem: str = Field(examples=["64 is more than 16"])
    """What is wrong."""
    help: str = Field(default="", examples=["ask for 16 at most"])
    """A way out."""


class Problems(BaseModel):
    """Why there is no translation: everything that is wrong, at once."""

    model_config = _CONFIG

    errors: list[Problem]


class Text(BaseModel):
    """One text to translate, and what its translation must be like."""

    model_config = _CONFIG

    text: Unicode = Field(examples=["A dog runs."])
    """One sentence; an empty one has no translation."""
    begin: Unicode = Field(default="", examples=["Ein"])
    """What the translation begins with."""
    include: tuple[Annotated[Unicode, Field(min_length=1)], ...] = Field(
        default=(), examples=[["Hund"]]
    )
    """Words or phrases that it holds."""

    @property
    def request(self) -> TranslationRequest:
        """The same, as a translator takes it."""
        return TranslationRequest(self.text, self.begin, self.include)


def _without_defaults(schema: dict[str, Any]) -> None:
    """The defaults are the server's own, not those of the class."""
    for field in schema["properties"].values():
        field.pop("default", None)


class SearchOptions(SearchSettings):
    """How to look for outputs; where a setting is left out, the server's holds."""

    model_config = ConfigDict(
        json_schema_extra=_without_defaults, json_schema_serialization_defaults_required=False
    )

    @model_validator(mode="after")
    def _has_room(self) -> SearchOptions:
        # Only with the server's settings beside it can be said what clashes.
        return self


def _as_list(given: Any) -> Any:
    """Read one text as a list of one, and a string as a text."""
    many = given if isinstance(given, list) else [given]
    return [{"text": one} if isinstance(one, str) else one for one in many]


class Ask(BaseModel):
    """What to translate, and how."""

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
    """A text, or several, each a string or an object."""
    search: SearchOptions = SearchOptions()
    """How to look for outputs; the server's own settings where nothing is said."""
    alignment: bool = False
    """Whether to say which token of the source each token of an output comes from."""


class Output(BaseModel):
    """One possible translation."""

    model_config = _CONFIG

    text: str = Field(examples=["Ein Hund läuft."])
    """What it says."""
    score: float | None = Field(examples=[-0.41])
    """Log probability over the length penalty; comparable among the outputs of one text."""
    log_probability: float | None = Field(examples=[-0.55])
    """Natural logarithm of the probability of its tokens, the end among them."""
    finished: bool
    """Whether it ended by itself, and not at the longest length."""
    tokens: list[str] = Field(examples=[["\u2581Ein", "\u2581Hund", "\u2581läuft", "."]])
    """Pieces of the tokenizer; U+2581 stands for a space."""
    alignment: list[tuple[int, int]] | None = Field(
        default=None, examples=[[[0, 0], [1, 1], [2, 2], [3, 3]]]
    )
    """Pairs of a source token and a token of the output, counted from 0; when asked for."""


class Result(BaseModel):
    """What became of one text."""

    model_config = _CONFIG

    source: str = Field(examples=["A dog runs."])
    source_tokens: list[str] | None = Field(
        default=None, examples=[["\u2581A", "\u2581dog", "\u2581runs", "."]]
    )
    """Pieces of the source, when an alignment was asked for."""
    translations: list[Output]
    """Best first; none for an empty text."""


class Answer(BaseModel):
    """Translations, in the order of the texts."""

    model_config = _CONFIG

    results: list[Result]


class Health(BaseModel):
    """How the server does."""

    model_config = _CONFIG

    status: str = Field(examples=["ready"])
    """`ready`, or `stopping` when it takes on nothing new."""
    model: str = Field(examples=["transformer-base"])
    """Name of the spec."""
    waiting: int
    """Sentences in the queue."""
    seconds: float
    """Since the server began."""


def known_keys(where: Sequence[str | int]) -> list[str]:
    """Return the keys of an object in a body; none where there is no object.

    >>> known_keys(("source", 3))
    ['text', 'begin', 'include']
    """
    names = tuple(one for one in where if isinstance(one, str))
    forms: dict[tuple[str, ...], type[BaseModel]] = {
        (): Ask,
        ("source",): Text,
        ("search",): SearchOptions,
        ("search", "sample"): SampleSettings,
    }
    return list(forms[names].model_fields) if names in forms else []


def merged(own: SearchSettings, asked: SearchOptions, limits: Limits) -> dict[str, Any]:
    """Return the settings that a request is served with, as values to be checked.

    Args:
        own: the server's.
        asked: what wins over them.
        limits: outputs are no longer than these say.
    """
    given = asked.model_dump(exclude_unset=True)
    values: dict[str, Any] = {**own.model_dump(), **given}
    if "nbest" in given and "beam" not in given:
        values["beam"] = max(own.beam, values["nbest"])
    longest = values["max_length"]
    values["max_length"] = min(limits.output, longest or limits.output)
    values["max_extra"] = min(limits.output, values["max_extra"])
    return values


MOST: Mapping[str, float] = {
    "alpha": 10.0,
    "max_factor": 100.0,
    "diversity": 100.0,
    "repetition_penalty": 100.0,
    "min_length": 10_000,
    "no_repeat": 10_000,
    "iterations": 100,
}
"""Largest values of settings that no option of the server bounds."""


def too_much(
    ask: Ask, search: SearchSettings, own: SearchSettings, limits: Limits
) -> list[Problem]:
    """Return what a request asks for beyond the limits.

    Args:
        ask: the request.
        search: how it would be served.
        own: the server's own settings.
        limits: the server's limits.
    """
    found = []

    def check(place: str, unit: str, amount: float, most: float) -> None:
        if amount > most:
            problem = f"{amount:,} {unit}".rstrip() + f", and at most {most:,} are served"
            found.append(Problem(place=place, problem=problem, help="ask for less"))

    check("/source", "texts", len(ask.source), limits.texts)
    for index, text in enumerate(ask.source[: limits.texts]):
        place = f"/source/{index}"
        check(f"{place}/text", "characters", len(text.text), limits.characters)
        check(f"{place}/begin", "characters", len(text.begin), limits.characters)
        check(f"{place}/include", "phrases", len(text.include), limits.phrases)
        size = sum(map(len, text.include))
        check(f"{place}/include", "characters", size, limits.characters)
    check("/search/avoid", "phrases", len(search.avoid), limits.phrases)
    check("/search/avoid", "characters", sum(map(len, search.avoid)), limits.characters)
    for name, most in {"beam": limits.beam, "lengths": limits.beam, **MOST}.items():
        # What the server does for everybody it does for a request that says so.
        most_served = max(most, getattr(own, name))
        check(f"/search/{name}", "", getattr(search, name), most_served)
    return found
