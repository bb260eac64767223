"""Requests of LibreTranslate's clients: the body of POST /translate, and GET /languages.

A body with the key `q` is of this form.  Of LibreTranslate's keys, `api_key` has no effect: the
server has a token instead.  Source: https://docs.libretranslate.com/api/operations/translate/
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .forms import Ask, Problem, SearchOptions, Text, Unicode

_NAMES = {
    "ar": "Arabic",
    "cs": "Czech",
    "da": "Danish",
    "de": "German",
    "el": "Greek",
    "en": "English",
    "es": "Spanish",
    "fi": "Finnish",
    "fr": "French",
    "hi": "Hindi",
    "hu": "Hungarian",
    "it": "Italian",
    "ja": "Japanese",
    "ko": "Korean",
    "nl": "Dutch",
    "no": "Norwegian",
    "pl": "Polish",
    "pt": "Portuguese",
    "ro": "Romanian",
    "ru": "Russian",
    "sv": "Swedish",
    "tr": "Turkish",
    "uk": "Ukrainian",
    "vi": "Vietnamese",
    "zh": "Chinese",
}
"""English names of common languages; other languages are listed by their code."""
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)?")


class Languages(NamedTuple):
    """Codes of the source and target language of a model."""

    source: str
    target: str


def languages_of(run: Mapping[str, Any]) -> Languages | None:
    """Return the languages of a run's training data; None if they are not known.

    They are those of its mtdata corpora, or the suffixes of its files.

    >>> languages_of({"data": {"train": {"source": ["train.en.gz"], "target": ["train.de.gz"]}}})
    Languages(source='en', target='de')
    """
    train = run.get("data", {}).get("train") or {}
    codes = train.get("languages") or [
        _suffix((train.get(side) or [""])[0]) for side in ("source", "target")
    ]
    if len(set(codes)) == 2 and all(_CODE.fullmatch(one) for one in codes):  # noqa: PLR2004
        return Languages(*codes)
    return None


def _suffix(file: str) -> str:
    return file.removesuffix(".gz").rpartition(".")[2]


def listed(languages: Languages | None) -> list[dict[str, Any]]:
    """Return the response to GET /languages."""
    if languages is None:
        return []
    return [
        {"code": code, "name": _NAMES.get(code, code), "targets": targets}
        for code, targets in ((languages.source, [languages.target]), (languages.target, []))
    ]


def _as_list(given: Any) -> Any:
    return given if isinstance(given, list) else [given]


class LibreAsk(BaseModel):
    """A request in the form of LibreTranslate."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        json_schema_extra={
            "examples": [{"q": "A dog runs.", "source": "en", "target": "de", "format": "text"}]
        },
    )

    q: Annotated[list[Unicode], BeforeValidator(_as_list, json_schema_input_type=str | list[str])]
    """One text or a list of texts."""
    source: str = Field(default="auto", max_length=20)
    """Language of the texts: that of the model, or `auto`."""
    target: str = Field(max_length=20)
    """Language of the translations: that of the model."""
    format: Literal["text"] = "text"
    """Markup is not supported."""
    alternatives: int = Field(default=0, ge=0)
    """Number of further translations of each text."""

    def ask(self) -> Ask:
        """Return the request in the server's own form."""
        search = SearchOptions(nbest=self.alternatives + 1) if self.alternatives else None
        return Ask(
            source=[Text(text=one) for one in self.q], **({"search": search} if search else {})
        )

    def problems(self, languages: Languages | None) -> list[Problem]:
        """Return a problem for each language that the model does not have."""
        if languages is None:
            return []
        return [
            Problem(
                place=f"/{name}",
                problem=f"'{given}' is not supported",
                help=f"the model translates from {languages.source} to {languages.target}",
            )
            for name, given, known in (
                ("source", self.source, ("auto", languages.source)),
                ("target", self.target, (languages.target,)),
            )
            if given not in known
        ]


def in_libre_form(response: Response, given: Mapping[str, Any]) -> Response:
    """Return a response in the form of LibreTranslate.

    Args:
        response: the response in the server's own form.
        given: the body of the request.
    """
    found = json.loads(bytes(response.body) or b"{}")
    if "results" not in found:
        problems = found.get("errors") or [{"problem": "no response"}]
        headers = {name: value for name, value in response.headers.items() if name == "retry-after"}
        made = {"error": problems[0]["problem"], **found}
        return JSONResponse(made, response.status_code, headers)
    outputs = [
        [one["text"] for one in result["translations"]] or [""] for result in found["results"]
    ]
    best, others = [one[0] for one in outputs], [one[1:] for one in outputs]
    several = isinstance(given["q"], list)
    made = {"translatedText": best if several else best[0]}
    if given.get("alternatives"):
        made["alternatives"] = others if several else others[0]
    return JSONResponse(made)
