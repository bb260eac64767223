"""Validation errors as findings: what a value must be, in Weft's own words.

pydantic's messages are written for programmers; no message of Weft repeats them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationInfo
from pydantic_core import ErrorDetails

from .findings import Finding, did_you_mean, pointer, renamed
from .form import REPEAT, SHARE, USE, RepeatedTemplate, ShareNode, SpecForm, UseNode
from .text_edits import Fix, removing, replacing

LONGEST_SHOWN = 80
"""Maximum number of characters of a wrong value in a finding."""
_FIXED = {
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "string_type": "must be a string",
    "string_unicode": "must be a string of Unicode characters",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "bool_type": "must be true or false",
    "bool_parsing": "must be true or false",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "finite_number": "must be a finite number",
    "none_required": "must be null",
    "missing": "is missing",
    "extra_forbidden": "is not a known key",
    "string_pattern_mismatch": "is not a valid name",
    "json_invalid": "is not valid JSON",
    "json_type": "is not valid JSON",
    "recursion_loop": "is nested too deeply",
}
"""Type of a pydantic error to a clause that follows the name of the value."""
_BOUNDED = {
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "multiple_of": "must be a multiple of {multiple_of}",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "union_tag_invalid": "must have {discriminator} among {expected_tags}",
    "union_tag_not_found": "needs a {discriminator}",
    "string_too_long": "must have at most {max_length} characters",
}
"""Type of a pydantic error to a clause with places for the error's context."""


def describe(error: Mapping[str, Any]) -> str:
    """Return what is wrong with a value, as a clause that follows its name.

    Args:
        error: one entry of `ValidationError.errors()`.

    >>> describe({"type": "greater_than_equal", "ctx": {"ge": 1}})
    'must be at least 1'
    """
    kind, context = str(error["type"]), error.get("ctx", {})
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _BOUNDED:
        return _BOUNDED[kind].format_map({key: _plain(value) for key, value in context.items()})
    if kind in ("value_error", "assertion_error"):
        # The text of our own validators.
        return str(context.get("error", "")) or "is not valid"
    if kind == "string_too_short":
        least = context["min_length"]
        return "must not be empty" if least == 1 else f"must have at least {least} characters"
    if kind in ("too_short", "too_long"):
        return f"must be {_sized(kind, context)}"
    return "is not valid"


