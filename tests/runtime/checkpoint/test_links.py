"""A stranger's checkpoint: no command reads or copies a file that is not one of its manifest."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from weft.runtime.checkpoint import manifest
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.train.context import Result
from weft.specs.regular_files import DamagedError

pytestmark = pytest.mark.integration

SECRET = "-----BEGIN PRIVATE KEY-----"
OPENED: list[str] = []
"""Paths of the files that this process has opened since a test began."""


def record(event: str, arguments: tuple[Any, ...]) -> None:
    """Add the path of a file that is opened; an audit hook stays until the process ends."""
    if event == "open" and isinstance(arguments[0], str | bytes):
        OPENED.append(os.path.realpath(os.fsdecode(arguments[0])))


@pytest.fixture(scope="module", autouse=True)
def _recording() -> None:
    sys.addaudithook(record)


@pytest.fixture
def folder(toy_trained: Result, tmp_path: Path) -> Path:
    """Return a copy of a checkpoint that can be resumed."""
    assert toy_trained.checkpoint is not None
    return Path(shutil.copytree(toy_trained.checkpoint, tmp_path / "stranger"))


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    """Return a file of the user, which no command may open."""
    path = tmp_path / "id_rsa"
    path.write_text(SECRET)
    OPENED.clear()
    yield path
    assert str(path.resolve()) not in OPENED
    copies = [p for p in tmp_path.rglob("*") if p.is_file() and not p.is_symlink() and p != path]
    assert not any(SECRET.encode() in copy.read_bytes() for copy in copies)


def with_column(folder: Path, name: str) -> None:
    """Give the run of a checkpoint another column, as its author can: the manifest fits."""
    run = json.loads((folder / "run.json").read_text())
    run["data"]["columns"][name] = run["data"]["columns"]["source"]
    (folder / "run.json").write_text(json.dumps(run))
    listed = json.loads((folder / "manifest.json").read_text())
    listed["files"]["run.json"] = manifest.digest(folder, "run.json")
    (folder / "manifest.json").write_text(json.dumps(listed))


def commands(folder: Path, out: Path) -> Iterator[list[str]]:
    """Yield the commands that read or copy a checkpoint."""
    yield ["average", str(folder), "-o", str(out / "averaged")]
    yield ["eject", str(folder), "-o", str(out / "ejected")]
    yield ["export", str(folder), "--to", "huggingface", "-o", str(out / "hf")]
    yield ["export", str(folder), "--to", "onnx", "-o", str(out / "onnx")]
    yield ["translate", str(folder), os.devnull]


@pytest.mark.parametrize("number", range(5))
def test_a_link_beside_the_files_of_the_manifest_is_not_read(
    number: int, folder: Path, secret: Path
) -> None:
    """The run names a column `id_rsa`, and `id_rsa.txt` is a link to the reader's key."""
    with_column(folder, "id_rsa")
    for suffix in (".txt", ".model", ".json", ".symbols.json"):
        (folder / f"id_rsa{suffix}").symlink_to(secret)

    main([*commands(folder, secret.parent / "out")][number])


@pytest.mark.parametrize("name", ["weights.safetensors", "spec.json", "run.json"])
@pytest.mark.parametrize("number", range(5))
def test_a_link_instead_of_a_file_is_refused(
    number: int, name: str, folder: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command ends with an error that names it."""
    (folder / name).unlink()
    (folder / name).symlink_to(secret)

    assert main([*commands(folder, secret.parent / "out")][number]) == 1

    error = capsys.readouterr().err
    assert name in error
    assert "leads out of its folder" in error


@pytest.mark.parametrize("command", ["check", "show", "cost", "expand", "draw"])
def test_a_link_instead_of_the_spec_is_refused_by_commands_of_specs(
    command: str, folder: Path, secret: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """To them, the folder of a checkpoint stands for its spec; an excerpt would be in the error."""
    (folder / "spec.json").unlink()
    (folder / "spec.json").symlink_to(secret)

    out = ["-o", str(secret.parent / "out.dot")] if command == "draw" else []
    assert main([command, str(folder), *out]) == 1

    assert "leads out of its folder" in "".join(capsys.readouterr())


def special(path: Path, kind: str) -> None:
    """Make something that is not a file."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "circle": path.name}[kind])


@pytest.mark.skipif(sys.platform == "win32", reason="the system has no pipes with names")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "circle"])
def test_what_is_not_a_file_is_refused_at_once(kind: str, folder: Path) -> None:
    """A pipe would keep the command waiting, and a device has no end."""
    for name in json.loads((folder / "manifest.json").read_text())["files"]:
        copy = Path(shutil.copytree(folder, folder.parent / name))
        (copy / name).unlink()
        special(copy / name, kind)

        with pytest.raises(DamagedError) as caught:
            open_checkpoint(copy).optimizer()
        assert name in caught.value.location


def test_a_sparse_file_of_weights_is_refused_before_it_is_read(folder: Path) -> None:
    """It needs no space on the disk of its author, and all memory of its reader."""
    with (folder / "weights.safetensors").open("r+b") as file:
        file.truncate(1 << 42)

    with pytest.raises(DamagedError, match=r"more than the .* that the model can need"):
        open_checkpoint(folder)
