"""Which JSON files are Weft's: others are left alone, whatever keys they have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath
from typing import Any

from ....specs.form import kind_of

_KEYS = frozenset(
    (
        "name",
        "doc",
        "axes",
        "inputs",
        "outputs",
        "nodes",
        "blocks",
        "params",
        "extends",
        "patch",
        "init",
        "ties",
        "deploy",
        "require",
        "objective",
        "data",
        "tokenizers",
        "batch",
        "updates",
        "schedule",
        "optimizer",
        "evaluate",
        "checkpoint",
        "predict",
        "answers",
        "run",
        "rows",
        "grid",
        "search",
        "seeds",
        "metrics",
        "tests",
        "match",
        "baseline",
        "spec",
        "model_type",
        "architectures",
        "weights",
        "prefix",
        "ignore",
    )
)
"""Keys of specs, runs, studies and import tables, besides `format`."""
_LEAST = 2
"""Least number of them in a file that is Weft's."""


def is_ours(value: Any, path: str, files: Sequence[str] = ()) -> bool:
    """Return whether the value of a JSON file is a spec, a run, a study or an import table.

    It has the key `format` with the number of a version, and several keys of such a file; or the
    settings of the editor name it.

    Args:
        value: the value, also of a text that is not complete.
        path: path of the file.
        files: patterns of paths that the settings name, such as `**/models/*.json`.
    """
    if not isinstance(value, dict):
        return False
    if any(PurePath(path).match(pattern) for pattern in files):
        return True
    if kind_of(value) == "other" or type(value.get("format")) is not int:
        return False
    return len(value.keys() & _KEYS) >= _LEAST
