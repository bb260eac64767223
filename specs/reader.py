"""Reader: JSON text to a checked form, with every textual mistake at once.

A file from a stranger runs nothing: JSON only, bounded in bytes and depth,
duplicate keys refused, names never reach an import.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from .bounds import beyond_bounds
from .findings import Finding, InputError, SpecError, at_most, did_you_mean, pointer
from .form import FORMAT, REPEAT, USE, RepeatNode, Spec, UseNode
from .upgrade import FORMATS, Upgrader, upgrade_format

LARGEST = 384 << 10
"""Bytes that a spec or run file may have; 1,000 nodes, written out in full, take 300,000."""
DEEPEST = 64
"""Objects and lists that may stand inside one another."""
SHIPPED = Path(__file__).parent
"""Where the shipped specs and runs lie."""
LONGEST_SHOWN = 80
"""Characters of a wrong value that a finding shows."""
LONGEST_NUMBER = 400
"""Characters that one number may have."""
FOR_EDITORS = "$schema"
"""A key of a spec file that names its JSON Schema for an editor; it means nothing here."""

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""A string, which counts as no depth, or a bracket."""

Form = TypeVar("Form", bound=BaseModel)


def shipped_names(*folders: str) -> dict[str, Path]:
    """Return the shipped files of `specs/<room>/` by name."""
    return {
        path.stem: path for folder in folders for path in sorted((SHIPPED / folder).glob("*.json"))
    }


def find(name: str, *folders: str) -> Path:
    """Return the file that a person means: a path, or the name of a shipped one.

    Raises:
        InputError: neither exists.
    """
    path, known = Path(name), shipped_names(*folders)
    try:
        if path.is_file():
            return path
        if path.is_dir() and name not in known:
            raise InputError("this is a folder", place=name, help="name a file in it")
        beside = [str(p) for p in path.parent.glob("*.json")] if path.parent.is_dir() else []
    except (OSError, ValueError) as error:
        raise InputError("this cannot be the name of a file", place=name[:80]) from error
    if name in known:
        return known[name]
    meant = [file for file in beside if Path(file) == Path(f"{name}.json")]
    beside = [file for file in beside if Path(file) != path]
    help_ = f"did you mean '{meant[0]}'?" if meant else ""
    if "/" in name or name.endswith(".json") or not folders:
        raise InputError("no such file", place=name, help=help_ or did_you_mean(name, beside))
    problem = f"'{name}' is neither a file nor shipped with weft"
    raise InputError(problem, help=help_ or did_you_mean(name, known))


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a JSON file, bounded.

    Args:
        path: the file.
        largest: bytes that it may have.

    Raises:
        InputError: the file cannot be read, is too large or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(largest + 1)
        if len(data) > largest:
            raise InputError(f"larger than {largest} bytes", place=str(path))
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            "the file is not UTF-8", place=f"{path}, byte {error.start}", help="save it as UTF-8"
        ) from error
    except OSError as error:
        raise InputError(f"cannot read the file: {error.strerror}", place=str(path)) from error


def read_json(text: str, source: str) -> Any:
    """Return the JSON value of a text.

    Args:
        text: the whole file.
        source: its name, for findings.

    Raises:
        SpecError: not JSON, nested too deep, or a key that stands twice.
    """

    def fail(code: str, problem: str, help_: str) -> SpecError:
        return SpecError([Finding(code=code, at="", problem=problem, help=help_, source=source)])

    if _depth(text) > DEEPEST:
        help_ = "put what lies inside into a template of its own"
        raise fail("S06", f"nested deeper than {DEEPEST}", help_)
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
            text,
            object_pairs_hook=keep_doubles,
            parse_int=_whole,
            parse_float=_real,
            parse_constant=_refuse,
        )
    except json.JSONDecodeError as error:
        message, place = error.msg[:1].lower() + error.msg[1:], f"{error.lineno}:{error.colno}"
        help_ = f"look at line {error.lineno}, column {error.colno}"
        raise fail("S01", f"not JSON: {message} at {place}", help_) from error
    except ValueError as error:
        raise fail("S01", f"not JSON: {error}", "write an ordinary number") from error
    if doubles:
        places = _records(value)
        doubled = (
            Finding(
                code="S02",
                at=places[id(record)] + pointer(key),
                problem=f"key '{key}' stands twice",
                help="keep one of the two",
                source=source,
            )
            for key, record in doubles
            if id(record) in places  # else it lies below a key that itself stands twice
        )
        raise SpecError(at_most(doubled, source))
    return value


def _depth(text: str) -> int:
    """Return how deep objects and lists stand inside one another, at least when too deep."""
    depth = deepest = 0
    for mark in _MARK.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            break
    return deepest


def _whole(digits: str) -> int:
    if len(digits) > LONGEST_NUMBER:
        msg = "a number is too long"
        raise ValueError(msg)
    return int(digits)


