"""Fixtures: transformer-base as JSON with edits, its graph and its findings."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.specs.load import loaded
from weft.specs.reader import SHIPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from weft.graphs.ir.graph import Graph
    from weft.specs.findings import Finding

BASE = json.loads((SHIPPED / "models" / "transformer-base.json").read_text(encoding="utf-8"))


def place(value: Any, pointer: str) -> tuple[Any, Any]:
    """Return the record that contains a pointer's value, and the key in it."""
    *way, last = (part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))
    for part in way:
        value = value[int(part)] if isinstance(value, list) else value.setdefault(part, {})
    return value, int(last) if isinstance(value, list) else last


def edited(edit: Mapping[str, Any], remove: Iterable[str] = ()) -> dict[str, Any]:
    """Return transformer-base with some pointers set and some removed."""
    spec = copy.deepcopy(BASE)
    for pointer, value in edit.items():
        record, key = place(spec, pointer)
        if isinstance(record, list) and key == len(record):
            record.append(value)
        else:
            record[key] = copy.deepcopy(value)
    for pointer in remove:
        record, key = place(spec, pointer)
        del record[key]
    return spec


@pytest.fixture
def edit() -> Callable[..., dict[str, Any]]:
    """Return `edited`."""
    return edited


@pytest.fixture
def graph_of() -> Callable[..., Graph]:
    """Return a function that maps a spec as JSON, and overrides, to its graph."""

    def graph(spec: Mapping[str, Any], **overrides: Any) -> Graph:
        return check(loaded(spec).form, registry(), overrides)

    return graph


@pytest.fixture
def findings_of() -> Callable[..., list[Finding]]:
    """Return a function that maps a spec as JSON, and overrides, to its findings."""

    def findings(spec: Mapping[str, Any], **overrides: Any) -> list[Finding]:
        return analyse(loaded(spec).form, registry(), overrides)[1]

    return findings
