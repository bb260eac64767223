"""Tests of the checker: each mistake gives exactly one finding, at its place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weft.blocks.registry import registry
from weft.graphs.checker.check import analyse, check
from weft.specs.findings import Finding, InputError, SpecError
from weft.specs.load import load, loaded, parse_overrides
from weft.specs.reader import SHIPPED, read_json

from .faults import DECODER, ENCODER, FAULTS, deep, findings_in, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Count = Callable[[Callable[[], object]], int]

    Edit = Callable[..., dict[str, Any]]
    FindingsOf = Callable[..., list[Finding]]


def points_into(value: Any, pointer: str) -> bool:
    """Return whether a JSON Pointer points to a part of a value."""
    for part in pointer.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, dict) and key in value:
            value = value[key]
        else:
            return False
    return True


@pytest.mark.integration
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"].replace(" ", "-"))
def test_a_mistake_gives_one_finding_with_place_and_help(
    fault: dict[str, Any], edit: Edit, tmp_path: Path
) -> None:
    """Code, file, pointer and help are exact, and there is no other finding."""
    spec = tmp_path / "spec.json"
    spec.write_text(text_of(fault, edit), encoding="utf-8")
    for name, other in fault.get("files", {}).items():
        (tmp_path / name).write_text(json.dumps(edit(other["edit"])), encoding="utf-8")

    findings = findings_in(spec, parse_overrides(fault.get("set", ())))
    if fault.get("make") == "many":
        assert len(findings) == 201
        findings = findings[-1:]

    source = fault.get("source", "spec.json")
    source = source if source == "overrides" else str(tmp_path / source)
    assert [(f.code, f.source, f.at, f.help) for f in findings] == [
        (fault["code"], source, fault["at"], fault["help"])
    ]


def test_pointers_can_be_followed(edit: Edit) -> None:
    """Each exists in the file (findings in a parent point into the parent)."""
    pointed = [f for f in FAULTS if "text" not in f and f.get("source") != "overrides"]
    wrong = [f["name"] for f in pointed if not points_into(json.loads(text_of(f, edit)), f["at"])]

    assert len(pointed) > 100
    assert wrong == []


@pytest.mark.parametrize("name", ["transformer-base", "transformer-big", "transformer-tiny"])
def test_shipped_specs_have_no_finding(name: str) -> None:
    """The shipped specs are valid."""
    spec = load(name)

    assert analyse(spec.form, registry())[1] == []


def test_twelve_mistakes_give_twelve_findings(edit: Edit, findings_of: FindingsOf) -> None:
    """One run reports all of them, including ties and decodability, and nothing else."""
    mistakes = {
        "/params/width": 512,
        "/params/relu_dropout": "=0 // 0",
        "/require/1": "layers > 100",
        "/inputs/extra": "mask[B S]",
        "/nodes/target_position/params/form": "spiral",
        "/nodes/encoder/repeat": -1,
        "/tie/0/1": "target_embedding.wieght",
        "/blocks/old_layer": {
            "inputs": {"x": "f[B T d_model]"},
            "outputs": {"y": "norm.y"},
            "nodes": {"norm": {"use": "layer_nrm@1", "in": {"x": "x"}}},
        },
        f"{ENCODER}/feed_forward/fill/f/params/d_fff": 3,
        f"{DECODER}/cross_attention/in/memori": "memory",
        "/step/axis": "U",
    }

    findings = findings_of(edit(mistakes))

    assert sorted((f.code, f.at) for f in findings) == sorted(
        [
            ("W08", "/params/width"),
            ("E01", "/params/relu_dropout"),
            ("E05", "/require/1"),
            ("W04", "/inputs/extra"),
            ("P01", "/nodes/target_position/params/form"),
            ("P05", "/nodes/encoder/repeat"),
            ("N07", "/tie/0/1"),
            ("W03", "/blocks/old_layer"),
            ("N01", "/blocks/old_layer/nodes/norm/use"),
            ("N04", f"{ENCODER}/feed_forward/fill/f/params/d_fff"),
            ("N03", f"{DECODER}/cross_attention/in/memori"),
            ("N05", "/step/axis"),
        ]
    )


WHOLE = {
    "a key twice": (
        "error[S02]: duplicate key 'heads'\n"
        "  --> spec.json#/params/heads\n"
        "  help: keep one of the two"
    ),
    "a misspelt param": (
        "error[N04]: attention@1 has no param 'hedas'\n"
        f"  --> spec.json#{DECODER}/self_attention/fill/f/params/hedas\n"
        "  help: did you mean 'heads'?"
    ),
    "a requirement that fails": (
        "error[E05]: 'd_model % heads == 0' does not hold\n"
        "  --> spec.json#/require/0\n"
        "      given  d_model = 512, heads = 7\n"
        "  help: change one of these params"
    ),
    "heads that do not divide the width": (
        "error[P02]: attention@1: width 512 is not divisible by 5 heads\n"
        f"  --> spec.json#{DECODER}/self_attention/fill/f/params/heads\n"
        "  help: use 4 heads, or set d_k"
    ),
    "a port that is not wired": (
        "error[W01]: port 'x' of linear@1 is not wired\n"
        "  --> spec.json#/nodes/head\n"
        "      wanted f[... d_in]\n"
        "  help: add 'x' to 'in'"
    ),
    "the source mask on the target's self-attention": (
        "error[T03]: axis 's' is T (from 'x') but S at port 'mask'\n"
        f"  --> spec.json#{DECODER}/self_attention/in/mask\n"
        "      given  mask[B S]  by input mask\n"
        "      wanted mask[b s] where b is B, s is T here  by attention@1, port mask\n"
        "  help: remove 'mask', or wire a value of the wanted type"
    ),
    "a carry that changes its width": (
        "error[T05]: carry 'x' changes its type from copy to copy\n"
        "  --> spec.json#/nodes/encoder/carry/0\n"
        "      enters f[B S 512]  as input 'x' of 'encoder_layer'\n"
        "      leaves f[B S 2048]  as output 'x', by widen.y\n"
        "  help: make 'encoder_layer' return the type that it takes"
    ),
    "causal forgotten in the decoder": (
        "error[D01]: the graph cannot be decoded along T: attention@1 reads later positions"
        " of T\n"
        f"  --> spec.json#{DECODER}/self_attention/fill/f\n"
        "  help: give attention@1 the param 'causal': true, or wire it to values without T"
    ),
}


@pytest.mark.parametrize("name", WHOLE)
def test_the_whole_text_of_a_finding(
    name: str, edit: Edit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Users read this text most often, so the tests fix every word."""
    monkeypatch.chdir(tmp_path)
    fault = next(fault for fault in FAULTS if fault["name"] == name)
    Path("spec.json").write_text(text_of(fault, edit), encoding="utf-8")

    [finding] = findings_in(Path("spec.json"), {})

    assert finding.spot is not None
    assert replace(finding, source=str(finding.source)).render() == WHOLE[name]


