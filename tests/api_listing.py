"""The public API as text: a line for each name, and one for each public member of its class."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterator

import weft
from pydantic import BaseModel


def listing() -> list[str]:
    """Return names, signatures, fields and members of everything that `weft` exports."""
    return [line for name in vars(weft)["__all__"] for line in _lines(name, getattr(weft, name))]


def _lines(name: str, found: object) -> Iterator[str]:
    if not isinstance(found, type):
        yield name if isinstance(found, str) else f"{name}{_signature(found)}"
        return
    base = next((one.__name__ for one in found.__mro__[1:] if _is_ours(one)), "")
    yield f"class {name}({base})" if base else f"class {name}"
    for field in _fields(found):
        yield f"{name}.{field}"
    for member in sorted(set(dir(found)) - {*_names(found)}):
        owner = next((one for one in found.__mro__ if member in vars(one)), object)
        if member.startswith("_") or not _is_ours(owner):
            continue
        value = inspect.getattr_static(found, member)
        if isinstance(value, property):
            yield f"{name}.{member}: property"
        elif callable(getattr(found, member)):
            yield f"{name}.{member}{_signature(getattr(found, member))}"


def _is_ours(kind: type) -> bool:
    return kind.__module__.startswith("weft.")


def _signature(function: object) -> str:
    """Return a signature without the addresses of default values."""
    assert callable(function)
    return re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", str(inspect.signature(function)))


def _names(kind: type) -> list[str]:
    """Return the names of a record's fields, in order."""
    if issubclass(kind, BaseModel):
        return list(kind.model_fields)
    if dataclasses.is_dataclass(kind):
        return [field.name for field in dataclasses.fields(kind)]
    return list(getattr(kind, "_fields", ()))


def _fields(kind: type) -> Iterator[str]:
    """Yield the fields of a record with their types as they are written."""
    types = (
        {field.name: field.type for field in dataclasses.fields(kind)}
        if (dataclasses.is_dataclass(kind))
        else {}
    )
    for name in _names(kind):
        yield f"{name}: {types[name]}" if name in types else name
