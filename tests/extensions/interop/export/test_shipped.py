"""The table of docs/exporting.md matches the exports of each shipped spec."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import weft
from torch import nn
from weft.extensions.interop.export.ctranslate2 import export_ctranslate2
from weft.extensions.interop.export.ctranslate2_spec import ct2_plan
from weft.extensions.interop.export.eject import eject
from weft.extensions.interop.export.onnx import export_onnx, onnx_files
from weft.graphs.ir.graph import Graph
from weft.runtime.checkpoint.checkpoint import Checkpoint
from weft.runtime.codegen.build import build_empty
from weft.runtime.spec.check import graph_of
from weft.specs.findings import InputError
from weft.specs.load import load

from ....runtime.entries import ENTRIES

ROOT = Path(__file__).parents[4]
SHIPPED = sorted(
    path.stem
    for folder in ("models", "variants")
    for path in (ROOT / "specs" / folder).glob("*.json")
)
BASE = ENTRIES["transformer-base"]["small"]
ONE = {"layers": 1, "encoder_layers": 1, "decoder_layers": 1, "sets": 1, "steps": 2}
LAYERS = {
    "gnmt-small": 2,
    "gpt2-exits": 3,
    "modded-nanogpt": 2,
    "moe-transformer": 2,
    "transformer-t5-bias": 2,
}
"""Layers of specs that need several, or whose second layer is different."""
ROOMY = {"max_length": 40}
"""Enough positions for the decoding checks."""


def rows() -> list[tuple[list[str], str, str, str]]:
    """Return the table: names, and the CTranslate2, ONNX and plain PyTorch cells."""
    page = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8")
    table = page.partition("| shipped specs |")[2].partition("\n\n")[0]
    cells = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [
        (re.findall(r"`([^`]+)`", names), *(one.strip() for one in entries))
        for names, *entries in cells
        if len(entries) == 3
    ]


CELLS = {name: entries for names, *entries in rows() for name in names}


def small_params(name: str) -> dict[str, Any]:
    """Return params that make a spec small, with one layer where possible."""
    known = load(name).form.params
    given = {**ENTRIES.get(name, {"small": BASE})["small"], **ONE, **ROOMY}
    if name in LAYERS:
        given["layers"] = LAYERS[name]
    return {key: value for key, value in given.items() if key in known}


@cache
def small(name: str) -> Graph:
    """Return the checked graph of a shipped spec at its small size."""
    return graph_of(weft.load(name, **small_params(name)))


def refusal(plan: Callable[[], object]) -> str:
    """Return why a plan is refused, or `yes`."""
    try:
        plan()
    except InputError as error:
        return str(error.problem)
    return "yes"


def meta_model(graph: Graph) -> nn.Module:
    """Return the model of a graph on the meta device, which shows only tied weights."""
    return build_empty(graph, device="meta")


def agrees(cell: str, found: str) -> bool:
    """Return whether a cell matches: `no:` with words of the refusal, or anything else for yes."""
    if not cell.startswith("no:"):
        return found == "yes"
    return found != "yes" and all(part in found for part in re.findall(r"`([^`]+)`", cell))


def test_every_shipped_spec_is_in_the_table_once() -> None:
    """The table has no other names."""
    assert sorted(name for names, *_ in rows() for name in names) == SHIPPED


@pytest.mark.integration
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name.startswith("table3-") else name
        for name in SHIPPED
    ],
)
def test_the_table_agrees_with_the_exporters(name: str) -> None:
    """The plans of the exporters, which depend only on the graph, agree with the table."""
    graph = small(name)
    ctranslate2, onnx, plain = CELLS[name]
    files = refusal(lambda: onnx_files(graph))

    assert ctranslate2 == "yes" or ctranslate2.startswith("no:")
    assert agrees(ctranslate2, refusal(lambda: ct2_plan(graph, lambda: meta_model(graph))))
    assert agrees(onnx, files)
    if files == "yes":
        assert [f"{one}.onnx" for one in re.findall(r"`(\w+)`", onnx)] == [*onnx_files(graph)]
    assert plain == "yes"


ALONE = [*ENTRIES, "table3-b1", "table3-e"]
"""Specs that differ in more than numbers."""
WITH_CTRANSLATE2 = [name for name in ALONE if not CELLS[name][0].startswith("no:")]
EXHAUSTIVE = pytest.mark.exhaustive
KINDS = {
    *("bytenet", "gru-attention", "mamba", "mistral"),
    *("modded-nanogpt", "moe-transformer", "parsing-span-lstm", "t5"),
}
"""Specs that have together each kind of state and form; an export takes 10 seconds and more."""


@pytest.fixture
def checkpoint(checkpoint_of: Callable[..., Checkpoint], name: str) -> Checkpoint:
    """Return a checkpoint of a shipped spec at its small size."""
    return checkpoint_of(weft.load(name, **small_params(name)))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [name if name in KINDS else pytest.param(name, marks=EXHAUSTIVE) for name in ALONE]
)
def test_onnxruntime_agrees_with_the_model(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """In logits (1e-4) and greedy outputs, for several rows, lengths and past lengths."""
    pytest.importorskip("onnxscript", reason="the extra 'onnx' is missing")
    pytest.importorskip("onnxruntime", reason="the extra 'onnx' is missing")
    out = tmp_path / "out"

    checked = export_onnx(checkpoint, out)

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs
    assert checked.graphs == onnx_files(checkpoint.graph)
    assert all((out / file).is_file() for file in checked.graphs)
    description = json.loads((out / "model.json").read_text())
    assert sorted(f"{graph}.onnx" for graph in description["graphs"]) == sorted(checked.graphs)


@pytest.mark.slow
@EXHAUSTIVE
@pytest.mark.parametrize("name", WITH_CTRANSLATE2)
def test_ctranslate2_agrees_with_the_model(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """In log probabilities (1e-4) and greedy outputs; `ctranslate2/` has each kind of layer."""
    pytest.importorskip("ctranslate2", reason="the extra 'ctranslate2' is missing")

    checked = export_ctranslate2(checkpoint, tmp_path / "out")

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs


@pytest.mark.slow
@EXHAUSTIVE
@pytest.mark.parametrize("name", ALONE)
def test_plain_pytorch_agrees_with_the_model(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """Its outputs agree, and its weights file has the same names."""
    made = eject(checkpoint, tmp_path / "ejected" / "model.py")

    assert made.compared == "outputs"
    assert made.weights is not None
