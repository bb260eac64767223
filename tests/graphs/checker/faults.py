"""Specs with one mistake, and the findings of a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.findings import Finding, SpecError
from weft.specs.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Count = Callable[[Callable[[], object]], int]

    Edit = Callable[..., dict[str, Any]]
    FindingsOf = Callable[..., list[Finding]]


FAULTS = json.loads((Path(__file__).parents[1] / "faults.json").read_text(encoding="utf-8"))
ENCODER = "/blocks/encoder_layer/nodes"
DECODER = "/blocks/decoder_layer/nodes"


def text_of(fault: Mapping[str, Any], edit: Edit) -> str:
    """Return the text of the spec with one fault."""
    if "text" in fault:
        return str(fault["text"])
    if fault.get("make") == "many":
        wrong = {"use": "linear@1", "params": {"d_out": 0}}
        return json.dumps(edit({f"/nodes/n{i}": wrong for i in range(300)}))
    if fault.get("make") == "written":
        return json.dumps(edit({f"/nodes/n{i}": {"use": "linear@1"} for i in range(984)}))
    if fault.get("make") == "deep":
        return json.dumps(edit(deep(40)))
    return json.dumps(edit(fault.get("edit", {}), fault.get("remove", ())))


def deep(levels: int) -> dict[str, Any]:
    """Return edits that nest the encoder's layer inside templates."""
    ports = {"x": "f[B S d_model]", "mask": "mask[B S]"}
    wires = {"x": "x", "mask": "mask"}
    below = [*(f"deep{i}" for i in range(1, levels)), "encoder_layer"]
    edits: dict[str, Any] = {
        f"/blocks/deep{i}": {
            "inputs": ports,
            "outputs": {"x": "inner.x"},
            "nodes": {"inner": {"use": name, "in": wires}},
        }
        for i, name in enumerate(below)
    }
    edits["/nodes/encoder"] = {
        "use": "deep0",
        "in": {"x": "source_position.y", "mask": "source_mask"},
    }
    return edits


def findings_in(path: Path, overrides: Mapping[str, Any]) -> list[Finding]:
    """Return the findings of a file, as the command line reports them."""
    try:
        spec = load(path, overrides)
    except SpecError as error:
        return list(error.findings)
    _, findings = analyse(
        spec.recovered, registry(), spec.overrides, source=spec.source, lost=spec.lost
    )
    return [*spec.mistakes, *(spec.place(finding) for finding in findings)]
