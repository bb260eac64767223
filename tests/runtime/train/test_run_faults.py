"""Seeded faults of run files: each gives one finding, before any data is read."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.specs.findings import SpecError

FAULTS = json.loads(Path(__file__).with_name("run_faults.json").read_text(encoding="utf-8"))
TEXT = {"type": "text", "tokenizer": "tokenizer"}
RUN: dict[str, Any] = {
    "format": 1,
    "name": "toy",
    "objective": "translation",
    "params": {
        "model": {
            "spec": "transformer-tiny",
            "params": {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "dropout": 0.1},
        }
    },
    "data": {
        "root": "data",
        "columns": {"source": TEXT, "target": {**TEXT}},
        "train": {"lines": {"source": ["train.src"], "target": ["train.tgt"]}},
        "valid": {"lines": {"source": ["valid.src"], "target": ["valid.tgt"]}},
        "test": {"toy": {"lines": {"source": ["test.src"], "target": ["test.tgt"]}}},
        "filter": {"max_length": 100},
    },
    "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": 40}},
    "batch": {"tokens": 200},
    "accumulate": 4,
    "updates": 12,
    "optimizer": {"type": "adam", "clip": 1.0},
    "schedule": {"peak": 0.003, "pieces": [{"to": 1, "over": 4}, {"shape": "cosine", "to": 0}]},
    "evaluate": {"every": 6, "metrics": ["bleu"], "best": "bleu"},
    "checkpoint": {"every": 4, "keep": 3, "average": 2},
    "predict": {"type": "beam", "beam": 2, "max_extra": 4},
    "answers": "target",
    "threads": 1,
}
"""A correct run, of which each fault is an edit."""
SAMPLE = (
    "a number as text",
    "a batch smaller than a sentence",
    "a language model for a translator",
    "another vocabulary than the tokenizer's",
)
"""Faults that earlier versions reported late or never."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that the run names, and a checkpoint of another tokenizer."""
    made = tmp_path_factory.mktemp("faults")
    for part in ("data", "ck"):
        (made / part).mkdir()
    for name in ("train.src", "train.tgt", "valid.src", "valid.tgt", "test.src", "test.tgt"):
        (made / "data" / name).write_text("sun moon\n")
    (made / "data/train.trees").write_text("(TOP (NN sun))\n")
    (made / "data/empty.src").touch()
    for name in ("spec.json", "state.json", "weights.safetensors"):
        (made / "ck" / name).write_text("{}")
    run = {"format": 1, "tokenizers": {"tokenizer": {"type": "bpe", "vocab_size": 50}}}
    (made / "ck/run.json").write_text(json.dumps(run))
    return made


def faulty(fault: dict[str, Any], folder: Path) -> Path:
    """Write the run with one fault, and the specs that it names."""
    run = copy.deepcopy(RUN)
    for at in fault.get("remove", ()):
        inner, last = _reached(run, at)
        del inner[last]
    for at, value in fault.get("edit", {}).items():
        inner, last = _reached(run, at)
        inner[last] = value
    for old in folder.glob("*.json"):
        old.unlink()
    for name, value in fault.get("files", {}).items():
        (folder / name).write_text(json.dumps(value))
    (folder / "run.json").write_text(json.dumps(run))
    return folder / "run.json"


def _reached(value: Any, at: str) -> tuple[Any, Any]:
    """Return the object that a pointer leads to, which is created, and the last key."""
    *outer, last = at.split("/")[1:]
    for key in outer:
        value = value[int(key)] if isinstance(value, list) else value.setdefault(key, {})
    return value, int(last) if isinstance(value, list) else last


def findings(capsys: pytest.CaptureFixture[str]) -> list[tuple[str, str, str]]:
    """Return code, place and help of what `weft check` finds in `run.json`."""
    main(["check", "run.json", "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    return [(one["code"], one["pointer"], one["help"]) for one in found]


@pytest.mark.integration
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault["name"].replace(" ", "-"))
def test_a_fault_gives_one_finding_with_place_and_help(
    fault: dict[str, Any],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Code, pointer and help are exact; a spec of another form may have more findings."""
    monkeypatch.chdir(folder)
    faulty(fault, folder)

    first, *more = findings(capsys)

    assert first == (fault["code"], fault["at"], fault["help"])
    assert fault["help"]
    assert len(more) == fault.get("more", 0)


def test_the_run_without_a_fault_is_correct(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the faults above would not be single ones."""
    monkeypatch.chdir(folder)
    faulty({}, folder)

    assert findings(capsys) == []


@pytest.mark.parametrize("name", SAMPLE)
def test_training_refuses_the_same_before_it_reads_data(
    name: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The text files cannot be read here, and nothing is written."""
    [fault] = [one for one in FAULTS if one["name"] == name]
    monkeypatch.chdir(folder)
    path = faulty(fault, folder)
    monkeypatch.setattr(api, "training_context", None)

    with pytest.raises(SpecError) as caught:
        api.train(path, out=tmp_path / "out")

    first, *_ = caught.value.findings
    assert (first.code, first.at) == (fault["code"], fault["at"])
    assert not (tmp_path / "out").exists()


def test_a_whole_float_is_an_integer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """1.2e1 updates are 12, as in specs; no other value is converted."""
    monkeypatch.chdir(folder)
    faulty({"edit": {"/updates": 1.2e1}}, folder)

    assert findings(capsys) == []


def test_too_little_disk_space_is_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three checkpoints, the moments of two of them, the best and the mean: 9 copies of weights."""
    monkeypatch.chdir(folder)
    faulty({}, folder)
    usage = "weft.runtime.train.checks.files.shutil.disk_usage"
    main(["check", "run.json"])
    parameters = int(capsys.readouterr().out.split("; ")[2].split()[0].replace(",", ""))
    needed = parameters * 4 * 9 + (16 << 20)

    class Usage:
        free = needed - 1

    monkeypatch.setattr(usage, lambda _: Usage)
    help_ = "free disk space, lower 'keep' and 'average', or give another folder with --out"
    assert findings(capsys) == [("R05", "/checkpoint", help_)]

    Usage.free = needed
    assert findings(capsys) == []
