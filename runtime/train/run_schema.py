"""JSON Schema of a run file, with which an editor completes and validates settings."""

from __future__ import annotations

from typing import Any

from ...graphs.json_schema import DRAFT
from ...specs.reader import FOR_EDITORS
from .run import Run


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of a run file, with the settings in the order of the class."""
    schema = Run.model_json_schema()
    properties = {FOR_EDITORS: {"type": "string"}, **schema["properties"]}
    return {"$schema": DRAFT, **schema, "title": "A run of weft", "properties": properties}
