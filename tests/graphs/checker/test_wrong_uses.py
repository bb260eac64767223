"""Wrong uses of formulas, products, slices, templates and scans: one mistake is one finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.specs.findings import Finding

TEMPLATE = {
    "inputs": {"x": "f[B T 16]"},
    "outputs": {"x": "norm.y"},
    "nodes": {"norm": {"use": "layer_norm@1", "in": {"x": "x"}}},
}
CELL = {
    "inputs": {"x": "f[b 1 16]", "h": "f[b 1 16]"},
    "outputs": {"h": "sum.y"},
    "nodes": {
        "sum": {"use": "elementwise@1", "in": {"x": "x", "h": "h"}, "params": {"y": "x + h"}}
    },
}


def findings_of(
    folder: Path, node: dict[str, Any], port: str = "y", **blocks: Any
) -> list[Finding]:
    """Return the findings of a spec with one node, which reads `x` of the type `f[B T 16]`."""
    spec = {
        "format": 1,
        "name": "wrong",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 16]"},
        "outputs": {"y": f"node.{port}"},
        "nodes": {"node": {"in": {"x": "x"}, **node}},
        **({"blocks": blocks} if blocks else {}),
    }
    path = folder / "wrong.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    return list(weft.check(path))


@pytest.mark.parametrize(
    ("use", "params", "code", "at", "problem"),
    [
        ("elementwise@1", {"y": "x +"}, "P01", "/y", "elementwise@1: the expression ends"),
        ("elementwise@1", {"y": "x[0]"}, "P01", "/y", "'[' is not allowed"),
        ("elementwise@1", {"y": "where(x > 0, x)"}, "P01", "/y", "takes 3 arguments, not 2"),
        ("elementwise@1", {"y": "x if x > 0 else 0"}, "P01", "/y", "'if' is unexpected"),
        (
            "elementwise@1",
            {"y": "x * by", "values": {"by": "a"}},
            "P01",
            "/values/by",
            "must be a number",
        ),
        ("elementwise@1", {"y": "=x*2"}, "E02", "/y", "is not a param"),
        ("elementwise@1", {}, "W07", None, "param 'y' of elementwise@1 is missing"),
        ("einsum@1", {"y": "b t d - > b d"}, "P01", "/y", "no '->'"),
        ("einsum@1", {"y": "btd->bd"}, "P01", "/y", "did you mean 'btd'"),
        ("einsum@1", {"y": "b t (h k) -> b h t k"}, "P01", "", "einsum@1: 'sizes' must have"),
        ("softmax@1", {"y": "b t d", "over": "s"}, "P01", "/over", "no axis of 'b t d'"),
        ("slice@1", {"start": 3, "stop": 1}, "P02", "/start", "nothing is selected"),
        ("slice@1", {"index": 99, "axis": "width"}, "P02", "/index", "none with index 99"),
        ("slice@1", {"step": 2}, "T03", "/step", "not always a whole number"),
        ("shift@1", {"by": 0}, "P02", "/by", "nothing is shifted"),
        ("split@1", {"parts": {"a": 8}}, "N04", "/parts", "no param 'parts'"),
        ("parameter@1", {"shape": ["T", 4]}, "P01", "/shape/0", "must be a whole number"),
    ],
)
def test_a_wrong_param_is_one_finding_at_its_place(
    tmp_path: Path, use: str, params: dict[str, Any], code: str, at: str | None, problem: str
) -> None:
    """What only follows from a guess, such as the ports of a formula, is no finding."""
    [finding, *others] = findings_of(tmp_path, {"use": use, "params": params})

    place = "/nodes/node" if at is None else f"/nodes/node/params{at}"
    assert (finding.code, finding.at) == (code, place)
    assert problem in finding.problem
    assert [other.code for other in others] in ([], ["W04"])


@pytest.mark.parametrize("carry", [["h"], "h", None], ids=["a list", "a text", "nothing"])
def test_a_scan_without_widths_says_nothing_else(tmp_path: Path, carry: object) -> None:
    """Its ports and outputs depend on them, so neither the cell nor the readers are wrong."""
    params = {} if carry is None else {"carry": carry}
    node = {"use": "scan@1", "params": params, "fill": {"cell": {"use": "cell"}}}

    codes = [finding.code for finding in findings_of(tmp_path, node, "h", cell=CELL)]

    assert codes == ["W07" if carry is None else "P01"]


def test_a_slot_whose_block_lacks_an_output_has_no_fix_of_a_wire(tmp_path: Path) -> None:
    """A wire in place of the block would lose the block."""
    node = {"use": "scan@1", "params": {"carry": {"h": 16}}, "fill": {"cell": {"use": "cell"}}}
    cell = {**CELL, "outputs": {"state": "sum.y"}}

    [finding] = findings_of(tmp_path, node, "h", cell=cell)

    assert (finding.code, finding.at, finding.fix) == ("N03", "/nodes/node/fill/cell", None)
    assert finding.evidence == ("outputs state",)
    assert "'h'" in finding.help


def test_a_repeat_without_outputs_is_one_mistake(tmp_path: Path) -> None:
    """Readers of its outputs are right once `carry` names them."""
    node = {"repeat": 2, "block": "layer"}

    [finding] = findings_of(tmp_path, node, "x", layer=TEMPLATE)

    assert (finding.code, finding.at) == ("W10", "/nodes/node")


def test_a_template_with_a_version_is_the_template(tmp_path: Path) -> None:
    """And not the block whose name is most similar."""
    [finding] = findings_of(tmp_path, {"use": "layer@1"}, "x", layer=TEMPLATE)

    assert (finding.code, finding.help) == (
        "N01",
        "did you mean 'layer'? templates have no versions",
    )
    assert finding.fix is not None
    assert finding.fix.edits[0].value == "layer"


def test_a_number_in_quotes_is_reported_where_it_is_written(tmp_path: Path) -> None:
    """And not at each expression and requirement that reads it."""
    child = {"format": 1, "name": "child", "extends": "transformer-base", "params": {"heads": "8"}}
    path = tmp_path / "child.json"
    path.write_text(json.dumps(child), encoding="utf-8")

    [finding] = weft.check(path)

    assert (finding.code, finding.at, finding.source) == ("E01", "/params/heads", str(path))
    assert finding.fix is not None
    assert finding.fix.edits[0].value == 8


def test_a_wrong_formula_in_a_slot_is_reported_there(tmp_path: Path) -> None:
    """Not at the params of the block around it."""
    formula = {"use": "elementwise@1", "params": {"y": "x and 1"}}
    node = {"use": "attention@1", "params": {"heads": 2}, "fill": {"score": formula}}

    [finding] = findings_of(tmp_path, node)

    assert (finding.code, finding.at) == ("T02", "/nodes/node/fill/score/params")
