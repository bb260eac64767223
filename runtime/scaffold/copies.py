"""Copies of specs to edit: `weft new spec --from transformer-base` and `weft.new_spec`."""

from __future__ import annotations

import json
from pathlib import Path

from ...specs.files import write_beside
from ...specs.findings import SpecError
from ...specs.layout import laid_out
from ...specs.load import inlined, load
from ..spec.check import analysed
from .runs import refuse_old


def new_spec(parent: str | Path, *, name: str = "", out: str | Path | None = None) -> Path:
    """Write a copy of a spec, in one file, with its params and formulas.

    What it extends is written out, and so are the specs that its params hold.

    Args:
        parent: a path, or a shipped name such as `transformer-base`.
        name: name of the copy; default: `my-NAME`.
        out: the file to write; default: `NAME.json`.

    Raises:
        InputError: there is no such spec, or the file exists.
        SpecError: the spec has mistakes.
    """
    loaded = load(parent)
    graph, findings = analysed(loaded)
    if graph is None:
        raise SpecError(findings)
    value = loaded.value()
    name = name or f"my-{value['name']}"
    path = Path(out or f"{name}.json")
    refuse_old(path)
    value |= {"name": name}
    if "params" in value:
        value["params"] = {
            key: inlined(param, loaded.source) for key, param in value["params"].items()
        }
    text = laid_out(json.dumps(value, ensure_ascii=False))
    write_beside(path, text.encode(), "spec")
    return path
