"""Planted faults: `weft.prove` finds each, and names the property and the node."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import weft
from torch import nn

from . import faults

FIRST = "layers.0.planted ({}@1)"
"""The first node that differs."""


def proof(module: type[nn.Module], folder: Path, *, compiled: bool = False) -> weft.Proof:
    """Return the proof of a small spec that uses a block."""
    path = folder / "faulty.json"
    path.write_text(json.dumps(faults.spec(module)))
    skip = [] if compiled else ["compiled"]
    return weft.prove(path, blocks=[faults.block(module)], skip=skip)


def outcomes(found: weft.Proof) -> dict[str, str]:
    """Return the outcome of each property."""
    return {one.name: one.outcome for one in found.properties}


@pytest.mark.parametrize("module", [faults.TokenShift, faults.Silent, faults.Positive])
def test_a_sound_block_passes(module: type[nn.Module], tmp_path: Path) -> None:
    """Everything that applies passes; the spec has no mask."""
    found = proof(module, tmp_path)

    assert outcomes(found) == {
        "steps": "passed",
        "causality": "passed",
        "padding": "does not apply",
        "unpadded": "passed",
        "saved": "passed",
        "predictions": "does not apply",
        "gradients": "passed",
    }
    assert found.passed


def test_a_sound_block_with_a_mask_passes(tmp_path: Path) -> None:
    """A spec without `step` has no steps and no causality."""
    found = proof(faults.Mean, tmp_path)

    assert outcomes(found) == {
        "steps": "does not apply",
        "causality": "does not apply",
        "padding": "passed",
        "unpadded": "passed",
        "saved": "passed",
        "predictions": "does not apply",
        "gradients": "passed",
    }


@pytest.mark.parametrize(
    ("module", "way", "first"),
    [
        (faults.Forgetful, "one by one", 1),
        (faults.Misplaced, "after rows were reordered", 4),
        (faults.Single, "a prompt at once, then several positions, then one", 4),
    ],
)
def test_wrong_steps(module: type[nn.Module], way: str, first: int, tmp_path: Path) -> None:
    """Only the steps fail, in the first way of decoding that shows the fault."""
    found = proof(module, tmp_path)

    assert [one.name for one in found.failed] == ["steps"]
    failed = found["steps"]
    assert f"decoding {way} " in failed.detail
    [position] = re.findall(r"^output logits at B=\d, T=(\d), \d$", failed.location)
    assert first <= int(position) < 8
    assert failed.node == FIRST.format(module.__name__.lower())
    assert failed.difference is not None
    assert failed.tolerance is not None
    assert failed.difference > 1000 * failed.tolerance


def test_a_step_that_raises(tmp_path: Path) -> None:
    """The exception is quoted, and the other properties are tested all the same."""
    found = proof(faults.Raising, tmp_path)

    assert [one.name for one in found.failed] == ["steps"]
    assert found["steps"].detail == "decoding one by one raises ValueError: no steps here"
    assert found["causality"].outcome == "passed"


def test_a_model_that_gives_only_nan_is_an_error(tmp_path: Path) -> None:
    """NaN equals NaN, so every comparison would pass."""
    with pytest.raises(weft.InputError, match="logits of faulty has no finite value"):
        proof(faults.Nothing, tmp_path)


def test_a_leak(tmp_path: Path) -> None:
    """Later positions reach earlier outputs, and so steps differ as well."""
    found = proof(faults.Leaking, tmp_path)

    failed = found["causality"]
    assert failed.outcome == "failed"
    assert failed.detail == "other inputs from T=1 on change an output before it"
    assert "T=0" in failed.location
    assert failed.node == FIRST.format("leaking")
    assert found["unpadded"].outcome == "failed", "rows end in padding, which the block reads"


def test_a_leak_behind_a_closed_gate(tmp_path: Path) -> None:
    """Noise on the initial weights opens it."""
    found = proof(faults.Gated, tmp_path)

    assert found["causality"].outcome == "failed"
    assert found["causality"].node == FIRST.format("gated")


def test_a_random_block_is_not_accused_of_a_leak(tmp_path: Path) -> None:
    """The report says that it is random."""
    found = proof(faults.Noisy, tmp_path)

    for name in ("steps", "causality"):
        assert "random in evaluation mode" in found[name].detail
        assert found[name].node == FIRST.format("noisy")
    assert "random in training" in found["unpadded"].detail


@pytest.mark.parametrize(
    ("module", "what"),
    [(faults.Unmasked, "other values in the padding of T"), (faults.Counting, "8 more positions")],
)
def test_padding_that_matters(module: type[nn.Module], what: str, tmp_path: Path) -> None:
    """Its values, and its amount alone."""
    found = proof(module, tmp_path)

    failed = found["padding"]
    assert failed.outcome == "failed"
    assert failed.detail.startswith(what)
    assert failed.node == FIRST.format(module.__name__.lower())
    position = dict(one.split("=") for one in failed.location.split(" at ")[1].split(", ")[:2])
    assert position.keys() == {"B", "T"}


@pytest.mark.parametrize(
    ("module", "parameter", "reason"),
    [
        (faults.Detached, "mu", "they are detached or used without gradients"),
        (faults.Rounded, "mu", "their gradient is zero"),
        (faults.Unused, "spare", "no output depends on"),
        (faults.Infinite, "mu", "is not finite"),
        (faults.InfiniteAtFirst, "mu", "is not finite, with the initial weights"),
    ],
)
def test_wrong_gradients(
    module: type[nn.Module], parameter: str, reason: str, tmp_path: Path
) -> None:
    """The parameters of both layers are named."""
    found = proof(module, tmp_path)["gradients"]

    assert found.outcome == "failed"
    assert reason in found.detail
    assert f"layers.0.planted.{parameter}" in found.detail
    assert f"layers.1.planted.{parameter}" in found.detail


def test_a_zero_gradient_without_an_effect_is_reported_not_failed(tmp_path: Path) -> None:
    """As for the bias of attention keys."""
    found = proof(faults.Silent, tmp_path)["gradients"]

    assert found.outcome == "passed"
    [note] = found.notes
    assert "layers.0.planted.constant, layers.1.planted.constant" in note
    assert "mu" not in note


@pytest.mark.integration
def test_experts_that_get_no_token_in_one_batch_are_not_accused(tmp_path: Path) -> None:
    """Each of 24 experts gets one in the larger batches, with another router in each attempt."""
    found = proof(faults.Experts, tmp_path)

    assert found["gradients"].outcome == "passed"
    assert found["gradients"].notes == ()


def test_an_unpadded_form_that_differs(tmp_path: Path) -> None:
    """A block that declares `...` gets `[R, D]`."""
    found = proof(faults.Rowwise, tmp_path)

    assert [one.name for one in found.failed] == ["unpadded"]
    assert found["unpadded"].node == FIRST.format("rowwise")


def test_an_unpadded_form_with_other_gradients(tmp_path: Path) -> None:
    """The outputs are equal, so no node differs; the place is a parameter."""
    found = proof(faults.RowwiseGradient, tmp_path)

    assert [one.name for one in found.failed] == ["unpadded"]
    assert found["unpadded"].location.startswith("gradient of ")
    assert found["unpadded"].node == ""


def test_what_a_checkpoint_lacks(tmp_path: Path) -> None:
    """A buffer is copied with a model in memory, but a checkpoint has the parameters alone."""
    found = proof(faults.Unsaved, tmp_path)

    assert [one.name for one in found.failed] == ["saved"]
    assert found["saved"].node == FIRST.format("unsaved")


@pytest.mark.slow
@pytest.mark.usefixtures("own_compiler")
def test_a_compiled_form_that_differs(tmp_path: Path) -> None:
    """The first compiled layer is named."""
    found = proof(faults.Compiled, tmp_path, compiled=True)

    assert [one.name for one in found.failed] == ["compiled"]
    assert found["compiled"].node == "layers.0 (template Layer)"
    assert proof(faults.TokenShift, tmp_path, compiled=True)["compiled"].outcome == "passed"
