"""Generation settings of a checkpoint as `generation_config.json`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .....plugin import (
    PREDICTORS,
    Checkpoint,
    InputError,
    position_limits,
    search_of,
    special_tokens_of,
)
from ...importing.generation import written_generation

LONGEST = 511
"""Maximum length of an output, where that of the search depends on the length of the source."""


def generation_config(
    checkpoint: Checkpoint, tokens: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the content of `generation_config.json`, and notes on settings without counterpart.

    Args:
        checkpoint: the exported checkpoint.
        tokens: its begin, end and padding ids, as far as they are known.
    """
    graph = checkpoint.graph
    if graph.step_axis is None:
        return {}, []
    imported = checkpoint.state.get("imported", {})
    special_ids = dict(tokens)
    if not imported:
        # These ids are never written by Weft's search.
        try:
            special = special_tokens_of(checkpoint)
            special_ids["never"] = {special.begin, special.pad, *special.never} - {special.end}
        except InputError:
            pass
    ids = [type_ for type_ in graph.inputs.values() if type_.kind == "ids"]
    predict = checkpoint.run.get("predict") or {"type": "beam", **imported.get("search", {})}
    return written_generation(
        special_ids,
        search_of(PREDICTORS.parse(predict, str(checkpoint.folder))),
        imported.get("generate", {}),
        decodes=len(ids) > 1 or len(graph.inputs) > 1,
        longest=min([LONGEST, *(limit - 1 for limit in position_limits(graph))]),
    )
