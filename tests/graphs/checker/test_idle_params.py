"""Tests of params without effect (P08): reported where no use of a block reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.graphs.ir.block_type import Needs, Unwired
from weft.graphs.ir.canonical import canonical
from weft.specs.load import loaded

if TYPE_CHECKING:
    from collections.abc import Callable

    from weft.graphs.ir.block_type import BlockType
    from weft.specs.findings import Finding

    Edit = Callable[..., dict[str, Any]]
    FindingsOf = Callable[..., list[Finding]]

SELF = "/blocks/encoder_layer/nodes/self_attention"
CROSS = "/blocks/decoder_layer/nodes/cross_attention/fill/f"
LINEAR = {"use": "linear_attention@1", "params": {"heads": 8}}
FORWARD = "/blocks/encoder_layer/nodes/feed_forward/params"
MARKED = [
    (block, name, mark)
    for block in registry()
    for name, field in block.params.model_fields.items()
    for mark in field.metadata
    if isinstance(mark, Needs | Unwired)
]


def test_the_whole_finding(edit: Edit, findings_of: FindingsOf) -> None:
    """The param, why it has no effect, both values, and what to do."""
    [finding] = findings_of(edit({CROSS: LINEAR, f"{CROSS}/params/causal": True}))

    assert finding.render() == (
        "error[P08]: param 'causal' of linear_attention@1 has no effect "
        "while port 'memory' is wired\n"
        f"  --> #{CROSS}/params/causal\n"
        "      given  true\n"
        "      default false\n"
        "  help: remove 'causal', or do not wire 'memory'"
    )


def test_a_default_without_effect_is_not_reported(edit: Edit, findings_of: FindingsOf) -> None:
    """It says what happens anyway."""
    edits = {CROSS: LINEAR, f"{CROSS}/params/causal": False, f"{CROSS}/params/chunk": 64}
    edits |= {f"{FORWARD}/norm": "none"}

    assert findings_of(edit(edits)) == []


def test_every_param_without_effect_is_reported(edit: Edit, findings_of: FindingsOf) -> None:
    """Several in one block, and one whose value is an expression."""
    edits = {"/params/small": 0.1, f"{FORWARD}/norm": "none", f"{FORWARD}/order": "pre"}

    found = findings_of(edit(edits | {f"{FORWARD}/eps": "=small"}))

    assert [(f.code, f.at) for f in found] == [
        ("P08", f"{FORWARD}/eps"),
        ("P08", f"{FORWARD}/order"),
    ]


def shared(edit: Edit) -> dict[str, Any]:
    """Return a spec with a template that one node wires to a memory and another does not."""
    ports = {"x": "f[B S d_model]", "memory": "f[B S d_model]?"}
    use = {"use": "linear_attention@1", "params": {"heads": 8, "causal": True}}
    node = {**use, "in": {"x": "x", "memory": "memory"}}
    template = {"inputs": ports, "outputs": {"x": "a.y"}, "nodes": {"a": node}}
    return edit(
        {
            "/blocks/both": template,
            "/nodes/first": {"use": "both", "in": {"x": "source_position.y"}},
            "/nodes/second": {"use": "both", "in": {"x": "first.x", "memory": "first.x"}},
            "/nodes/encoder/in/x": "second.x",
        }
    )


def test_a_param_of_a_template_needs_an_effect_in_one_use(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """In the first use nothing is wired to `memory`, in the second something is."""
    spec = shared(edit)

    assert findings_of(spec) == []
    spec["nodes"]["first"]["in"]["memory"] = "source_position.y"
    assert [f.at for f in findings_of(spec)] == ["/blocks/both/nodes/a/params/causal"]


def test_a_full_form_checks_again(edit: Edit) -> None:
    """It has a template for each use, and writes the param without effect too."""
    form = loaded(canonical(check(loaded(shared(edit)).form, registry()))).form

    assert [f.code for f in analyse(form, registry())[1]] == ["P08"]
    assert canonical(check(form, registry(), checked=True)) == canonical(
        check(loaded(shared(edit)).form, registry())
    )


def test_an_override_may_turn_an_effect_off(edit: Edit, findings_of: FindingsOf) -> None:
    """A study of norms need not reset the order, but a value given with it must have an effect."""
    spec = edit(
        {
            "/params/norm": "=kind",
            "/params/kind": "rms_norm",
            "/params/order": "pre",
            f"{FORWARD}/norm": "=norm",
            f"{FORWARD}/order": "=order",
        }
    )

    assert findings_of(spec) == []
    assert findings_of(spec, kind="none") == []
    assert [f.code for f in findings_of(spec, kind="none", order="sandwich")] == ["P08"]
    spec["params"]["kind"] = "none"
    assert [f.at for f in findings_of(spec)] == [f"{FORWARD}/order"]
    assert findings_of(spec, kind="rms_norm") == []


def test_a_param_of_a_block_choice_is_reported_where_it_is_written(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """A param of the spec chooses the block."""
    params = {"heads": 8, "chunk": 32}
    spec = edit(
        {
            "/params/kind": {"use": "linear_attention@1", "params": params},
            f"{SELF}/fill/f": {"use": "=kind"},
        }
    )

    assert [(f.code, f.at) for f in findings_of(spec)] == [("P08", "/params/kind/params/chunk")]


def test_other_mistakes_of_the_block_are_reported_too(edit: Edit, findings_of: FindingsOf) -> None:
    """A wrong wire does not hide a param without effect, and the other way round."""
    linear = {"use": "linear_attention@1", "params": {"heads": 8, "chunk": 32}}
    spec = edit({f"{SELF}/fill/f": linear, f"{SELF}/in/mask": "x"})

    assert {f.code for f in findings_of(spec)} >= {"P08", "T02"}


@pytest.mark.parametrize(
    ("block", "name", "mark"), MARKED, ids=lambda each: getattr(each, "key", str(each))
)
def test_marks_name_params_and_ports(block: BlockType, name: str, mark: Needs | Unwired) -> None:
    """A misspelled mark would never report anything, or always."""
    fields = block.params.model_fields
    params = block.params.model_validate(dict(block.example))
    ports = {port.name: port for port in block.signature(params, frozenset()).inputs}

    assert not fields[name].is_required()
    if isinstance(mark, Unwired):
        assert ports[mark.port].optional
    else:
        assert mark.param in fields
        assert bool(mark.values) != bool(mark.least)
        for value in mark.values or (mark.least,):
            block.params.model_validate({**block.example, mark.param: value})
