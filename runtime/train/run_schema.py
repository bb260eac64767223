"""The JSON Schema of a run file, from which an editor completes and checks settings."""

from __future__ import annotations

from typing import Any

from ...graphs.json_schema import DRAFT
from ...specs.reader import FOR_EDITORS
from .run import Run


def run_schema() -> dict[str, Any]:
    """Return the JSON Schema of a run file."""
    whole = Run.model_json_schema()
    properties = {FOR_EDITORS: {"type": "string"}, **whole["properties"]}
    return {
        "$schema": DRAFT,
        **whole,
        "title": "A run of weft",
        "properties": properties,
    }
