"""Tests of checkpoint folders: complete or absent, and opened only with their own graph."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime.checkpoint import manifest
from weft.runtime.checkpoint.checkpoint import (
    _column_files,
    open_checkpoint,
    refuse_other_graph,
    set_weights,
)
from weft.runtime.checkpoint.saving import Contents, save, weights_of
from weft.runtime.cli.main import main
from weft.runtime.codegen.build import build
from weft.runtime.spec.check import graph_of
from weft.runtime.system.folders import recover
from weft.specs.findings import InputError
from weft.specs.load import load

SMALL = {"d_model": 8, "heads": 2, "d_ff": 16, "layers": 1, "vocab": 11, "dropout": 0.0}


def small(seed: int = 1, **params: Any) -> tuple[Any, Contents]:
    """Return a small model and the contents of its checkpoint."""
    graph = graph_of(load("transformer-tiny", {**SMALL, **params}))
    model = build(graph, seed=seed).eval()
    contents = Contents(graph=graph, weights=weights_of(model, graph), state={"update": 7})
    return model, contents


def outputs(model: Any) -> torch.Tensor:
    """Return the logits for a fixed input."""
    ids = torch.tensor([[4, 5, 6]])
    with torch.no_grad():
        mask = torch.ones(1, 3, dtype=torch.bool)
        logits: torch.Tensor = model(source=ids, source_mask=mask, target=ids)["logits"]
    return logits


def test_opens_without_the_files_it_came_from(tmp_path: Path) -> None:
    """A checkpoint contains its spec, so it needs no shipped file and no override."""
    model, contents = small()

    checkpoint = open_checkpoint(save(tmp_path / "c", contents))

    assert torch.equal(outputs(checkpoint.build()), outputs(model))
    assert checkpoint.state["update"] == 7


@pytest.mark.parametrize(
    ("names", "opened"), [(["best"], "best"), (["best", "averaged"], "averaged")]
)
def test_of_a_run_its_averaged_or_best_checkpoint_is_opened(
    tmp_path: Path, names: list[str], opened: str
) -> None:
    """`weft translate outputs/RUN` is what one types first."""
    contents = small()[1]
    for name in names:
        save(tmp_path / name, contents)

    assert open_checkpoint(tmp_path).folder == tmp_path / opened


def test_of_a_run_no_link_is_opened(tmp_path: Path) -> None:
    """It may lead out of the folder of a stranger."""
    save(tmp_path / "elsewhere", small()[1])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "averaged").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(InputError, match="not a complete checkpoint"):
        open_checkpoint(tmp_path / "run")


def test_a_tied_parameter_is_stored_once(tmp_path: Path) -> None:
    """Three names, one tensor: the file has the size of the parameters."""
    _, contents = small()

    checkpoint = open_checkpoint(save(tmp_path / "c", contents))

    assert "source_embedding.weight" in checkpoint.weights
    assert "head.weight" not in checkpoint.weights
    built = checkpoint.build()
    assert built.head.weight is built.source_embedding.weight


@pytest.mark.parametrize("name", ["weights.safetensors", "spec.json", "state.json"])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, name: str) -> None:
    """A cut-off file is an error that names it."""
    folder = save(tmp_path / "c", small()[1])
    path = folder / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    with pytest.raises(InputError, match=name):
        open_checkpoint(folder)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A folder without weights is not a checkpoint."""
    folder = save(tmp_path / "c", small()[1])
    (folder / "weights.safetensors").unlink()

    with pytest.raises(InputError, match=r"'weights.safetensors' is missing"):
        open_checkpoint(folder)


def test_an_edited_spec_is_refused(tmp_path: Path) -> None:
    """A changed spec is an error, even if the shapes of the weights fit."""
    folder = save(tmp_path / "c", small()[1])
    spec = json.loads((folder / "spec.json").read_text())
    layer = spec["blocks"]["encoder_layer"]["nodes"]["self_attention"]
    layer["params"]["order"] = "pre"
    (folder / "spec.json").write_text(json.dumps(spec))

    with pytest.raises(
        InputError, match="not the spec that the weights were trained with"
    ) as caught:
        open_checkpoint(folder)
    assert caught.value.problem.splitlines()[1:] == ["      encoder.*.self_attention"]


def test_an_edit_outside_of_nodes_is_named_too(tmp_path: Path) -> None:
    """Ties and outputs belong to no node, so the message lists no node."""
    folder = save(tmp_path / "c", small()[1])
    spec = json.loads((folder / "spec.json").read_text())
    del spec["tie"]
    (folder / "spec.json").write_text(json.dumps(spec))

    with pytest.raises(InputError) as caught:
        open_checkpoint(folder)
    assert caught.value.problem.splitlines()[1:] == ["      the spec itself"]


