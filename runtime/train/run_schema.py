"""JSON Schema of a run file, with which an editor completes and validates settings."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from ...graphs.json_schema import DRAFT
from ...specs.reader import FOR_EDITORS
from ...specs.upgrade import OBJECTIVE_FORMAT
from .objective.settings import ObjectiveRun
from .run import Run

_FIRST = ("name", "doc")
"""Settings that a run begins with."""


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of a run file: of a task (format 2) or of an objective (format 3)."""
    (task, objective), defs = run_schemas()
    for name in (task, objective):
        defs[name]["properties"] = {FOR_EDITORS: {"type": "string"}, **defs[name]["properties"]}
    is_objective = {"properties": {"format": {"const": OBJECTIVE_FORMAT}}, "required": ["format"]}
    return {
        "$schema": DRAFT,
        "title": "A run of weft",
        "type": "object",
        "if": is_objective,
        "then": {"$ref": f"#/$defs/{objective}"},
        "else": {"$ref": f"#/$defs/{task}"},
        "$defs": defs,
    }


def run_schemas() -> tuple[tuple[str, str], dict[str, Any]]:
    """Return the names of both kinds of runs, and all definitions by name.

    The settings of a run are in the order in which people write them: its name, what it trains,
    and then those that all runs have.
    """
    kinds: tuple[type[BaseModel], ...] = (Run, ObjectiveRun)
    found, schema = models_json_schema([(kind, "validation") for kind in kinds])
    defs = dict(schema["$defs"])
    names = [found[kind, "validation"]["$ref"].rpartition("/")[2] for kind in kinds]
    for kind, name in zip(kinds, names, strict=True):
        defs[name] = {**defs[name], "properties": _ordered(kind, defs[name]["properties"])}
    return (names[0], names[1]), defs


def _ordered(kind: type[BaseModel], properties: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a class: the first ones, its own, and those of its base classes."""
    own = [name for name in kind.__annotations__ if name in properties]
    order = dict.fromkeys((*_FIRST, *own, *properties))
    return {name: properties[name] for name in order}
