"""Fixes: what a finding suggests removes it, and suggests nothing that is not meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import weft
from weft.specs.findings import Finding
from weft.specs.json_tree import value_at
from weft.specs.text_edits import edited

from .faults import FAULTS, findings_in, text_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Count = Callable[[Callable[[], object]], int]

    Edit = Callable[..., dict[str, Any]]
    FindingsOf = Callable[..., list[Finding]]


CERTAIN = [fault for fault in FAULTS if not fault.keys() & {"make", "set", "files"}]


@pytest.mark.integration
@pytest.mark.parametrize("fault", CERTAIN, ids=lambda fault: fault["name"].replace(" ", "-"))
def test_a_certain_fix_removes_its_finding(
    fault: Mapping[str, Any], edit: Edit, tmp_path: Path
) -> None:
    """A fix that is not certain can be made, too."""
    path = tmp_path / "spec.json"
    text = text_of(fault, edit)
    path.write_text(text, encoding="utf-8")

    [finding] = findings_in(path, {})
    if finding.fix is None:
        return
    made = edited(text, finding.fix.edits)
    if finding.fix.certain:
        path.write_text(made, encoding="utf-8")
        left = findings_in(path, {})
        assert (finding.code, finding.at) not in [(each.code, each.at) for each in left]


def test_commas_between_axes_become_spaces(edit: Edit, tmp_path: Path) -> None:
    """The spec with the fix is valid."""
    path = tmp_path / "spec.json"
    text = json.dumps(edit({"/inputs/source": "ids:vocab[B, S]"}))
    path.write_text(text, encoding="utf-8")

    [finding] = findings_in(path, {})

    assert (finding.code, finding.at) == ("T01", "/inputs/source")
    assert finding.help == "separate axes by spaces: 'ids:vocab[B S]'"
    assert finding.fix is not None
    path.write_text(edited(text, finding.fix.edits), encoding="utf-8")
    assert findings_in(path, {}) == []


@pytest.mark.integration
def test_misspellings_can_be_fixed(edit: Edit, tmp_path: Path) -> None:
    """Of the faults whose help asks whether a name was meant, three in five have a certain fix.

    The others would give an object the same key twice, or have a name that is not alike enough.
    """
    asked = [fault for fault in CERTAIN if fault["help"].startswith("did you mean")]
    certain = []
    for fault in asked:
        path = tmp_path / "spec.json"
        path.write_text(text_of(fault, edit), encoding="utf-8")
        [finding] = findings_in(path, {})
        certain.append(finding.fix is not None and finding.fix.certain)

    assert len(asked) >= 20
    assert sum(certain) >= 0.6 * len(asked)


def the_finding(path: Path, spec: Mapping[str, Any]) -> Finding:
    """Return the only finding of a spec."""
    path.write_text(json.dumps(spec), encoding="utf-8")
    [finding] = findings_in(path, {})
    return finding


def test_a_cycle_names_its_wires(edit: Edit, tmp_path: Path) -> None:
    """Each with the node and the port that it enters."""
    spec = edit({"/nodes/source_position/in/x": "encoder.x"})

    finding = the_finding(tmp_path / "spec.json", spec)

    assert finding.evidence == (
        "'source_position' reads encoder.x at port 'x'",
        "'encoder' reads source_position.y at port 'x'",
    )


def test_a_linear_map_is_suggested_for_widths_only(edit: Edit, tmp_path: Path) -> None:
    """It cannot convert source positions into target positions."""
    path = tmp_path / "spec.json"

    axes = the_finding(
        path,
        edit(
            {
                "/nodes/decoder/in/x": "encoder.x",
                "/nodes/target_position": {
                    "use": "sinusoidal_position@1",
                    "in": {"x": "target_embedding.y"},
                },
            }
        ),
    )
    assert axes.help == "wire a value of the wanted type"
    narrow = {"use": "linear@1", "in": {"x": "encoder.x"}, "params": {"d_out": 8}}
    edits = {"/nodes/narrow": narrow, "/nodes/decoder/in/memory": "narrow.y"}
    width = the_finding(path, edit(edits))
    assert width.help.endswith("or put a 'linear@1' on this wire to change a width")


def _all(path: Path, spec: Mapping[str, Any]) -> list[Finding]:
    path.write_text(json.dumps(spec), encoding="utf-8")
    return findings_in(path, {})


def test_a_missing_number_lists_the_values_that_fit(edit: Edit, tmp_path: Path) -> None:
    """The multiples of the number of key and value heads."""
    use = {"use": "attention@1", "params": {"kv_heads": 16, "d_k": 64}}
    spec = edit({"/blocks/encoder_layer/nodes/self_attention/fill/f": use})

    finding = the_finding(tmp_path / "spec.json", spec)

    assert (finding.code, finding.help) == ("W07", "add 'heads' to 'params': 16, 32, 48 or 64")


def test_a_name_with_another_word_is_not_a_misspelling(edit: Edit, tmp_path: Path) -> None:
    """Whoever removes `source_embedding` did not mean `target_embedding`."""
    spec = edit({}, ["/nodes/source_embedding"])

    first, *_ = _all(tmp_path / "spec.json", spec)

    assert first.code == "N02"
    assert first.help.startswith("known: ")
    assert first.fix is None


_ATTENTION = "decoder.*.self_attention/f"
_CHILD = {"format": 1, "name": "child", "extends": "transformer-base"}


@pytest.mark.parametrize(
    ("patch", "pointer", "value"),
    [
        ({"set": {"params.hedas": 4}}, "/set/params.heads", 4),
        ({"set": {"params": {"hedas": 4, "causal": True}}}, "/set/params/heads", 4),
        ({"set": {"parms.heads": 4}}, "/set/params.heads", 4),
        ({"set": {"params.heads": "=hedas"}}, "/set/params.heads", "=heads"),
        ({"sett": {"params.heads": 4}}, "/set/params.heads", 4),
        ({"remove": ["params.cuasal"]}, "/remove/0", "params.causal"),
        ({"remove": ["parms.causal"]}, "/remove/0", "params.causal"),
        ({"select": "decoder.*.self_atention/f"}, "/select", _ATTENTION),
        ({"select": "decodr.*.self_attention/f"}, "/select", _ATTENTION),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("held", [False, True], ids=["in a child", "in a held model"])
def test_a_mistake_in_a_patch_is_fixed_where_it_is_written(
    tmp_path: Path, patch: dict[str, Any], pointer: str, value: object, held: bool
) -> None:
    """Also if the parent has the key that was meant: the patch writes over it."""
    first = {"select": "head", "set": {"doc": "To scores."}}
    second = {"select": _ATTENTION, "set": {"params.heads": 4}, **patch}
    if patch.keys() & {"sett", "remove"}:
        del second["set"]
    patches = [first, second]
    spec = {**_CHILD, "patch": patches}
    if held:
        model = {"spec": "transformer-base", "patch": patches}
        spec = {**_CHILD, "extends": "objectives/translation", "params": {"model": model}}
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(spec), encoding="utf-8")

    [finding] = weft.check(path)

    assert finding.fix is not None
    assert finding.fix.certain
    text = edited(path.read_text(encoding="utf-8"), finding.fix.edits)
    assert value_at(json.loads(text), f"{'/params/model' * held}/patch/1{pointer}") == value


def test_a_patch_with_the_right_key_beside_the_wrong_one_has_no_fix(tmp_path: Path) -> None:
    """One of the two values would be lost."""
    keys = {"params.hedas": 4, "params.heads": 8}
    spec = {**_CHILD, "patch": [{"select": _ATTENTION, "set": keys}]}

    finding = the_finding(tmp_path / "spec.json", spec)

    assert (finding.code, finding.fix) == ("N04", None)


def test_a_selection_without_the_part_for_copies_has_a_fix(tmp_path: Path) -> None:
    """It is not certain: a single copy may be meant."""
    select = "decoder.self_attention[use=sublayer@1]"
    spec = {**_CHILD, "patch": [{"select": select, "set": {"params.order": "post"}}]}

    finding = the_finding(tmp_path / "spec.json", spec)

    assert finding.fix is not None
    [edit] = finding.fix.edits
    assert edit.value == "decoder.*.self_attention[use=sublayer@1]"
    assert not finding.fix.certain


def test_a_mistake_inside_the_params_of_a_held_model_has_its_place(tmp_path: Path) -> None:
    """In a block choice, as in the file of the model itself."""
    position = {"use": "learned_positon@1", "params": {"max_length": 64}}
    model = {"spec": "transformer-base", "params": {"position": position}}
    spec = {**_CHILD, "extends": "objectives/translation", "params": {"model": model}}

    finding = the_finding(tmp_path / "spec.json", spec)

    assert finding.at == "/params/model/params/position/use"
    assert finding.fix is not None
    assert finding.fix.edits[0].path == finding.at
