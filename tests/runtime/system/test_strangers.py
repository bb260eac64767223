"""Folders of strangers: no link out of them, no pipe, bounded sizes, and one module that opens."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from weft.runtime.system import strangers
from weft.runtime.system.strangers import all_tensors_of, json_in, object_in, read_in
from weft.specs.findings import InputError
from weft.specs.regular_files import DamagedError, path_in

ROOT = Path(strangers.__file__).parents[2]
FOLDERS = (
    "runtime/checkpoint",
    "runtime/model",
    "runtime/train",
    "extensions/interop",
    "extensions/study",
)
"""Code that reads checkpoints, studies and imported models."""
READING = {"read_bytes", "read_text", "open", "safe_open", "load_file", "fromfile", "memmap"}
COPYING = {"copyfile", "copy", "copy2", "copytree", "symlink_to", "hardlink_to", "link"}
ALLOWED = {
    "runtime/checkpoint/exporter.py": {"read_text"},  # the marker of an export that is replaced
    "runtime/model/modules.py": {"read_bytes"},  # a tokenizer that the caller names
    "runtime/train/history.py": {"open", "read_bytes"},  # appends to the file that it has written
    "runtime/train/trackers.py": {"open", "copyfile"},  # trackers; a copy for TensorBoard
    "runtime/train/distributed/world.py": {"read_text"},  # a note of the same run
    "extensions/interop/commands.py": {"open"},
    "extensions/interop/importing/comparison.py": {"symlink_to"},  # to what `path_in` returns
    "extensions/interop/export/eject.py": {"read_bytes"},  # the output, which is compared
    "extensions/interop/export/onnx.py": {"read_text"},  # the export that was just written
    "extensions/interop/export/source_bundle.py": {"read_text"},  # code of this package
    "extensions/study/planning/identity.py": {"open"},  # digests of data
    "extensions/study/synthesis.py": {"open"},  # texts of synthetic data
    "extensions/study/jobs.py": {"read_bytes"},  # the file that would be written again
    "extensions/study/transfer.py": {"read_bytes"},  # the same
    "extensions/study/report/page.py": {"read_text"},  # the page's template
    "extensions/study/worker.py": {"open", "symlink_to"},  # its log; the data of the study
}
"""Files that open others, which are not those of strangers."""


def calls(source: str) -> Iterator[str]:
    """Yield the names of the functions that a module calls to read or copy files."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else ""
            name = function.id if isinstance(function, ast.Name) else name
            owner = function.value if isinstance(function, ast.Attribute) else None
            is_copy = name in COPYING and (name != "copy" or is_module(owner, "shutil"))
            if name in READING or is_copy:
                yield name


def is_module(value: ast.expr | None, name: str) -> bool:
    """Return whether an expression is the name of a module."""
    return isinstance(value, ast.Name) and value.id == name


@pytest.mark.parametrize("folder", FOLDERS)
def test_only_one_module_opens_files_of_strangers(folder: str) -> None:
    """Another reader would follow links, wait for pipes and read without bounds."""
    opening = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        name = path.relative_to(ROOT).as_posix()
        if odd := {*calls(path.read_text())} - ALLOWED.get(name, set()):
            opening[name] = odd

    assert not opening, "read through runtime/system/strangers.py"


def test_tensors_are_opened_by_one_module() -> None:
    """A header with hundreds of thousands of tensors is refused there before it is parsed."""
    opening = [
        path.relative_to(ROOT).as_posix()
        for folder in ("runtime", "extensions", "blocks", "graphs", "specs")
        for path in (ROOT / folder).rglob("*.py")
        if {"safe_open", "load_file"} & {*calls(path.read_text())}
        and "safetensors" in path.read_text()
    ]

    assert opening == ["runtime/system/strangers.py"]


def test_a_link_that_leaves_the_folder_is_refused(tmp_path: Path) -> None:
    """It would make a command read, and perhaps publish, a file of its user."""
    (tmp_path / "secret").write_text("key")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "absolute").symlink_to(tmp_path / "secret")
    (folder / "relative").symlink_to("../secret")
    (folder / "above").symlink_to("..", target_is_directory=True)

    for name in ("absolute", "relative", "above/secret", "../secret", str(tmp_path / "secret")):
        with pytest.raises(DamagedError, match="leads out of its folder"):
            read_in(folder, name)


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    """The folder may be a link itself, such as `latest`."""
    (tmp_path / "000100").mkdir()
    (tmp_path / "000100/file").write_text("text")
    (tmp_path / "000100/again").symlink_to("file")
    (tmp_path / "latest").symlink_to("000100", target_is_directory=True)

    assert read_in(tmp_path / "latest", "again") == b"text"