def test_a_checkpoint_without_digests_is_refused_all_the_same(tmp_path: Path) -> None:
    """An older checkpoint without node digests only reports that the spec was changed."""
    folder = save(tmp_path / "c", small()[1])
    state = json.loads((folder / "state.json").read_text())
    del state["nodes"]
    (folder / "state.json").write_text(json.dumps(state))
    assert open_checkpoint(folder, verify=False).state == state

    spec = json.loads((folder / "spec.json").read_text())
    spec["nodes"]["head"]["params"]["bias"] = True
    (folder / "spec.json").write_text(json.dumps(spec))

    with pytest.raises(InputError, match=r"trained with\n  --> "):
        open_checkpoint(folder, verify=False)


def test_another_graph_is_refused_with_the_differences() -> None:
    """Differences are listed as in a diff, at most eight lines."""
    base, near, far = (
        small(**params)[1].graph for params in ({}, {"d_ff": 24}, {"d_ff": 24, "dropout": 0.5})
    )
    message = {"problem": "not this one", "location": "there", "help_": "take another"}

    refuse_other_graph(base, base, **message)
    with pytest.raises(InputError) as caught:
        refuse_other_graph(base, near, **message)
    assert caught.value.problem.splitlines() == [
        "not this one",
        "      ~ encoder.*.feed_forward/f  d_ff 16 -> 24",
        "      ~ decoder.*.feed_forward/f  d_ff 16 -> 24",
    ]
    with pytest.raises(InputError) as caught:
        refuse_other_graph(base, far, **message)
    assert len(caught.value.problem.splitlines()) == 1 + 8 + 1
    assert caught.value.problem.endswith("      and 1 more")


def test_averaging_two_graphs_is_refused_with_the_differences(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another graph is an error even if every weight has the same name and shape."""
    folders = [str(save(tmp_path / f"{rate}", small(relu_dropout=rate)[1])) for rate in (0.0, 0.25)]

    assert main(["average", *folders, "-o", str(tmp_path / "mean")]) == 1

    lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "error: the checkpoints have different graphs",
        "      ~ encoder.*.feed_forward/f  dropout 0.0 -> 0.25",
    ]
    assert not (tmp_path / "mean").exists()


def test_weights_of_another_graph_are_refused_by_name() -> None:
    """Missing weights and weights of another shape are both reported."""
    other = small(layers=2, d_ff=24)[1]
    model, contents = small()

    with pytest.raises(InputError) as caught:
        set_weights(model, other.weights, contents.graph, "there")

    assert "'encoder.1.self_attention.norm.weight' is unexpected" in str(caught.value)

    wider = small(d_ff=24)[1]
    with pytest.raises(InputError, match=r"inner.weight' has shape \[24, 8\], not \[16, 8\]"):
        set_weights(model, wider.weights, contents.graph, "there")


def test_a_full_disk_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails half-way changes nothing and leaves no files behind."""
    folder = tmp_path / "c"
    model, contents = small()
    save(folder, contents)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left"):
        save(folder, small(seed=2)[1])

    assert torch.equal(outputs(open_checkpoint(folder).build()), outputs(model))
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_disk_that_is_full_at_the_last_renaming_leaves_the_old_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old one has been renamed by then, and gets its name back."""
    _, contents = small()
    save(tmp_path / "best", contents)
    before = {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()}
    rename = Path.rename

    def full(path: Path, target: Path) -> Path:
        if path.name == ".best.partial":
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(InputError, match="No space left on device"):
        save(tmp_path / "best", contents)

    assert [path.name for path in tmp_path.iterdir()] == ["best"]
    assert before == {path.name: path.read_bytes() for path in (tmp_path / "best").iterdir()}


def test_killed_between_two_renames_the_old_checkpoint_comes_back(tmp_path: Path) -> None:
    """The next process restores the old folder if the replacement was interrupted."""
    folder = save(tmp_path / "best", small()[1])
    folder.rename(tmp_path / ".best.old")

    recover(folder)

    assert open_checkpoint(folder).state["update"] == 7


def test_too_little_space_is_seen_before_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The free space is checked before anything is written."""
    monkeypatch.setattr(manifest, "RESERVE", 1 << 60)

    with pytest.raises(InputError, match="no space left on the disk"):
        save(tmp_path / "c", small()[1])

    assert list(tmp_path.iterdir()) == []


def test_a_wrong_folder_suggests_a_near_one(tmp_path: Path) -> None:
    """A misspelled folder gets the nearest name as a suggestion."""
    save(tmp_path / "averaged", small()[1])

    with pytest.raises(InputError, match="did you mean"):
        open_checkpoint(tmp_path / "averagd")


def test_another_format_is_refused(tmp_path: Path) -> None:
    """An unknown format is an error."""
    folder = save(tmp_path / "c", small()[1])
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "format": 99}))
    manifest.write(folder)

    with pytest.raises(InputError, match="format 99"):
        open_checkpoint(folder)