def test_check_raises_every_finding(edit: Edit) -> None:
    """The error contains the findings that `analyse` returns."""
    form = loaded(edit({"/params/width": 3, "/params/height": 4})).form

    with pytest.raises(SpecError) as error:
        check(form, registry(), source="mine.json")

    assert [(f.at, f.source) for f in error.value.findings] == [
        ("/params/height", "mine.json"),
        ("/params/width", "mine.json"),
    ]


# Follow-up findings of a mistake are suppressed.


def test_params_of_an_unknown_block_count_as_read(edit: Edit, findings_of: FindingsOf) -> None:
    """A param that only a misspelled block reads is not reported as well."""
    spec = edit(
        {
            "/params/inner": 64,
            f"{ENCODER}/feed_forward/fill/f": {
                "use": "feed_forwrd@1",
                "params": {"d_ff": "=inner"},
            },
        }
    )

    assert [f.code for f in findings_of(spec)] == ["N01"]


def test_params_inside_a_broken_use_are_still_checked(edit: Edit, findings_of: FindingsOf) -> None:
    """An invalid wrapper does not hide the mistakes inside it."""
    spec = edit(
        {
            f"{ENCODER}/feed_forward/params/order": "before",
            f"{ENCODER}/feed_forward/fill/f/params/d_ff": "=wide",
        }
    )

    assert [(f.code, f.at.rpartition("/")[2]) for f in findings_of(spec)] == [
        ("P01", "order"),
        ("E02", "d_ff"),
    ]


def test_the_block_in_an_unknown_slot_is_still_checked(edit: Edit, findings_of: FindingsOf) -> None:
    """Mistakes in the block are reported in addition to the unknown slot."""
    wrong = {"use": "feed_forward@1", "params": {"d_ff": "=d_ff", "dropout": 3}}
    spec = edit({f"{ENCODER}/feed_forward/fill": {"g": wrong}})

    assert [(f.code, f.at.rpartition("/")[2]) for f in findings_of(spec)] == [
        ("W05", "g"),
        ("P01", "dropout"),
    ]


