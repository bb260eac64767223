"""Reader: JSON text to a checked form, with every textual mistake at once.

A file from a stranger runs nothing: JSON only, bounded in bytes and depth,
duplicate keys refused, names never reach an import.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .findings import Finding, InputError, SpecError, did_you_mean, pointer
from .form import FORMAT, Spec

LARGEST = 1 << 20
"""Bytes that a spec or run file may have."""
DEEPEST = 64
"""Objects and lists that may stand inside one another."""
SHIPPED = Path(__file__).parent
"""Where the shipped specs and runs lie."""
LONGEST_NUMBER = 400
"""Characters that one number may have."""

Form = TypeVar("Form", bound=BaseModel)


def shipped_names(*rooms: str) -> dict[str, Path]:
    """Return the shipped files of `specs/<room>/` by name."""
    return {path.stem: path for room in rooms for path in sorted((SHIPPED / room).glob("*.json"))}


def find(name: str, *rooms: str) -> Path:
    """Return the file that a person means: a path, or the name of a shipped one.

    Raises:
        InputError: neither exists.
    """
    path, known = Path(name), shipped_names(*rooms)
    if path.is_file():
        return path
    if name in known:
        return known[name]
    if "/" in name or name.endswith(".json"):
        near = [str(p) for p in path.parent.glob("*.json")] if path.parent.is_dir() else []
        raise InputError("no such file", place=name, help=did_you_mean(name, near))
    raise InputError(
        f"'{name}' is neither a file nor shipped with weft", help=did_you_mean(name, known)
    )


def read_text(path: Path) -> str:
    """Return the text of a JSON file, bounded.

    Raises:
        InputError: the file cannot be read, is too large or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            "the file is not UTF-8", place=f"{path}, byte {error.start}", help="save it as UTF-8"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", place=str(path)) from error
    if len(data) > LARGEST:
        raise InputError(f"larger than {LARGEST} bytes", place=str(path))
    return text


def read_json(text: str, source: str) -> Any:
    """Return the JSON value of a text.

    Args:
        text: the whole file.
        source: its name, for findings.

    Raises:
        SpecError: not JSON, nested too deep, or a key that stands twice.
    """

    def fail(code: str, problem: str) -> SpecError:
        return SpecError([Finding(code=code, at="", problem=problem, source=source)])

    if _depth(text) > DEEPEST:
        raise fail("S06", f"nested deeper than {DEEPEST}")
    doubles: list[tuple[str, dict[str, Any]]] = []

    def keep_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                doubles.append((key, record))
            record[key] = value
        return record

    try:
        value = json.loads(
            text, object_pairs_hook=keep_doubles, parse_int=_number, parse_constant=_refuse
        )
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise fail("S01", f"not JSON: {error.msg} at {place}") from error
    except ValueError as error:
        raise fail("S01", f"not JSON: {error}") from error
    if doubles:
        raise SpecError(
            Finding(
                code="S02",
                at=_find_record(value, record) + pointer(key),
                problem=f"key '{key}' stands twice",
                help="keep one of the two",
                source=source,
            )
            for key, record in doubles
        )
    return value


def _depth(text: str) -> int:
    """Return how deep objects and lists stand inside one another."""
    depth = deepest = 0
    for mark in re.findall(r"[\[\]{}]", re.sub(r'"(?:[^"\\]|\\.)*"', "", text)):
        depth += 1 if mark in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _number(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        msg = "a number is too long"
        raise ValueError(msg)
    return int(digits)


def _refuse(word: str) -> None:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


def _find_record(value: Any, record: dict[str, Any]) -> str:
    """Return the pointer of one particular object inside a value."""
    waiting = [("", value)]
    while waiting:
        at, here = waiting.pop()
        if here is record:
            return at
        if isinstance(here, dict):
            waiting += [(at + pointer(key), inner) for key, inner in here.items()]
        elif isinstance(here, list):
            waiting += [(at + pointer(index), inner) for index, inner in enumerate(here)]
    return ""


def parse(form: type[Form], value: Any, source: str) -> Form:
    """Return a JSON value in the given form.

    Raises:
        SpecError: every place where the value has not that form.
    """
    if not isinstance(value, dict):
        finding = Finding(code="S04", at="", problem="the file is not an object", source=source)
        raise SpecError([finding])
    found = value.get("format")
    if "format" in form.model_fields and found is not None and found != FORMAT:
        raise SpecError(
            [
                Finding(
                    code="S05",
                    at="/format",
                    problem=f"format {json.dumps(found)[:20]} is not known",
                    evidence=(f"this version of weft reads format {FORMAT}",),
                    help="a file of a newer format needs a newer weft",
                    source=source,
                )
            ]
        )
    try:
        return form.model_validate(value)
    except ValidationError as errors:
        raise SpecError(
            form_finding(error, form, value, source) for error in errors.errors()
        ) from None


def read_spec(path: Path) -> Spec:
    """Read one spec file into its form."""
    return parse(Spec, read_json(read_text(path), str(path)), str(path))


def form_finding(error: ErrorDetails, form: type[BaseModel], value: Any, source: str) -> Finding:
    """Turn one of pydantic's errors into a finding in our words."""
    place, known = _place(error["loc"], form, value)
    at, last = pointer(*place), str(place[-1]) if place else ""
    if error["type"] == "extra_forbidden":
        return Finding(
            code="S03",
            at=at,
            problem=f"unknown key '{last}'",
            help=did_you_mean(last, known),
            source=source,
        )
    if error["type"] == "missing":
        return Finding(
            code="S04",
            at=pointer(*place[:-1]),
            problem=f"key '{last}' is missing",
            help=f"add '{last}'",
            source=source,
        )
    if error["type"] == "string_pattern_mismatch":
        return Finding(
            code="N06",
            at=at,
            problem=f"'{error['input']}' cannot be a name"[:120],
            help="a name is a letter, then letters, digits and underscores",
            source=source,
        )
    message = error["msg"]
    return Finding(
        code="S04",
        at=at,
        problem=message[:1].lower() + message[1:],
        evidence=(f"given  {json.dumps(error['input'], default=str)[:80]}",),
        source=source,
    )


def _place(
    location: tuple[int | str, ...], form: type[BaseModel], value: Any
) -> tuple[list[int | str], list[str]]:
    """Drop pydantic's own marks from a location, and list the keys known at its end."""
    place: list[int | str] = []
    here = value
    for index, part in enumerate(location):
        inside = (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        )
        if inside:
            here = here[part]
        if inside or (index == len(location) - 1 and part != "[key]"):
            place.append(part)
    return place, _known_at(place[:-1], form)


def _known_at(place: list[int | str], form: type[BaseModel]) -> list[str]:
    """Return the keys that the record at a place may have."""
    here: list[Any] = [form]
    for part in place:
        here = [inner for annotation in here for inner in _inside(annotation, part)]
    records = [a for a in here if isinstance(a, type) and issubclass(a, BaseModel)]
    return sorted({key for record in records for key in _keys(record)})


def _keys(form: type[BaseModel]) -> dict[str, Any]:
    return {field.alias or name: field.annotation for name, field in form.model_fields.items()}


def _inside(annotation: Any, part: int | str) -> list[Any]:
    """Return the annotations that may stand under a key of an annotated value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = _keys(annotation)
        return _choices(keys[part]) if part in keys else []
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return _choices(arguments[1])
    return _choices(arguments[0]) if arguments else []


def _choices(annotation: Any) -> list[Any]:
    """Return the members of a union, marks taken off."""
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in _choices(member)]
    return [annotation]
