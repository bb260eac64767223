"""Read JSON files into validated records, reporting every mistake of form at once.

Reading an untrusted file never executes anything: only JSON of limited size and depth is
accepted, duplicate keys are errors, and no name in a file is imported.
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
from .wording import describe, expected

LARGEST = 384 << 10
"""Maximum bytes of a spec or run file; 1,000 nodes, written out in full, take 300,000."""
DEEPEST = 64
"""Maximum nesting depth of objects and lists."""
SHIPPED = Path(__file__).parent
"""Directory of the shipped specs and runs."""
LONGEST_SHOWN = 80
"""Maximum number of characters of a wrong value in a finding."""
LONGEST_NUMBER = 400
"""Maximum number of characters in a number."""
FOR_EDITORS = "$schema"
"""A key of a spec file that names its JSON Schema for editors; the reader ignores it."""

_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
"""A string, whose brackets do not count, or a bracket."""

Form = TypeVar("Form", bound=BaseModel)


def shipped_names(*folders: str) -> dict[str, Path]:
    """Return the shipped files of the folders `specs/<folder>/` by name."""
    return {
        path.stem: path for folder in folders for path in sorted((SHIPPED / folder).glob("*.json"))
    }


def find(name: str, *folders: str) -> Path:
    """Return the file at a path, or the shipped file of that name.

    Raises:
        InputError: neither exists.
    """
    path, known = Path(name), shipped_names(*folders)
    try:
        if path.exists() and not path.is_dir():  # also a pipe, such as <(...) of a shell
            return path
        if path.is_dir() and name not in known:
            raise InputError("this is a folder", place=name, help="give the path of a file in it")
        siblings = [str(p) for p in path.parent.glob("*.json")] if path.parent.is_dir() else []
    except (OSError, ValueError) as error:
        raise InputError("this is not a valid file name", place=name[:80]) from error
    if name in known:
        return known[name]
    matches = [file for file in siblings if Path(file) == Path(f"{name}.json")]
    siblings = [file for file in siblings if Path(file) != path]
    help_ = f"did you mean '{matches[0]}'?" if matches else ""
    if "/" in name or name.endswith(".json") or not folders:
        raise InputError("no such file", place=name, help=help_ or did_you_mean(name, siblings))
    problem = f"'{name}' is neither a file nor shipped with weft"
    raise InputError(problem, help=help_ or did_you_mean(name, known))


def read_text(path: Path, largest: int = LARGEST) -> str:
    """Return the text of a JSON file of limited size.

    Args:
        path: the file.
        largest: maximum size in bytes.

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
    """Parse a JSON text.

    Args:
        text: content of the file.
        source: name of the file, for findings.

    Raises:
        SpecError: the text is not JSON, is nested too deeply, or has a duplicate key.
    """

    def fail(code: str, problem: str, help_: str) -> SpecError:
        return SpecError([Finding(code=code, at="", problem=problem, help=help_, source=source)])

    if _depth(text) > DEEPEST:
        help_ = "move the inner part into a template"
        raise fail("S06", f"nested more than {DEEPEST} levels deep", help_)
    duplicates: list[tuple[str, dict[str, Any]]] = []

    def collect_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for key, value in pairs:
            if key in record:
                duplicates.append((key, record))
            record[key] = value
        return record

    try:
        value = json.loads(
            text,
            object_pairs_hook=collect_duplicates,
            parse_int=_integer,
            parse_float=_real,
            parse_constant=_refuse,
        )
    except json.JSONDecodeError as error:
        message, place = error.msg[:1].lower() + error.msg[1:], f"{error.lineno}:{error.colno}"
        help_ = f"look at line {error.lineno}, column {error.colno}"
        raise fail("S01", f"not JSON: {message} at {place}", help_) from error
    except ValueError as error:
        raise fail("S01", f"not JSON: {error}", "write a finite number") from error
    if duplicates:
        places = _records(value)
        findings = (
            Finding(
                code="S02",
                at=places[id(record)] + pointer(key),
                problem=f"duplicate key '{key}'",
                help="keep one of the two",
                source=source,
            )
            for key, record in duplicates
            if id(record) in places  # otherwise a later duplicate replaced its parent
        )
        raise SpecError(at_most(findings, source))
    return value


