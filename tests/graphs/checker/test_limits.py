"""Tests of budgets on FLOPs and on the decoding state."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import weft
from weft.blocks.recurrent.recurrent import GRU
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse
from weft.specs.load import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from weft.graphs.ir.block_type import BlockType
    from weft.specs.findings import Finding

    Edit = Callable[..., dict[str, Any]]
    FindingsOf = Callable[..., list[Finding]]

LAYERS, WIDTH, INNER, VOCAB, LENGTH = 6, 512, 2048, 37_000, 32
ATTENTION = 4 * 2 * LENGTH * WIDTH**2 + 2 * 2 * LENGTH**2 * WIDTH
FEED_FORWARD = 2 * 2 * LENGTH * WIDTH * INNER
FLOPS = LAYERS * (3 * ATTENTION + 2 * FEED_FORWARD) + 2 * LENGTH * WIDTH * VOCAB
"""Of transformer-base, for 32 source and 32 target positions: a multiply-add counts as 2."""
STATE = LAYERS * LENGTH * (2 * 2 * WIDTH * 4 + 1)
"""Keys and values of both attentions in float32, and the mask of the source, one byte each."""
TAGGER: dict[str, Any] = {
    "format": 1,
    "name": "tagger",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 8]"},
    "outputs": {"y": "gru.y"},
    "nodes": {"gru": {"use": "gru@1", "in": {"x": "x"}, "params": {"d_hidden": 6}}},
}
MINE = replace(GRU, name="mine", state=None)


def found(findings: list[Finding]) -> list[tuple[str, str]]:
    """Return code and pointer of every finding."""
    return [(finding.code, finding.at) for finding in findings]


@pytest.mark.parametrize(
    ("name", "count", "sizes"),
    [
        ("flops", FLOPS, "B=1 S=32 T=32"),
        ("decode_state", STATE, "B=1 S=32 T=32, bytes in float32"),
    ],
)
def test_a_budget_is_compared_with_the_size_by_hand(
    name: str, count: int, sizes: str, edit: Edit, findings_of: FindingsOf
) -> None:
    """It may be reached but not exceeded, and the finding shows for which sizes."""
    assert findings_of(edit({"/require/1": f"{name} <= {count}"})) == []

    [finding] = findings_of(edit({"/require/1": f"{name} < {count}"}))

    assert (finding.code, finding.at) == ("E05", "/require/1")
    assert finding.evidence == (f"given  {name} = {count:,}", f"sizes  {sizes}")


def test_several_budgets_and_params_in_expressions(edit: Edit, findings_of: FindingsOf) -> None:
    """Each line is checked, and a line may read several sizes and params."""
    lines = {
        "/require/1": f"flops / parameters > {FLOPS / 63_082_496 + 1}",
        "/require/2": f"decode_state / layers == {STATE // LAYERS}",
        "/require/3": f"decode_state / layers == {STATE // LAYERS + 1}",
        "/require/4": "parameters <= 70e6",
    }

    findings = findings_of(edit(lines))

    assert found(findings) == [("E05", "/require/1"), ("E05", "/require/3")]
    assert findings[1].help == "change one of these params"


def test_shared_layers_keep_a_state_each(edit: Edit, findings_of: FindingsOf) -> None:
    """Sharing weights saves parameters, but neither FLOPs nor decoding state."""
    lines = {"/require/1": f"flops == {FLOPS}", "/require/2": f"decode_state == {STATE}"}

    shared = {"/nodes/decoder/share": True, "/nodes/encoder/share": True}

    assert findings_of(edit({**lines, **shared})) == []


def test_a_spec_that_does_not_decode_has_no_decoding_state(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """Not even 0 bytes; its FLOPs are known."""
    spec = edit({"/require/1": "decode_state >= 0", "/require/2": "flops > 1"}, ["/step"])

    [finding] = findings_of(spec)

    assert (finding.code, finding.at) == ("E01", "/require/1")
    assert finding.problem.endswith("the spec has no 'step', so it does not decode")


def test_obstacles_to_decoding_are_the_only_findings(edit: Edit, findings_of: FindingsOf) -> None:
    """A decoder that looks ahead has no decoding state, and a lost `step` may have been right."""
    causal = "/blocks/decoder_layer/nodes/self_attention/fill/f/params/causal"
    budget = {"/require/1": "decode_state < 1"}

    assert {code for code, _ in found(findings_of(edit({**budget, causal: False})))} == {"D01"}
    assert found(findings_of(edit({**budget, "/step/axis": "U"}))) == [("N05", "/step/axis")]


def test_a_step_that_cannot_be_read_is_not_missing(edit: Edit, tmp_path: Path) -> None:
    """Only the mistake of form is reported."""
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(edit({"/require/1": "decode_state < 1", "/step": "T"})))

    assert [finding.at for finding in weft.check(path)] == ["/step"]


@pytest.mark.parametrize("name", ["flops", "decode_state"])
def test_parts_that_cannot_be_read_are_not_counted(name: str, edit: Edit, tmp_path: Path) -> None:
    """The output layer reads a lost node, so its axes are unknown; the encoder is known."""
    path = tmp_path / "spec.json"
    lost = {"/require/1": f"{name} <= 1", "/nodes/decoder": 3}
    path.write_text(json.dumps(edit(lost)))

    codes = {finding.at: finding.code for finding in weft.check(path)}

    wanted = {"/nodes/decoder": "S04"} | ({"/require/1": "E05"} if name == "flops" else {})
    assert codes == wanted


@pytest.mark.parametrize(
    ("mistake", "counted"),
    [
        ({"/params/unused": 1}, 1.0),
        ({"/nodes/encoder/repeat": -1}, 0.5),
        ({"/blocks/decoder_layer/nodes/cross_attention/fill/f/params/hedas": 8}, 0.5),
    ],
)
@pytest.mark.parametrize(("name", "count"), [("flops", FLOPS), ("decode_state", STATE)])
def test_next_to_other_mistakes_only_what_is_certain_is_counted(
    mistake: Mapping[str, Any],
    counted: float,
    name: str,
    count: int,
    edit: Edit,
    findings_of: FindingsOf,
) -> None:
    """A budget far below the certain part is reported with `>=`; one above it is not."""
    [only] = findings_of(edit(mistake))
    tight = findings_of(edit({**mistake, "/require/1": f"{name} <= {int(count * counted / 3)}"}))
    loose = findings_of(edit({**mistake, "/require/1": f"{name} <= {count}"}))

    assert loose == [only]
    assert sorted(found(tight)) == sorted([*found([only]), ("E05", "/require/1")])
    [budget] = [finding for finding in tight if finding.code == "E05"]
    assert budget.evidence[0].startswith(f"given  {name} >= ")


def test_a_minimum_is_not_refused_while_the_size_is_unknown(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The model may be larger than the part that is known."""
    spec = edit({"/nodes/encoder/repeat": -1, "/require/1": f"flops >= {FLOPS}"})

    assert found(findings_of(spec)) == [("P05", "/nodes/encoder/repeat")]


def test_a_block_may_leave_its_decoding_state_undeclared() -> None:
    """Then a spec that uses it has no budget on the decoding state."""
    nodes = {"gru": {**TAGGER["nodes"]["gru"], "use": "mine@1"}}
    spec = {**TAGGER, "nodes": nodes, "step": {"axis": "T"}}

    def findings(require: str, block: BlockType) -> list[Finding]:
        form = loaded({**spec, "require": [require]}).form
        return analyse(form, registry().extended([block]))[1]

    [finding] = findings("decode_state < 1", MINE)

    assert (finding.code, finding.at) == ("E01", "/require/0")
    assert "mine@1 does not declare its decoding state" in finding.problem
    assert findings("flops < 1e9", MINE) == []
    assert findings("decode_state == 6 * 4", replace(MINE, state=GRU.state)) == []


@pytest.mark.parametrize("name", ["flops", "decode_state"])
def test_no_param_may_have_the_name_of_a_size(
    name: str, edit: Edit, findings_of: FindingsOf
) -> None:
    """Requirements could not tell them apart."""
    spec = edit({f"/params/{name}": 1, "/require/1": f"{name} == 1"})

    assert found(findings_of(spec)) == [("N09", f"/params/{name}")]
