"""Keys and values that the JSON Schema of a file permits at a place."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from ....plugin import DOCUMENTS, document_of
from ....specs.form import Kind

Schema = Mapping[str, Any]
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


@functools.cache
def schema_of(kind: Kind) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, that of specs if the kind has none."""
    return document_of(kind if kind in DOCUMENTS.names() else "spec").json_schema()


def at(kind: Kind, value: Any, path: tuple[str, ...], *, blank: bool = False) -> list[Schema]:
    """Return the schemas that apply to the value at a path.

    Args:
        kind: kind of the file.
        value: the file as JSON data; it decides which alternatives apply.
        path: keys and indices, of which the last one need not exist in the value.
        blank: whether the value at the path is about to be replaced, and excludes nothing.
    """
    top = schema_of(kind)
    schemas = list(_expanded(top, top, value))
    for depth, key in enumerate(path, 1):
        value = None if blank and depth == len(path) else _inner(value, key)
        below = [inner for schema_ in schemas for inner in _entry(schema_, key)]
        schemas = [branch for schema_ in below for branch in _expanded(top, schema_, value)]
    return schemas


def properties(kind: Kind, value: Any, path: tuple[str, ...]) -> dict[str, Schema]:
    """Return the keys that the object at a path may have, each with its schema."""
    top, merged = schema_of(kind), dict[str, Schema]()
    for subschema in at(kind, value, path):
        for key, inner in subschema.get("properties", {}).items():
            earlier = merged.get(key, {})
            merged[key] = {**_resolved(top, inner), **inner, **earlier}
    return merged


def choices(schemas: list[Schema]) -> dict[Any, str]:
    """Return the values that some schemas list, each with its description."""
    listed: dict[Any, str] = {}
    for subschema in schemas:
        if "const" in subschema and _plain(subschema["const"]):
            listed.setdefault(subschema["const"], subschema.get("description", ""))
        docs = subschema.get("enumDescriptions", [])
        for index, choice in enumerate(subschema.get("enum", ())):
            if _plain(choice):
                listed.setdefault(choice, docs[index] if index < len(docs) else "")
        if subschema.get("type") == "boolean":
            listed |= {True: "", False: ""}
    return listed


def fits(schemas: list[Schema], value: Any) -> bool:
    """Return whether a value may be permitted by one of some schemas; limits are not checked."""
    typed = [subschema for subschema in schemas if {"type", "enum", "const"} & subschema.keys()]
    return any(_possible(subschema, value) for subschema in typed)


def _plain(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) or value is None


def _inner(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None


def _entry(schema_: Schema, key: str) -> Iterator[Schema]:
    """Yield the schemas of an entry of an object or a list."""
    if key in schema_.get("properties", {}):
        yield schema_["properties"][key]
        return
    yield from schema_.get("patternProperties", {}).values()
    if not schema_.get("patternProperties") and isinstance(
        schema_.get("additionalProperties"), dict
    ):
        yield schema_["additionalProperties"]
    if key.isdecimal():
        listed = schema_.get("prefixItems", ())
        if int(key) < len(listed):
            yield listed[int(key)]
        elif isinstance(schema_.get("items"), dict):
            yield schema_["items"]


def _resolved(top: Schema, schema_: Schema) -> Schema:
    """Return the schema that a reference names."""
    node: Any = schema_
    for _ in range(16):
        if "$ref" not in node:
            break
        target: Any = top
        for part in node["$ref"].split("/")[1:]:
            target = target[part.replace("~1", "/").replace("~0", "~")]
        node = target
    return node  # type: ignore[no-any-return]


def _expanded(top: Schema, schema_: Schema, value: Any, depth: int = 0) -> Iterator[Schema]:
    """Yield a schema and those that it combines, as far as the value does not exclude them."""
    if depth > 24:  # noqa: PLR2004 - schemas that hold themselves end somewhere
        return
    if "$ref" in schema_:
        yield from _expanded(top, _resolved(top, schema_), value, depth + 1)
    yield schema_
    for subschema in schema_.get("allOf", ()):
        yield from _expanded(top, subschema, value, depth + 1)
    if "if" in schema_:
        branch = schema_.get("then" if _holds(top, schema_["if"], value) else "else")
        if branch:
            yield from _expanded(top, branch, value, depth + 1)
    for word in ("anyOf", "oneOf"):
        for alternative in schema_.get(word, ()):
            if value is None or _possible(_resolved(top, alternative), value):
                yield from _expanded(top, alternative, value, depth + 1)


def _holds(top: Schema, condition: Schema, value: Any) -> bool:
    """Return whether a condition of `if` holds; conditions use only these words."""
    condition = _resolved(top, condition)
    if "not" in condition and _holds(top, condition["not"], value):
        return False
    if "anyOf" in condition and not any(
        _holds(top, branch, value) for branch in condition["anyOf"]
    ):
        return False
    return _possible(condition, value, strict=True)


def _possible(schema_: Schema, value: Any, *, strict: bool = False) -> bool:
    """Return whether nothing excludes a value: its type, its required keys, or constants in it."""
    types = schema_.get("type")
    if isinstance(types, str):
        number = isinstance(value, bool) and types in ("integer", "number")
        if number or not isinstance(value, _TYPES[types]):
            return False
    if "const" in schema_ and schema_["const"] != value:
        return False
    if "enum" in schema_ and value not in schema_["enum"]:
        return False
    if not isinstance(value, dict):
        return True
    if strict and any(key not in value for key in schema_.get("required", ())):
        return False
    return all(
        value[key] == inner["const"]
        for key, inner in schema_.get("properties", {}).items()
        if key in value and isinstance(inner, dict) and "const" in inner
    )