def test_links_of_a_snapshot_lead_to_blobs(tmp_path: Path) -> None:
    """The cache of Hugging Face's library has each file once, under its digest."""
    snapshot = tmp_path / "models--a--b/snapshots/1f"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b/blobs").mkdir()
    (tmp_path / "models--a--b/blobs/77").write_text("text")
    (tmp_path / "models--a--b/refs").write_text("secret")
    (snapshot / "config.json").symlink_to("../../blobs/77")
    (snapshot / "refs").symlink_to("../../refs")

    assert read_in(snapshot, "config.json") == b"text"
    with pytest.raises(DamagedError, match="leads out of its folder"):
        read_in(snapshot, "refs")


def test_blobs_that_are_a_link_are_no_cache(tmp_path: Path) -> None:
    """Otherwise a stranger's folder could name any other one so."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/secret").write_text("key")
    snapshot = tmp_path / "models--a--b/snapshots/1f"
    snapshot.mkdir(parents=True)
    (tmp_path / "models--a--b/blobs").symlink_to(tmp_path / "home", target_is_directory=True)
    (snapshot / "config.json").symlink_to("../../blobs/secret")

    with pytest.raises(DamagedError, match="leads out of its folder"):
        read_in(snapshot, "config.json")


@pytest.mark.parametrize("text", ["[]", "3", "null", '"spec"'])
def test_a_value_that_is_no_object_is_refused(text: str, tmp_path: Path) -> None:
    """Whoever reads the file takes keys of it."""
    (tmp_path / "state.json").write_text(text)

    with pytest.raises(DamagedError, match="not a JSON object"):
        object_in(tmp_path, "state.json")


def test_tensors_below_a_path_that_is_not_utf8_are_an_error(tmp_path: Path) -> None:
    """The library that opens them would panic, or raise an error of its own."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    folder.mkdir()
    write_tensors(folder / "w.safetensors", b"{}")

    with pytest.raises(InputError, match="the path is not UTF-8"):
        all_tensors_of(folder, "w.safetensors")


@pytest.mark.timeout(60)
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    """Opening one waits until another process writes to it."""
    os.mkfifo(tmp_path / "state.json")

    with pytest.raises(DamagedError, match="not a regular file"):
        json_in(tmp_path, "state.json")


def test_a_folder_and_a_circle_of_links_are_refused(tmp_path: Path) -> None:
    """Each is an error that names the file, not one of the system."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "circle").symlink_to("circle")

    for name in ("folder", "circle", "nothing", "nul\0"):
        with pytest.raises(DamagedError) as caught:
            path_in(tmp_path, name)
        assert caught.value.location == str(tmp_path / name)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    """A sparse file of a terabyte needs no space on the disk of its author."""
    with (tmp_path / "big").open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(DamagedError, match="larger than"):
        read_in(tmp_path, "big", 1000)


@pytest.mark.parametrize("content", [b"\xff", b"[" * 100_000, b"{", b'{"a": 1, "a": 2}'])
def test_json_that_cannot_be_read_is_an_error_that_names_the_file(
    tmp_path: Path, content: bytes
) -> None:
    """Also text in another encoding, and text that is nested deeper than Python can follow."""
    (tmp_path / "run.json").write_bytes(content)

    with pytest.raises(InputError, match=r"run\.json"):
        json_in(tmp_path, "run.json")


def write_tensors(path: Path, header: bytes, size: int | None = None) -> None:
    """Write a safetensors file without data."""
    path.write_bytes((len(header) if size is None else size).to_bytes(8, "little") + header)


def test_a_header_with_very_many_tensors_is_refused(tmp_path: Path) -> None:
    """300,000 empty tensors in 18 MB need 11 seconds of processor time to open."""
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{number}": entry for number in range(strangers.MOST_TENSORS + 1)})
    write_tensors(tmp_path / "w.safetensors", header.encode())

    with pytest.raises(DamagedError, match="65537 tensors, more than 65536"):
        all_tensors_of(tmp_path, "w.safetensors")


def test_a_header_that_says_it_is_huge_is_refused(tmp_path: Path) -> None:
    """The first eight bytes are its size, and may be anything."""
    write_tensors(tmp_path / "w.safetensors", b"{}", 1 << 60)

    with pytest.raises(DamagedError, match="the header has"):
        all_tensors_of(tmp_path, "w.safetensors")
