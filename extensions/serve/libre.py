"""Requests of LibreTranslate's clients: the body of POST /translate, and GET /languages.

A body with the key `q` is of this form.  Of LibreTranslate's keys, `api_key` has no effect: the
server has a token instead.  Source: https://docs.libretranslate.com/api/operations/translate/
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from fastapi import Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ...plugin import LinesSettings, MtdataSettings
from .forms import Ask, RequestOptions, RequestProblem, Text, Unicode

if TYPE_CHECKING:
    from ...plugin import Split

_NAMES = {
    "ar": ("ara", "Arabic"),
    "cs": ("ces", "Czech"),
    "da": ("dan", "Danish"),
    "de": ("deu", "German"),
    "el": ("ell", "Greek"),
    "en": ("eng", "English"),
    "es": ("spa", "Spanish"),
    "fi": ("fin", "Finnish"),
    "fr": ("fra", "French"),
    "hi": ("hin", "Hindi"),
    "hu": ("hun", "Hungarian"),
    "it": ("ita", "Italian"),
    "ja": ("jpn", "Japanese"),
    "ko": ("kor", "Korean"),
    "nl": ("nld", "Dutch"),
    "no": ("nor", "Norwegian"),
    "pl": ("pol", "Polish"),
    "pt": ("por", "Portuguese"),
    "ro": ("ron", "Romanian"),
    "ru": ("rus", "Russian"),
    "sv": ("swe", "Swedish"),
    "tr": ("tur", "Turkish"),
    "uk": ("ukr", "Ukrainian"),
    "vi": ("vie", "Vietnamese"),
    "zh": ("zho", "Chinese"),
}
"""Codes of common languages in ISO 639-3, and their English names; other languages are listed by
their code."""
_SHORT = {three: two for two, (three, _) in _NAMES.items()}
_ENDS = re.compile("(\r\n|[\n\r\x85\u2028\u2029])")
"""The end of a line in a text."""
_CODE = re.compile(r"[a-z]{2,3}(-[A-Za-z]+)?")


class Languages(NamedTuple):
    """Codes of the source and target language of a model."""

    source: str
    target: str


def languages_of(train: Split, fields: tuple[str, str]) -> Languages | None:
    """Return the languages of training data; None if they are not known.

    They are those of its mtdata corpora, or the suffixes of its files.

    Args:
        train: the training data of a run.
        fields: fields of the source and of the target texts.
    """
    codes: Sequence[str] = ()
    match next(iter(train.by_place().values())).settings:
        case MtdataSettings(languages=languages):
            codes = [_SHORT.get(code, code) for code in languages]
        case LinesSettings(groups=files):
            codes = [_suffix(files[field][0]) for field in fields if field in files]
    if len(set(codes)) == 2 and all(_CODE.fullmatch(code) for code in codes):  # noqa: PLR2004
        return Languages(*codes)
    return None


def _suffix(file: str) -> str:
    return file.removesuffix(".gz").rpartition(".")[2]


def listed(languages: Languages | None) -> list[dict[str, Any]]:
    """Return the response to GET /languages."""
    if languages is None:
        return []
    return [
        {"code": code, "name": _NAMES.get(code, (code, code))[1], "targets": targets}
        for code, targets in ((languages.source, [languages.target]), (languages.target, []))
    ]


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


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
    """One text or a list of texts; each line is translated by itself."""
    source: str = Field(default="auto", max_length=20)
    """Language of the texts: that of the model, or `auto`."""
    target: str = Field(max_length=20)
    """Language of the translations: that of the model."""
    format: Literal["text"] = "text"
    """Markup is not supported."""
    alternatives: int = Field(default=0, ge=0, lt=1000)
    """Number of further translations of each text."""

    def ask(self) -> Ask:
        """Return the request in the server's own form, with a text for each line of `q`."""
        search = RequestOptions(nbest=self.alternatives + 1) if self.alternatives else None
        lines = [Text(text=line) for text in self.q for line in _lines(text)]
        return Ask(source=lines, **({"search": search} if search else {}))

    def problems(self, languages: Languages | None) -> list[RequestProblem]:
        """Return a problem for each language that the model does not have."""
        if languages is None:
            return []
        return [
            RequestProblem(
                place=f"/{name}",
                problem=f"'{value}' is not supported",
                help=f"the model translates from {languages.source} to {languages.target}",
            )
            for name, value, supported in (
                ("source", self.source, ("auto", languages.source)),
                ("target", self.target, (languages.target,)),
            )
            if value not in supported
        ]


def _lines(text: str) -> list[str]:
    return _ENDS.split(text)[::2]


def in_libre_places(
    problems: Sequence[RequestProblem], q: str | Sequence[str]
) -> list[RequestProblem]:
    """Return problems of a request in the server's own form with their places in `q`.

    Args:
        problems: the problems; a place in `/source/N` is one of the line N.
        q: the texts.
    """
    texts = [q] if isinstance(q, str) else q
    of_lines = [number for number, text in enumerate(texts) for _ in _lines(text)]

    def location(path: str) -> str:
        _, _, remainder = path.partition("/source")
        line = remainder.removeprefix("/").partition("/")[0]
        if not path.startswith("/source"):
            return path
        return f"/q/{of_lines[int(line)]}" if line and not isinstance(q, str) else "/q"

    return [problem.model_copy(update={"place": location(problem.place)}) for problem in problems]


def in_libre_form(response: Response, payload: Mapping[str, Any]) -> Response:
    """Return a response in the form of LibreTranslate; errors have the same form in both.

    The translations of the lines of a text are joined by the ends of its lines.

    Args:
        response: the response in the server's own form.
        payload: the body of the request.
    """
    content = json.loads(bytes(response.body) or b"{}")
    if "results" not in content:
        return response
    lines = iter(
        [translation["text"] for translation in result["translations"]] or [""]
        for result in content["results"]
    )
    several = isinstance(payload["q"], list)
    texts = [_joined(text, lines) for text in (payload["q"] if several else [payload["q"]])]
    best, others = [ranked[0] for ranked in texts], [ranked[1:] for ranked in texts]
    body: dict[str, Any] = {"translatedText": best if several else best[0]}
    if payload.get("alternatives"):
        body["alternatives"] = others if several else others[0]
    return JSONResponse(body)


def _joined(text: str, lines: Iterator[list[str]]) -> list[str]:
    """Return the translations of a text, best first.

    Args:
        text: the text.
        lines: the translations of its lines, best first, followed by those of other texts.
    """
    parts = _ENDS.split(text)
    translations = [next(lines) for _ in parts[::2]]
    joined = []
    for rank in range(max(map(len, translations))):
        parts[::2] = [line[min(rank, len(line) - 1)] for line in translations]
        joined.append("".join(parts))
    return joined
