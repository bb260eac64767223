"""Fixes: what a finding suggests removes it, and suggests nothing that is not meant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from weft.specs.findings import Finding
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
