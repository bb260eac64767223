"""`weft.prove` and `weft prove`: shipped specs pass, and the report says what was tested."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.cli.main import main
from weft.runtime.prove.prove import prove
from weft.runtime.prove.report import PROPERTIES

from ..entries import ENTRIES

FEW = ("transformer-tiny", "conv-s2s", "mistral", "bert", "parsing-span", "whisper")
"""Specs of different families for the fast tests."""
UNMASKED = {
    "format": 1,
    "name": "unmasked",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B T 4]", "mask": "mask[B T]"},
    "outputs": {"y": "pool.y"},
    "nodes": {
        "attention": {"use": "attention@1", "params": {"heads": 2}, "in": {"x": "x"}},
        "pool": {"use": "pool@1", "in": {"x": "attention.y", "mask": "mask"}},
    },
}
"""The attention reads padding, because it has no mask."""


@pytest.fixture
def unmasked(tmp_path: Path) -> str:
    """Return the file of a spec whose padding matters."""
    path = tmp_path / "unmasked.json"
    path.write_text(json.dumps(UNMASKED))
    return str(path)


def proof(name: str, **options: Any) -> weft.Proof:
    """Return the proof of a shipped spec at its small size."""
    entry = ENTRIES[name]
    return prove(weft.load(name, **entry["small"]), sizes=entry.get("sizes"), **options)


@pytest.mark.integration
@pytest.mark.parametrize("name", FEW)
def test_shipped_specs_of_each_family_pass(name: str) -> None:
    """What does not apply follows from the spec: its step axis and its masks."""
    graph = weft.load(name).graph()

    found = proof(name, skip=["compiled"])

    assert found.failed == ()
    applied = {one.name for one in found.properties if one.outcome == "passed"}
    masked = any(type_.kind == "mask" for type_ in graph.inputs.values())
    assert {"steps", "causality"} & applied == (
        {"steps", "causality"} if graph.step_axis else set()
    )
    assert ("padding" in applied) is masked
    assert "gradients" in applied
    assert all(one.detail for one in found.properties)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ENTRIES if name not in FEW])
def test_every_shipped_spec_passes(name: str) -> None:
    """At its small size, with another seed than the fast tests."""
    assert proof(name, skip=["compiled"], seed=2).failed == ()


@pytest.mark.slow
@pytest.mark.usefixtures("own_compiler")
@pytest.mark.parametrize("name", ["transformer-tiny", "mistral", "universal-transformer"])
def test_compiled_shipped_specs_pass(name: str) -> None:
    """Two templates, one template, and one whose copies share their weights."""
    assert proof(name, only=["compiled"])["compiled"].outcome == "passed"


@pytest.mark.integration
def test_the_parameters_without_an_effect_are_those_that_the_softmax_ignores() -> None:
    """The bias of keys shifts all scores of a query equally."""
    [note] = proof("transformer-tiny", only=["gradients"])["gradients"].notes

    named = note.partition(": ")[2].split(", ")
    assert len(named) == 6
    assert all(path.endswith(".key.bias") for path in named)


def longer(tmp_path: Path, outputs: dict[str, str]) -> Path:
    """Return the file of a spec with an output that has one position more than the input."""
    path = tmp_path / "longer.json"
    nodes = {
        "attention": UNMASKED["nodes"]["attention"] | {"in": {"x": "x", "mask": "mask"}},  # type: ignore[index]
        "more": {"use": "prepend@1", "in": {"x": "attention.y"}},
        "head": {"use": "linear@1", "params": {"d_out": 3}, "in": {"x": "more.y"}},
    }
    value = {**UNMASKED, "name": "longer", "outputs": outputs, "nodes": nodes}
    path.write_text(json.dumps(value))
    return path


def test_an_output_whose_padding_is_unknown_is_not_compared(tmp_path: Path) -> None:
    """It is not known which of its positions are padding; its parameters get gradients."""
    found = prove(longer(tmp_path, {"y": "attention.y", "z": "head.y"}), skip=["compiled"])

    assert found.failed == ()
    assert found["gradients"].detail.startswith("10 of 11 parameters")
    for name in ("padding", "unpadded"):
        assert found[name].outcome == "passed"
        assert any("output z" in note for note in found[name].notes)


def test_nothing_passes_if_nothing_is_compared(tmp_path: Path) -> None:
    """The only output has an unknown padding."""
    found = prove(longer(tmp_path, {"z": "head.y"}), only=["padding", "unpadded"])

    assert [one.outcome for one in found.properties] == ["does not apply"] * 2
    assert all("unknown what is padding" in one.detail for one in found.properties)


def test_an_axis_without_a_mask_is_reported() -> None:
    """The target of a translator has none."""
    found = proof("transformer-tiny", only=["padding"])["padding"]

    assert found.outcome == "passed"
    assert "axis T has no mask input, so it has no padding" in found.notes
    assert "padding of S" in found.detail


@pytest.mark.parametrize(("wired", "outcome"), [(False, "failed"), (True, "passed")])
def test_a_mask_of_twice_an_axis_masks_it(tmp_path: Path, *, wired: bool, outcome: str) -> None:
    """An input `[B 2*T]` is padded by two positions for each of `T`."""
    spec = json.loads(json.dumps(UNMASKED).replace("[B T", "[B 2*T"))
    if wired:
        spec["nodes"]["attention"]["in"]["mask"] = "mask"
    path = tmp_path / "twice.json"
    path.write_text(json.dumps(spec))

    found = prove(weft.load(path), skip=["compiled", "unpadded", "gradients"])

    [padding] = [one for one in found.properties if one.name == "padding"]
    assert padding.outcome == outcome


@pytest.mark.slow
@pytest.mark.usefixtures("own_compiler")
def test_without_a_compiler_nothing_can_be_compiled() -> None:
    """That is no fault of the model."""
    inductor = importlib.import_module("torch._inductor.config")
    utils = importlib.import_module("torch._inductor.utils")
    with utils.fresh_cache(), inductor.patch({"cpp.cxx": (None, "/no/such/compiler")}):
        found = proof("llama", only=["compiled"])["compiled"]

    assert found.outcome == "does not apply"
    assert "no C++ compiler" in found.detail


def test_a_model_without_a_repeat_is_not_compiled(unmasked: str) -> None:
    """`weft.compile` compiles repeated templates only."""
    found = prove(unmasked, only=["compiled"])["compiled"]

    assert found.outcome == "does not apply"
    assert "no template with parameters is repeated" in found.detail


def test_lengths_can_be_set() -> None:
    """A rolling cache is exercised only by a length above the window of 4."""
    small = weft.load("mistral", **ENTRIES["mistral"]["small"])
    found = prove(small, sizes={"T": 12, "B": 3}, only=["steps"])

    assert found.sizes == {"B": 3, "T": 12}
    assert found["steps"].outcome == "passed"
    assert proof("mistral", only=["padding"]).sizes == {"B": 2, "T": 8}


def test_one_position_and_one_sentence() -> None:
    """What needs several positions does not apply; nothing raises."""
    small = weft.load("transformer-tiny", **ENTRIES["transformer-tiny"]["small"])
    found = prove(small, sizes={"B": 1, "S": 1, "T": 1}, skip=["compiled", "gradients"])

    assert found.failed == ()
    assert found["causality"].outcome == found["padding"].outcome == "does not apply"
    assert found["steps"].outcome == "passed"


def test_the_default_dtype_is_restored(unmasked: str) -> None:
    """The proof computes in float64; the caller's default dtype does not change."""
    before = torch.get_default_dtype()

    prove(unmasked, only=["padding"])

    assert torch.get_default_dtype() is before