def error_clause(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong with a value that could have several forms, as a clause.

    Args:
        errors: the errors of the forms.

    >>> error_clause([{"type": "int_type"}, {"type": "list_type"}])
    'must be a whole number or a list'
    """
    clauses = list(dict.fromkeys(map(describe, errors)))
    if "must be a number" in clauses:
        clauses = [clause for clause in clauses if clause != "must be a whole number"]
    first, *others = clauses
    return alternatives([first, *(clause.removeprefix("must be ") for clause in others)])


def _plain(value: Any) -> Any:
    """Return a whole number without a decimal point: 1.0 as 1."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def expected(error: Mapping[str, Any]) -> str:
    """Return only what was expected, such as `a string`, or `""` if the clause says more."""
    clause = describe(error)
    return clause.removeprefix("must be ") if clause.startswith("must be ") else ""


def _sized(kind: str, context: Mapping[str, Any]) -> str:
    """Return the required size of a list or of an object."""
    keyed = context.get("field_type") == "Dictionary"
    thing, part = ("an object", "key") if keyed else ("a list", "entry")
    count = context["min_length" if kind == "too_short" else "max_length"]
    parts = part if count == 1 else {"key": "keys", "entry": "entries"}[part]
    side = "at least" if kind == "too_short" else "at most"
    return f"{thing} with {side} {'one' if count == 1 else count} {parts}"


_ROW = "start with a letter or digit; use letters, digits and '_.=,+-', at most 100 in all"
_NAMES = {
    "": "start with a letter; use letters, digits and '_', at most 64 in all",
    "axes": "start with a capital letter; use letters and digits, at most 16 in all",
    "name": "start with a letter or digit; use letters, digits and '_.-', at most 100 in all",
    **dict.fromkeys(("rows", "factors", "levels", "compare"), _ROW),
    "instead": "write the number of a copy, counted from 0, or a slice, such as '2::3'",
    "mtdata": "write group, name, version and languages, as in Statmt-newstest_deen-2014-deu-eng",
    "languages": "write an ISO 639-3 code, such as 'eng' or 'deu'",
}
"""Rules for names, by the key that contains them."""


_WAYS_OUT = {"string_too_short": "write some text, or remove it"}
"""Type of a pydantic error to its help, if the clause does not say what must be written."""


class SettingError(ValueError):
    """Raised by a validator of settings: what is wrong, where below the settings, and a way out."""

    def __init__(self, problem: str, *at: str | int, help_: str) -> None:
        """Store the problem, the keys that lead to the wrong setting, and the help."""
        super().__init__(problem)
        self.at, self.help = at, help_


class CombinedSettingError(SettingError):
    """Several errors of one validator; it has the problem, the keys and the help of the first."""

    def __init__(self, errors: Iterable[SettingError], *, complete: bool = False) -> None:
        """Store the errors.

        Args:
            errors: the errors, at least one.
            complete: whether each setting has the right form, but some do not fit together.
        """
        self.errors, self.complete = tuple(errors), complete
        first = self.errors[0]
        super().__init__(str(first), *first.at, help_=first.help)


class Forms:
    """Annotation of a value that is one of several records, selected by its `type`."""

    def forms(self) -> list[type[BaseModel]]:
        """Return the records."""
        raise NotImplementedError


class Keyed:
    """Record some of whose keys only installed packages tell."""

    unwritten: ClassVar[frozenset[str]] = frozenset()
    """Fields that hold such a key and its value, and are no keys themselves."""

    @classmethod
    def keyed(cls) -> Mapping[str, Any]:
        """Return the annotations of the values of these keys."""
        raise NotImplementedError


def keys_of(error: SettingError) -> tuple[object, ...]:
    """Return what identifies an error: the problem, and where it is."""
    return (str(error), *error.at)


def refuse(errors: Iterable[SettingError], info: ValidationInfo) -> None:
    """Raise all errors of a validator of complete settings at once.

    Raises:
        CombinedSettingError: there are errors that the context of the validation does not know.
    """
    reported: Collection[tuple[object, ...]] = info.context or ()
    if listed := [error for error in errors if keys_of(error) not in reported]:
        raise CombinedSettingError(listed, complete=True)


def own_errors(errors: list[ErrorDetails]) -> Iterator[ErrorDetails]:
    """Yield the errors but for lists and objects that are short only of their wrong entries."""
    places = [error["loc"] for error in errors]
    for error in errors:
        loc = error["loc"]
        inside = any(len(at) > len(loc) and at[: len(loc)] == loc for at in places)
        if error["type"] != "too_short" or not inside:
            yield error


def form_findings(
    error: ErrorDetails, form: type[BaseModel], value: Any, source: str
) -> Iterator[Finding]:
    """Yield the findings of one pydantic error: several if a validator raised several."""
    raised = error.get("ctx", {}).get("error")
    if not isinstance(raised, CombinedSettingError):
        yield form_finding(error, form, value, source)
        return
    for inner in raised.errors:
        context = {**error["ctx"], "error": inner}
        detail: Any = {**error, "ctx": context}
        yield form_finding(detail, form, value, source)


def alternatives(names: Sequence[str]) -> str:
    """Return names in prose.

    >>> alternatives(["adam", "adamw", "muon"])
    'adam, adamw or muon'
    """
    return " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def form_finding(error: ErrorDetails, form: type[BaseModel], value: Any, source: str) -> Finding:
    """Convert one pydantic error into a finding."""
    loc, candidates = error_place(error["loc"], form, value)
    at, last = pointer(*loc), str(loc[-1]) if loc else ""
    if error["type"] == "extra_forbidden":
        if others := _types_with(last, loc[:-1], form):
            chosen = _inner(value, [*loc[:-1], "type"])
            type_ = "the default type" if chosen is None else f"the type '{chosen}'"
            return Finding(
                code="S03",
                at=at,
                problem=f"key '{last}' does not belong to {type_}",
                help=f"remove it, or set 'type' to {alternatives(others)}",
                source=source,
                fix=removing(at),
            )
        beside = () if form is SpecForm else _at(value, loc[:-1])  # that of a spec may be merged
        return Finding(
            code="S03",
            at=at,
            problem=f"unknown key '{last}'",
            help=did_you_mean(last, candidates),
            source=source,
            fix=renamed(at, last, candidates, beside),
        )
    if error["type"] in _ABSENT:
        return _absent(error, loc, source)
    if error["type"] == "string_pattern_mismatch":
        return Finding(
            code="N06",
            at=at,
            problem=f"'{error['input']}' is not a valid name"[:120],
            help=_NAMES.get(_key_above(loc), _NAMES[""]),
            source=source,
        )
    expectation, clause = expected(error), describe(error)
    fix = _converted(at, error)
    subject = f"{_subject(loc)} " if loc else "the file "
    help_ = f"write {expectation}" if expectation else _WAYS_OUT.get(error["type"], "")
    inputs = [error["input"]]
    if isinstance(raised := error.get("ctx", {}).get("error"), SettingError):
        inner = [*loc, *raised.at]
        at, help_ = (pointer(*inner) if _has(value, inner) else at), raised.help
        if not loc:  # the whole file says nothing
            inputs = [_inner(value, inner)] if at else []
    return Finding(
        code="S04",
        at=at,
        problem=clause if error["type"] == "value_error" else subject + clause,
        evidence=tuple(f"given  {_json(value)}" for value in inputs),
        help=help_,
        source=source,
        fix=fix,
    )


_ABSENT = frozenset(["missing", "union_tag_invalid", "union_tag_not_found"])
"""Types of pydantic errors about a key that there is not, or that does not select a record."""


def _absent(error: ErrorDetails, loc: list[int | str], source: str) -> Finding:
    """Convert an error about a missing key, or about the key that selects a record."""
    at, evidence = pointer(*loc), tuple[str, ...]()
    if error["type"] == "missing":
        at, last = pointer(*loc[:-1]), loc[-1]
        problem, help_ = f"key '{last}' is missing", f"add '{last}'"
        if isinstance(last, int):
            problem = f"'{loc[-2]}' has only {_count(last)}"
            help_ = f"write at least {_count(last + 1)}"
    elif error["type"] == "union_tag_not_found":
        name = error["ctx"]["discriminator"]
        problem, help_ = f"{_subject(loc)} needs a {name}", f"add {name}"
    else:
        context, name = error["ctx"], str(error["ctx"]["discriminator"]).strip("'")
        at += pointer(name)
        problem = f"'{name}' must be one of {context['expected_tags']}"
        help_ = f"write one of {context['expected_tags']}"
        evidence = (f"given  {_json(context['tag'])}",)
    return Finding(code="S04", at=at, problem=problem, evidence=evidence, help=help_, source=source)


def _subject(loc: list[int | str]) -> str:
    """Return how a finding calls the value at a path: by its name, or by its place in a list."""
    if isinstance(loc[-1], int) and len(loc) > 1:
        return f"entry {loc[-1]} of '{loc[-2]}'"
    return f"'{loc[-1]}'"


def _count(number: int) -> str:
    return "1 entry" if number == 1 else f"{number} entries"


def _has(value: Any, loc: list[int | str]) -> bool:
    """Return whether there is a value at a path."""
    for key in loc:
        keys = range(len(value)) if isinstance(value, list) else value
        if not isinstance(keys, dict | range) or key not in keys:
            return False
        value = value[key]
    return True


def _inner(value: Any, loc: list[int | str]) -> Any:
    """Return the value at a path; None if there is none."""
    for key in loc:
        inside = isinstance(value, dict) and key in value
        value = value[key] if inside or isinstance(value, list) else None
    return value


def _at(value: Any, loc: list[int | str]) -> list[str]:
    """Return the keys of the object at a path; none if there is no object."""
    record = _inner(value, loc)
    return list(record) if isinstance(record, dict) else []


def converted(at: str, target: str, written: Any) -> Fix | None:
    """Return the fix that writes a value in the type that is wanted, if it is the same value.

    Args:
        at: JSON Pointer of the value.
        target: beginning of the type of a pydantic error: `int`, `float`, `bool` or `tuple`.
        written: the value as written.
    """
    if isinstance(written, str) and target in ("int", "float", "bool"):
        try:
            value = json.loads(written)
        except ValueError:
            return None
        types = {"int": (int,), "float": (int, float), "bool": (bool,)}[target]
        if isinstance(value, types) and (target == "bool" or not isinstance(value, bool)):
            return replacing(at, value, certain=True)
    if isinstance(written, float) and target == "int" and written.is_integer():
        return replacing(at, int(written), certain=True)
    if isinstance(written, str) and target in ("tuple", "list"):
        return replacing(at, [written], certain=True)
    return None


def _converted(at: str, error: Mapping[str, Any]) -> Fix | None:
    return converted(at, str(error["type"]).partition("_")[0], error.get("input"))


def _key_above(loc: list[int | str]) -> str:
    """Return the key that determines which rule applies to the name at a place."""
    if loc[-2:-1] and loc[-2] in ("instead", "mtdata", "languages", "factors", "levels"):
        return str(loc[-2])
    return str(loc[0]) if loc else ""


def _json(value: Any) -> str:
    """Return a value as JSON, shortened."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= LONGEST_SHOWN else f"{text[: LONGEST_SHOWN - 4]} ..."


def error_place(
    location: tuple[int | str, ...], form: type[BaseModel], value: Any
) -> tuple[list[int | str], list[str]]:
    """Remove pydantic's own tags from a location, and list the known keys at its end."""
    loc: list[int | str] = []
    records: list[Any] = [form]
    candidates: list[str] = []
    current = value
    for index, part in enumerate(location):
        if part in _NODES:
            records = [_NODES[str(part)]]
            continue
        inside = (isinstance(current, dict) and part in current) or (
            isinstance(current, list) and isinstance(part, int) and part < len(current)
        )
        if inside:
            current = current[part]
        elif any(part in _types(model) for model in _forms(records)):
            continue  # the chosen member of a union, as in ("text", "bpe", "vocab_size")
        keys = {key for record in _forms(records) for key in _keys(record)}
        absent = part in keys or (isinstance(part, int) and isinstance(current, list))
        if inside or (index == len(location) - 1 and absent):
            loc.append(part)
            candidates = sorted(keys)
            records = _selected(
                [inner for annotation in records for inner in _inside(annotation, part)], current
            )
    return loc, candidates


def _selected(records: list[Any], value: Any) -> list[Any]:
    """Return the records of a union that the `type` of a value selects; all if it selects none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return [form for form in _forms(records) if kind in _types(form)] or records


def _types(form: type[BaseModel]) -> tuple[Any, ...]:
    """Return the values of `type` that select a record of a union."""
    field = form.model_fields.get("type")
    return get_args(field.annotation) if field else ()


def _types_with(key: str, loc: list[int | str], form: type[BaseModel]) -> list[str]:
    """Return the types of the records of a union at a place that have a key."""
    records: list[Any] = [form]
    for part in loc:
        records = [inner for annotation in records for inner in _inside(annotation, part)]
    forms = _forms(records)
    return [str(name) for model in forms if key in _keys(model) for name in _types(model)]


def _forms(annotations: list[Any]) -> list[type[BaseModel]]:
    """Return the records among some annotations."""
    return [
        annotation
        for annotation in annotations
        if isinstance(annotation, type) and issubclass(annotation, BaseModel)
    ]


_NODES: dict[str, type[BaseModel]] = {USE: UseNode, REPEAT: RepeatedTemplate, SHARE: ShareNode}


def _keys(form: type[BaseModel]) -> dict[str, Any]:
    keys = {
        field.alias or name: Annotated[field.annotation, field, *field.metadata]
        for name, field in form.model_fields.items()
    }
    if issubclass(form, Keyed):
        keys = {key: value for key, value in keys.items() if key not in form.unwritten}
        keys |= form.keyed()
    return keys


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
        inner, *notes = get_args(annotation)
        forms = [form for note in notes if isinstance(note, Forms) for form in note.forms()]
        return forms or _choices(inner)
    if get_origin(annotation) in (Union, UnionType):
        return [inner for member in get_args(annotation) for inner in _choices(member)]
    return [annotation]