def test_only_the_outermost_unused_template_is_reported(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """Templates used only by an unused one are not reported; a cycle is reported once."""
    edits = {at: value for at, value in deep(3).items() if at != "/nodes/encoder"}
    x = {"inputs": {"x": "f[B S d_model]"}, "outputs": {"x": "n.x"}}
    for name, other in (("a_ring", "b_ring"), ("b_ring", "a_ring")):
        edits[f"/blocks/{name}"] = {**x, "nodes": {"n": {"use": other, "in": {"x": "x"}}}}

    found = [(f.code, f.at) for f in findings_of(edit(edits)) if f.code != "W06"]

    assert found == [("W03", "/blocks/a_ring"), ("W03", "/blocks/deep0")]


def test_wires_of_a_node_with_an_unknown_param_are_checked(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The misspelled param stands for the missing one, so type inference continues."""
    spec = edit(
        {f"{DECODER}/self_attention/fill/f/params": {"hads": 8, "causal": True}}
        | {f"{DECODER}/self_attention/in/mask": "mask"}
    )

    assert sorted(f.code for f in findings_of(spec)) == ["N04", "T03"]


def test_readers_of_an_invalid_param_give_no_finding(edit: Edit, findings_of: FindingsOf) -> None:
    """An invalid expression gives one finding, regardless of the number of readers."""
    spec = edit({"/params/d_model": "=512/0"})

    assert [(f.code, f.at) for f in findings_of(spec)] == [("E01", "/params/d_model")]


def test_an_unread_param_is_not_reported_with_an_unknown_name(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """An unread param is not reported while a reader has an unknown name."""
    spec = edit({"/params/width": 64, "/nodes/head/params/d_out": "=qqq"})

    assert [(f.code, f.at) for f in findings_of(spec)] == [("E02", "/nodes/head/params/d_out")]


def test_an_unread_node_is_not_reported_with_an_unknown_wire(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The same for wires."""
    spec = edit({"/nodes/head/in/x": "qqq.y", "/inputs/spare": "mask[B T]"})

    assert [(f.code, f.at) for f in findings_of(spec)] == [("N02", "/nodes/head/in/x")]


def test_a_shared_param_with_a_wrong_value_is_reported_once(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """Six blocks read it; the finding is at the param."""
    [finding] = findings_of(edit({"/params/dropout": 2}))

    assert (finding.code, finding.at) == ("P01", "/params/dropout")
    assert finding.evidence[1] == "read at /nodes/source_position/params/dropout"


def test_blocks_that_clash_over_a_shared_param_are_reported_once(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """Both position blocks reject the odd width; this is one mistake."""
    spec = edit({"/params/d_model": 511, "/params/heads": 7})

    assert [f.code for f in findings_of(spec)] == ["P02"]


def test_a_failed_requirement_replaces_the_findings_of_blocks(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The requirement names the params, so the failing blocks are not reported."""
    fill = {"use": "attention@1", "params": {"heads": "=heads", "causal": True}}
    spec = edit({"/params/heads": 5, f"{DECODER}/self_attention/fill/f": fill})

    assert [f.code for f in findings_of(spec)] == ["E05"]


def test_a_template_is_held_to_its_own_ports(edit: Edit, findings_of: FindingsOf) -> None:
    """A wrong wire outside does not hide mistakes inside."""
    spec = edit(
        {"/nodes/encoder/in/mask": "source", f"{ENCODER}/self_attention/in/mask": "x"},
        ["/inputs/source_mask", "/nodes/decoder/in/mask"],
    )
    spec["blocks"]["decoder_layer"]["inputs"]["mask"] += "?"

    assert sorted((f.code, f.at) for f in findings_of(spec)) == [
        ("T02", f"{ENCODER}/self_attention/in/mask"),
        ("T02", "/nodes/encoder/in/mask"),
    ]


def test_an_unread_value_that_would_suit_an_open_port_is_not_reported(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The decoder is unread because the head's wire is missing; an unread mask is reported."""
    spec = edit({"/nodes/head/in": {}, "/inputs/spare": "mask[B T]"})

    assert [(f.code, f.at) for f in findings_of(spec)] == [
        ("W01", "/nodes/head"),
        ("W04", "/inputs/spare"),
    ]


# Optional ports of templates.


def test_an_optional_port_may_stay_unwired(edit: Edit, findings_of: FindingsOf) -> None:
    """Its readers inside the template are then not wired."""
    spec = edit(
        {
            "/blocks/encoder_layer/inputs/mask": "mask[B S]?",
            "/blocks/decoder_layer/inputs/mask": "mask[B S]?",
        },
        ["/nodes/encoder/in/mask", "/nodes/decoder/in/mask", "/inputs/source_mask"],
    )

    assert findings_of(spec) == []


def test_an_unwired_optional_port_leaves_no_wire(edit: Edit, graph_of: Callable[..., Any]) -> None:
    """The graph's nodes do not refer to a missing value."""
    spec = edit(
        {"/blocks/encoder_layer/inputs/mask": "mask[B S]?"},
        ["/nodes/encoder/in/mask"],
    )

    encoder = next(n for n in graph_of(spec).root.nodes if n.name == "encoder")

    assert list(encoder.body.inputs) == ["x"]
    assert {n.name: dict(n.wires) for n in encoder.body.nodes} == {
        "self_attention": {"x": "x"},
        "feed_forward": {"x": "self_attention.y"},
    }


# Block choices.


def test_a_choices_params_win_over_the_nodes(edit: Edit, graph_of: Callable[..., Any]) -> None:
    """The params of the choice override the params of the node."""
    spec = edit({"/params/position/params": {"dropout": 0.5}})

    node = next(n for n in graph_of(spec).root.nodes if n.name == "source_position")

    assert node.part.params.dropout == 0.5


def test_a_choices_params_may_be_expressions(edit: Edit, graph_of: Callable[..., Any]) -> None:
    """They may read params in any order."""
    choice = {"use": "learned_position@1", "params": {"max_length": "=zones * 100"}}
    spec = edit({"/params/position": choice, "/params/zones": 7})

    node = next(n for n in graph_of(spec).root.nodes if n.name == "source_position")

    assert node.part.params.max_length == 700


def test_a_choice_may_come_by_way_of_another_param(edit: Edit, findings_of: FindingsOf) -> None:
    """The pointer leads to the place where the choice is written."""
    spec = edit(
        {"/params/position": "=waves", "/params/waves": {"use": "sinusoidal_position@2"}},
    )

    assert [(f.code, f.at) for f in findings_of(spec)] == [("N01", "/params/waves/use")]


def test_a_nodes_param_that_the_chosen_block_lacks_names_the_block(
    edit: Edit, findings_of: FindingsOf
) -> None:
    """The finding is at the node, which wrote the param."""
    spec = edit({"/nodes/source_position/params/form": "interleaved"})

    [finding] = findings_of(spec, position={"use": "learned_position@1"})

    assert (finding.code, finding.at) == ("N04", "/nodes/source_position/params/form")
    assert finding.problem == "learned_position@1 has no param 'form'"


# Overrides.


def test_an_override_may_be_an_expression(edit: Edit, graph_of: Callable[..., Any]) -> None:
    """`--set d_ff==2*d_model` reads the spec's own params."""
    assert graph_of(edit({}), d_ff="=2*d_model").params["d_ff"] == 1024


def test_an_override_does_not_leave_a_param_unread(edit: Edit, findings_of: FindingsOf) -> None:
    """The spec reads it, even though this run does not."""
    spec = edit({"/params/base": 4, "/params/layers": "=base"})

    assert findings_of(spec, layers=2) == []


# Size and time.


def test_a_thousand_layers_are_checked_with_the_work_of_two(edit: Edit, count_calls: Count) -> None:
    """Types are inferred once for all copies of a repeat."""
    form = loaded(edit({}, ["/tie"])).form
    assert check(form, registry(), {"layers": 1000}).parameters() > 10**9

    few, many = (
        count_calls(lambda layers=layers: check(form, registry(), {"layers": layers}))  # type: ignore[misc]
        for layers in (2, 1000)
    )

    assert many <= 1.01 * few


def doubling(levels: int) -> dict[str, Any]:
    """Return edits in which each template uses the next one twice."""
    edits = deep(levels)
    for at, template in edits.items():
        if at.startswith("/blocks"):
            inner = template["nodes"]["inner"]
            template["nodes"]["again"] = {**inner, "in": {"x": "inner.x", "mask": "mask"}}
            template["outputs"] = {"x": "again.x"}
    return edits


def test_a_template_is_typed_once_for_each_type(
    edit: Edit, findings_of: FindingsOf, count_calls: Count
) -> None:
    """2^14 uses of the innermost template take no longer than fourteen."""
    spec = edit(doubling(14))
    found: list[Any] = []

    calls = count_calls(lambda: found.extend(findings_of(spec)))

    assert found == []
    assert calls < 200_000


def test_too_large_a_spec_is_refused_without_expansion(edit: Edit, findings_of: FindingsOf) -> None:
    """2^30 uses are counted without expanding them."""
    assert [(f.code, f.at) for f in findings_of(edit(doubling(30)))] == [("P06", "/nodes/encoder")]


# Checking any file gives findings or a graph.

TEXTS = {
    path.stem: path.read_text(encoding="utf-8") for path in sorted((SHIPPED / "models").iterdir())
}
WORDS = st.sampled_from(
    [
        *("x", "=heads", "=d_model/0", "f[B T d_model]", "mask[B S]?", "ids:vocab[B T]"),
        *("attention@1", "encoder_layer", "decoder", "decoder.x", "source", "=position", "T"),
        *("...", "=", "a/b~", "", "position", "encoder"),
    ]
)
VALUES = st.one_of(
    WORDS,
    st.none(),
    st.booleans(),
    st.integers(-2, 10**7),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=5),
    st.lists(WORDS, max_size=2),
    st.dictionaries(WORDS, WORDS, max_size=2),
)


def spots(value: Any) -> list[tuple[Any, Any]]:
    """Return every (record, key) inside a JSON value."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    return [spot for key in keys for spot in ((value, key), *spots(value[key]))]


def test_a_mistake_in_a_template_used_with_two_types_is_reported_once() -> None:
    """The evidence shows the types of the first use; the help is the same for all."""
    wide = {"use": "linear@1", "in": {"x": "x"}, "params": {"d_out": 16}}
    template = {
        "inputs": {"x": "f[b t 8]"},
        "outputs": {"x": "sum.y"},
        "nodes": {
            "wide": wide,
            "sum": {
                "use": "elementwise@1",
                "in": {"x": "x", "z": "wide.y"},
                "params": {"y": "x + z"},
            },
        },
    }
    spec = {
        "format": 1,
        "name": "twice",
        "axes": {"B": "batch", "S": "time", "T": "time"},
        "inputs": {"a": "f[B S 8]", "b": "f[B T 8]"},
        "outputs": {"y": "a_.x", "z": "b_.x"},
        "blocks": {"t": template},
        "nodes": {name + "_": {"use": "t", "in": {"x": name}} for name in "ab"},
    }

    _, findings = analyse(loaded(spec).form, registry())

    assert [(f.code, f.at) for f in findings] == [("T03", "/blocks/t/nodes/sum/in/z")]


@pytest.mark.integration
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(sorted(TEXTS)), st.data())
def test_a_corrupted_spec_gives_only_findings(name: str, data: Any) -> None:
    """Values of a shipped spec are removed, duplicated, retyped and renamed at random."""
    spec = json.loads(TEXTS["transformer-base"]) | {
        key: value for key, value in json.loads(TEXTS[name]).items() if key != "extends"
    }
    for _ in range(data.draw(st.integers(1, 4))):
        record, key = data.draw(st.sampled_from(spots(spec)))
        act = data.draw(st.sampled_from(["drop", "double", "retype", "rename", "move"]))
        if act == "drop":
            del record[key]
        elif act == "retype":
            record[key] = data.draw(VALUES)
        elif act == "move":
            other, there = data.draw(st.sampled_from(spots(spec)))
            record[key] = json.loads(json.dumps(other[there]))
        elif isinstance(record, list):
            record.append(record[key])
        else:
            value = record[key] if act == "double" else record.pop(key)
            record[data.draw(WORDS)] = json.loads(json.dumps(value))
        if not spec:
            break

    try:
        opened = loaded(read_json(json.dumps(spec), "spec.json"), "spec.json")
        graph, findings = analyse(opened.form, registry(), source=opened.source)
    except SpecError as error:
        graph, findings = None, list(error.findings)
    except InputError:
        return

    assert (graph is None) == bool(findings)
    assert len({(f.code, f.at, f.problem) for f in findings}) == len(findings)
    for finding in findings:
        assert points_into(spec, finding.at), finding
        assert finding.render().isprintable() or "\n" in finding.render()