def _real(digits: str) -> float:
    if len(digits) > LONGEST_NUMBER or not math.isfinite(float(digits)):
        msg = "a number is too large"
        raise ValueError(msg)
    return float(digits)


def _refuse(word: str) -> None:
    msg = f"{word} is not JSON"
    raise ValueError(msg)


def _records(value: Any) -> dict[int, str]:
    """Return the pointer of every object inside a value, by its identity."""
    waiting, found = [("", value)], {}
    while waiting:
        at, here = waiting.pop()
        if isinstance(here, dict):
            found[id(here)] = at
            waiting += [(at + pointer(key), inner) for key, inner in here.items()]
        elif isinstance(here, list):
            waiting += [(at + pointer(index), inner) for index, inner in enumerate(here)]
    return found


def parse(
    form: type[Form],
    value: Any,
    source: str,
    formats: Mapping[int, Upgrader] = FORMATS,
) -> Form:
    """Return a JSON value in the given form, upgraded from an older format where it has one.

    Args:
        form: what the value is to be.
        value: any JSON value.
        source: the file it came from, for findings.
        formats: older format to what upgrades it; that of specs when left out.

    Raises:
        SpecError: every place where the value has not that form, or is too large.
    """
    if not isinstance(value, dict):
        finding = Finding(code="S04", at="", problem="the file is not an object", source=source)
        raise SpecError([finding])
    if "format" in form.model_fields:
        value, _ = upgrade_format(value, formats)
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
    if "format" in form.model_fields:  # a file of its own
        value = {key: inner for key, inner in value.items() if key != FOR_EDITORS}
    if form is Spec:
        _bounded(value, source)
    try:
        return form.model_validate(value)
    except ValidationError as errors:
        findings = (form_finding(error, form, value, source) for error in errors.errors())
        raise SpecError(at_most(findings, source)) from None


def read_value(path: Path) -> Any:
    """Return the JSON value of a spec file, whole or a child, in today's format.

    Raises:
        InputError: the file cannot be read.
        SpecError: the text is wrong, or the value too large.
    """
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict):
        return value
    _bounded(value, str(path))
    return upgrade_format(value)[0]


def _bounded(value: dict[str, Any], source: str) -> None:
    """Refuse a spec of which something is larger than it may be."""
    beyond = at_most(beyond_bounds(value, source), source)
    if beyond:
        raise SpecError(beyond)


def read_spec(path: Path) -> Spec:
    """Read one spec file into its form."""
    return parse(Spec, read_value(path), str(path))


_WORDS = {
    "model_type": "an object",
    "dict_type": "an object",
    "string_type": "a text",
    "tuple_type": "a list",
    "bool_type": "true or false",
    "too_short": "an object with at least one key",
}
"""Kinds of pydantic's errors, and what should stand there instead."""
_NAMES = {
    "": "a name is a letter, then letters, digits and underscores, 64 in all",
    "axes": "an axis is a capital letter, then letters and digits, 16 in all",
    "name": "the name of a spec is letters, digits, '_', '.' and '-', 100 in all",
    "instead": "write the number of a copy, counted from 0, such as '4'",
}
"""What names look like, by the key under which they stand."""


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
            help=_NAMES.get(_key_above(place), _NAMES[""]),
            source=source,
        )
    wanted = _WORDS.get(error["type"]) or error.get("ctx", {}).get("expected")
    message = error["msg"][:1].lower() + error["msg"][1:]
    return Finding(
        code="S04",
        at=at,
        problem=f"{last!r} is not {wanted}" if wanted else message,
        evidence=(f"given  {_json(error['input'])}",),
        help=f"write {wanted}" if wanted else "",
        source=source,
    )


def _key_above(place: list[int | str]) -> str:
    """Return the key that says what the name at a place is the name of."""
    if place[-2:-1] == ["instead"]:
        return "instead"
    return str(place[0]) if place else ""


def _json(value: Any) -> str:
    """Return a value as JSON, cut short."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 4]} ..."


def _place(
    location: tuple[int | str, ...], form: type[BaseModel], value: Any
) -> tuple[list[int | str], list[str]]:
    """Drop pydantic's own marks from a location, and list the keys known at its end."""
    place: list[int | str] = []
    records: list[Any] = [form]
    known: list[str] = []
    here = value
    for index, part in enumerate(location):
        if part in _NODES:
            records = [_NODES[str(part)]]
            continue
        inside = (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        )
        if inside:
            here = here[part]
        if inside or (index == len(location) - 1 and part != "[key]"):
            place.append(part)
            forms = [a for a in records if isinstance(a, type) and issubclass(a, BaseModel)]
            known = sorted({key for record in forms for key in _keys(record)})
            records = [inner for annotation in records for inner in _inside(annotation, part)]
    return place, known


_NODES: dict[str, type[BaseModel]] = {USE: UseNode, REPEAT: RepeatNode}


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