@pytest.mark.parametrize(
    "imported",
    [None, 3, {"tokens": [1]}, {"search": None}, {"generate": {"temperature": "hot"}}],
)
def test_a_damaged_origin_is_refused(tmp_path: Path, imported: object) -> None:
    """The state of an imported model has its special ids and its settings of decoding."""
    folder = save(tmp_path / "c", small()[1])
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, "imported": imported}))

    with pytest.raises(InputError, match=r"state\.json#/imported"):
        open_checkpoint(folder, verify=False)


@pytest.mark.parametrize(
    "wrong", [{"update": "7"}, {"update": -1}, {"best": [1]}, {"nodes": []}, {"kernels": 3}]
)
def test_a_state_with_a_wrong_value_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    """A stranger may write anything into it; the message names the key."""
    folder = save(tmp_path / "c", small()[1])
    state = json.loads((folder / "state.json").read_text())
    (folder / "state.json").write_text(json.dumps({**state, **wrong}))

    with pytest.raises(InputError, match=rf"state\.json#/{next(iter(wrong))}"):
        open_checkpoint(folder, verify=False)


RUN_MISTAKES: dict[str, Any] = {
    "data": [],
    "data/columns": 5,
    "data/columns/source": None,
    "data/columns/source/type": 3,
    "data/columns/source/tokenizer": ["tokenizer"],
    "data/root": {},
    "data/train": "train.src",
    "data/test": [1],
    "tokenizers": [],
    "tokenizers/tokenizer": None,
    "tokenizers/tokenizer/vocab_size": None,
    "tokenizers/tokenizer/type": "no-such-type",
    "name": "../../name",
    "objective": None,
    "params": [],
    "values": 3,
    "evaluate": [],
    "evaluate/best": {"type": []},
    "evaluate/metrics": {"bleu": 1},
    "predict": [],
    "predict/beam": "wide",
    "answers": ["target"],
    "format": "1",
}
"""Place in a stored run to a value that it cannot have."""


@pytest.mark.integration
@pytest.mark.parametrize("at", RUN_MISTAKES)
@pytest.mark.parametrize("command", ["translate", "average", "eject"])
def test_a_run_with_a_wrong_value_is_one_error_that_names_the_key(
    command: str,
    at: str,
    toy_checkpoint: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every command opens a checkpoint, and no other place has to mistrust its run."""
    folder = Path(shutil.copytree(toy_checkpoint, tmp_path / "copy"))
    run = json.loads((folder / "run.json").read_text())
    *parents, key = at.split("/")
    part = run
    for name in parents:
        part = part[name]
    part[key] = RUN_MISTAKES[at]
    (folder / "run.json").write_text(json.dumps(run))
    manifest.write(folder)
    more = [os.devnull] if command == "translate" else ["-o", str(tmp_path / "out")]

    assert main([command, str(folder), *more]) == 1

    error = capsys.readouterr().err
    assert "run.json#/" + at in error or f"run.json#/{'/'.join(parents)}" in error
    assert not (tmp_path / "out").exists()


def test_every_file_can_be_read_by_those_who_can_read_the_others(tmp_path: Path) -> None:
    """Safetensors makes files that only their owner can read."""
    folder = save(tmp_path / "c", small()[1])

    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1


@pytest.mark.integration
def test_only_files_of_columns_belong_to_a_model(toy_checkpoint: Path, tmp_path: Path) -> None:
    """Others would be written beside an export, whatever a stranger has put there."""
    folder = tmp_path / "copy"
    shutil.copytree(toy_checkpoint, folder)
    wanted = open_checkpoint(folder).tokenizers
    for name in (".bashrc", "torch.py", "tokenizer.py", "package.json", "id_rsa.txt"):
        (folder / name).write_text("")
    (folder / 'tokenizer."""; print(1); """.json').write_text("")
    manifest.write(folder)

    assert open_checkpoint(folder).tokenizers == wanted
    assert wanted.keys() == {"tokenizer.model"}


def test_names_of_an_imported_model_are_plain(tmp_path: Path) -> None:
    """An ejected file lists them in its docstring, which another name could end."""
    (tmp_path / 'a""" + print(1) + """.model').write_text("")
    (tmp_path / "b-1.model").write_text("")

    assert _column_files(manifest.Manifest(tmp_path), {}) == ["b-1.model"]


def test_a_folder_that_may_not_be_written_needs_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Free disk space would not help."""

    def refused(*_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refused)

    with pytest.raises(InputError, match="Permission denied") as caught:
        save(tmp_path / "c", small()[1])
    assert caught.value.help == "give another folder; earlier checkpoints are complete"
