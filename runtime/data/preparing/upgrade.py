"""Conversion of the data settings of run format 2 to format 3.

Format 2 has pairs of texts, `source` and `target`; format 3 has named columns.  The converted
settings give the same files of tokenizers, the same ids and the same order of batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_TREES = ("decoder", "linearization", "clean", "malformed")
"""Keys of `parsing` that determine the records of treebanks."""


def upgrade_data(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return `data` and `tokenizers` of format 3 for a run of format 2.

    Unknown keys are kept, so that the reader reports them.

    Args:
        run: a run of format 2, with `data`, `tokenizer` and possibly `task` and `parsing`; it is
            not modified.

    Returns:
        An object with the keys `data` and `tokenizers`.
    """
    parsing: Mapping[str, Any] = run.get("parsing", {}) if run.get("task") == "parsing" else {}
    is_parsing = run.get("task") == "parsing"
    tokenizer = {"type": "bpe", **run["tokenizer"]}
    target = tokenizer.pop("target", None) or ("symbols" if is_parsing else "pieces")
    shared = tokenizer.pop("shared", True) and target == "pieces"
    tokenizers: dict[str, Any] = {"tokenizer": tokenizer}
    if not shared:
        tokenizers = {"source": tokenizer, "target": tokenizer}
    if target == "symbols":
        symbols = {"type": "symbols", "spelling": "source"}
        if _copies(parsing) and is_parsing:
            symbols["only"] = "brackets"
        tokenizers = {"source": tokenizer, "target": symbols}
    names = ("tokenizer", "tokenizer") if shared else ("source", "target")
    data = dict(run["data"])
    trees = {key: parsing[key] for key in _TREES if key in parsing}
    if is_parsing and target == "pieces":
        trees["pieces"] = True
    data["columns"] = {
        side: {"type": "text", "tokenizer": name}
        for side, name in zip(("source", "target"), names, strict=True)
    }
    for key in ("train", "valid"):
        if key in data:
            data[key] = _split(data[key], trees)
    if "test" in data:
        data["test"] = {name: _split(files, trees) for name, files in data["test"].items()}
    data["filter"] = {"max_length": 250, **data.get("filter", {})}
    return {"data": data, "tokenizers": tokenizers}


def _copies(parsing: Mapping[str, Any]) -> bool:
    """Return whether targets contain words, which are not symbols."""
    decoder, form = parsing.get("decoder", "sequence"), parsing.get("linearization", "vinyals")
    return (decoder, form) == ("sequence", "top_down")


def _split(files: Mapping[str, Any], trees: Mapping[str, Any]) -> dict[str, Any]:
    """Return the split of format 3 for files of format 2."""
    left = dict(files)
    made: dict[str, Any] = {}
    if left.get("mtdata"):
        made["mtdata"] = {"names": left.pop("mtdata"), "languages": left.pop("languages")}
        if digests := left.pop("digests", None):
            made["mtdata"]["digests"] = digests
    elif left.get("trees"):
        made["trees"] = {"files": left.pop("trees"), **trees}
    else:
        made["lines"] = {side: left.pop(side) for side in ("source", "target") if side in left}
    weights = left.pop("weights", None)
    if weights is not None:
        made["weights"] = weights
    return {**made, **{key: value for key, value in left.items() if value}}
