"""Specs that a param holds: by name, by value, and with a patch."""

from __future__ import annotations

import pytest
from weft.specs.findings import SpecError
from weft.specs.load import load, load_held

PRE = {"select": "**[use=sublayer@1]", "set": {"params.order": "pre"}}


def test_a_patch_changes_a_spec_that_is_held_by_value() -> None:
    """As it does one that is held by name."""
    whole = load("transformer-tiny").value()

    named = load_held({"spec": "transformer-tiny", "patch": [PRE]}, "")
    valued = load_held({"spec": whole, "patch": [PRE]}, "")

    assert named is not None
    assert valued is not None
    assert valued.value()["nodes"] == named.value()["nodes"]
    assert valued.value()["blocks"] == named.value()["blocks"] != whole["blocks"]
    with pytest.raises(SpecError, match="'nothing' selects nothing"):
        load_held({"spec": whole, "patch": [{**PRE, "select": "nothing"}]}, "")