def _depth(text: str) -> int:
    """Return the nesting depth of objects and lists; stop counting above `DEEPEST`."""
    depth = deepest = 0
    for mark in _MARK.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(mark[0], 0)
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            break
    return deepest


def _integer(digits: str) -> int:
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
    """Return the pointer of every object inside a value, by `id`."""
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
    """Validate a JSON value as the given record, after upgrading it from an older format.

    Args:
        form: class of the record.
        value: any JSON value.
        source: name of its file, for findings.
        formats: older format to its upgrader; by default the upgraders of specs.

    Raises:
        SpecError: every invalid place in the value, or every part that is too large.
    """
    if not isinstance(value, dict):
        finding = Finding(code="S04", at="", problem="the file is not a JSON object", source=source)
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
                    problem=f"unknown format {json.dumps(found)[:20]}",
                    evidence=(f"this version of weft reads format {FORMAT}",),
                    help="update weft to read a newer format",
                    source=source,
                )
            ]
        )
    if "format" in form.model_fields:  # only complete files have this key
        value = {key: inner for key, inner in value.items() if key != FOR_EDITORS}
    if form is Spec:
        _bounded(value, source)
    try:
        return form.model_validate(value)
    except ValidationError as errors:
        findings = (form_finding(error, form, value, source) for error in errors.errors())
        raise SpecError(at_most(findings, source)) from None


def read_value(path: Path) -> Any:
    """Return the JSON value of a spec file (standalone or a child) in the current format.

    Raises:
        InputError: the file cannot be read.
        SpecError: the text is not valid JSON, or the value is too large.
    """
    value = read_json(read_text(path), str(path))
    if not isinstance(value, dict):
        return value
    _bounded(value, str(path))
    return upgrade_format(value)[0]


def _bounded(value: dict[str, Any], source: str) -> None:
    """Raise SpecError if a part of a spec exceeds a size limit."""
    beyond = at_most(beyond_bounds(value, source), source)
    if beyond:
        raise SpecError(beyond)


_NAMES = {
    "": "start with a letter; use letters, digits and '_', at most 64 in all",
    "axes": "start with a capital letter; use letters and digits, at most 16 in all",
    "name": "start with a letter or digit; use letters, digits and '_.-', at most 100 in all",
    "instead": "write the number of a copy, counted from 0, such as '4'",
}
"""Rules for names, by the key that contains them."""


def form_finding(error: ErrorDetails, form: type[BaseModel], value: Any, source: str) -> Finding:
    """Convert one pydantic error into a finding."""
    place, known = error_place(error["loc"], form, value)
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
            problem=f"'{error['input']}' is not a valid name"[:120],
            help=_NAMES.get(_key_above(place), _NAMES[""]),
            source=source,
        )
    wanted, clause = expected(error), describe(error)
    subject = f"'{last}' " if last else "the file "
    return Finding(
        code="S04",
        at=at,
        problem=clause if error["type"] == "value_error" else subject + clause,
        evidence=(f"given  {_json(error['input'])}",),
        help=f"write {wanted}" if wanted else "",
        source=source,
    )


def _key_above(place: list[int | str]) -> str:
    """Return the key that determines which rule applies to the name at a place."""
    if place[-2:-1] == ["instead"]:
        return "instead"
    return str(place[0]) if place else ""


def _json(value: Any) -> str:
    """Return a value as JSON, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 4]} ..."


def error_place(
    location: tuple[int | str, ...], form: type[BaseModel], value: Any
) -> tuple[list[int | str], list[str]]:
    """Remove pydantic's own tags from a location, and list the known keys at its end."""
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
    """Return the possible annotations of the value under a key of an annotated value."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        keys = _keys(annotation)
        return _choices(keys[part]) if part in keys else []
    arguments = get_args(annotation)
    if get_origin(annotation) is dict:
        return _choices(arguments[1])
    return _choices(arguments[0]) if arguments else []


def _choices(annotation: Any) -> list[Any]:
    """Return the members of a union, without `Annotated` wrappers."""
    if get_origin(annotation) is Annotated:
        return _choices(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in _choices(member)]
    return [annotation]