def test_the_report_names_the_place(unmasked: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The table has a row for each property; the failure follows, and the exit code is 1."""
    assert main(["prove", unmasked, "--no-compile"]) == 1

    printed, progress = capsys.readouterr()
    rows = {line.split()[0]: line for line in printed.splitlines() if line}
    assert PROPERTIES.keys() - {"compiled"} <= rows.keys()
    assert "failed" in rows["padding"]
    assert "does not apply" in rows["steps"]
    assert rows["node"].split()[1:3] == ["attention", "(attention@1),"]
    assert "not requested: compiled" in printed
    assert [line.partition(":")[0] for line in progress.splitlines()] == [
        name for name in PROPERTIES if name != "compiled"
    ]


def test_as_json(unmasked: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It has every field of the report."""
    line = ["prove", unmasked, "--json", "-q", "--only", "padding", "--axes", "T=5", "--seed", "3"]
    assert main(line) == 1

    printed, progress = capsys.readouterr()
    found = json.loads(printed)
    assert progress == ""
    assert found["passed"] is False
    assert found["sizes"] == {"B": 2, "T": 5}
    assert found["seed"] == 3
    assert found["skipped"] == [name for name in PROPERTIES if name != "padding"]
    [row] = found["properties"]
    assert row["name"] == "padding"
    assert row["outcome"] == "failed"
    assert row["node"] == "attention (attention@1)"
    assert row["difference"] > row["tolerance"]
    assert found == prove(unmasked, only=["padding"], sizes={"T": 5}, seed=3).as_json()


def test_a_tolerance_can_be_set(unmasked: str) -> None:
    """Nothing fails if every difference is allowed."""
    assert prove(unmasked, only=["padding"], tolerance=1e9).passed
    with pytest.raises(weft.InputError, match="not above 0"):
        prove(unmasked, tolerance=0.0)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--only", "step"], 2, "'steps'"),
        (["--only", "compiled", "--no-compile"], 2, "also skipped"),
        (["--axes", "T"], 2, "not the size of an axis"),
        (["--axes", "X=3"], 1, "has no axis 'X'"),
        (["--tolerance", "0"], 2, "--tolerance"),
        (["--seed", "-1"], 2, "--seed"),
    ],
)
def test_wrong_command_lines(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is refused before a model is built."""
    assert main(["prove", "bert", *words]) == code

    assert said in capsys.readouterr().err


def test_a_model_that_does_not_fit_into_memory_is_refused() -> None:
    """Before it is built; the error names `--set`."""
    with pytest.raises(weft.InputError, match=r"6,738,415,616 parameters .* GiB") as caught:
        prove("llama", sizes={"B": 4096})

    assert "--set layers=2" in caught.value.help


def test_a_forward_pass_that_fails_is_an_error() -> None:
    """The help names the option for the sizes."""
    small = weft.load("bert", **ENTRIES["bert"]["small"])
    with pytest.raises(weft.InputError, match="positions, but its max_length is") as caught:
        prove(small, sizes={"T": 4000}, only=["padding"])

    assert "--axes" in caught.value.help


def test_unknown_properties_are_refused() -> None:
    """With the nearest known one."""
    with pytest.raises(weft.InputError, match="no property 'step'") as caught:
        prove("bert", only=["step"])
    assert "steps" in caught.value.help
    with pytest.raises(weft.InputError, match="no property is left"):
        prove("bert", only=["steps"], skip="steps")
