"""Answers of a predictor as JSON data and back, so that processes exchange them without pickle.

Texts, numbers, lists and dictionaries stay what they are.  Tuples, arrays and records (dataclasses,
such as a parse) are written as objects with one key that JSON data of answers do not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

_TUPLE, _ARRAY, _RECORD, _DICT = "$tuple", "$array", "$record", "$dict"


def encoded(value: Any) -> Any:
    """Return an answer as JSON data.

    Raises:
        TypeError: a part of it is of a type that cannot be exchanged.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list):
        return [encoded(part) for part in value]
    return _wrapped(value)


def _wrapped(value: Any) -> dict[str, Any]:
    """Return a value that JSON data cannot express as an object that names its kind."""
    if isinstance(value, dict):
        return {_DICT: [[encoded(key), encoded(part)] for key, part in value.items()]}
    if isinstance(value, np.ndarray):
        return {_ARRAY: [value.dtype.str, value.tolist()]}
    if type(value) is tuple:
        return {_TUPLE: [encoded(part) for part in value]}
    kind = type(value)
    if not is_dataclass(value):
        msg = f"answers of the type '{kind.__name__}' cannot be sent to another process"
        raise TypeError(msg)
    parts = {field.name: encoded(getattr(value, field.name)) for field in fields(value)}
    return {_RECORD: [kind.__module__, kind.__qualname__, parts]}


def decoded(data: Any) -> Any:
    """Return the answer of JSON data; a record only of a class that is imported already."""
    if isinstance(data, list):
        return [decoded(part) for part in data]
    if isinstance(data, dict):
        [(kind, content)] = data.items()
        return _READERS[kind](content)
    return data


def _record(content: Any) -> Any:
    module, name, parts = content
    kind = getattr(sys.modules[module], name)
    if not is_dataclass(kind) or not isinstance(kind, type):
        msg = f"'{name}' is no record"
        raise TypeError(msg)
    return kind(**{key: decoded(part) for key, part in parts.items()})


_READERS: dict[str, Callable[[Any], Any]] = {
    _TUPLE: lambda content: tuple(map(decoded, content)),
    _ARRAY: lambda content: np.array(content[1], dtype=content[0]),
    _DICT: lambda content: {decoded(key): decoded(part) for key, part in content},
    _RECORD: _record,
}
