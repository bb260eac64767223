"""Folders are on the disk before they get their names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from weft.runtime.system.folders import new_folder


def test_all_files_are_flushed_before_the_folder_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a loss of power after the renaming leaves a named folder with empty files."""
    out, flushed = tmp_path / "out", set[str]()
    flush = os.fsync

    def note(descriptor: int) -> None:
        flushed.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        assert not out.exists() or flushed >= {"a", "b", "inner"}
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    with new_folder(out) as folder:
        (folder / "inner").mkdir()
        (folder / "a").touch()
        (folder / "inner" / "b").touch()
    assert sorted(path.name for path in out.iterdir()) == ["a", "inner"]
    assert flushed == {"a", "b", "inner", ".out.partial", tmp_path.name}


def test_what_a_killed_process_has_left_is_removed(tmp_path: Path) -> None:
    """A folder begins empty, and no hidden one stays."""
    (tmp_path / ".out.partial").mkdir()
    (tmp_path / ".out.partial" / "half").touch()

    with new_folder(tmp_path / "out") as folder:
        assert list(folder.iterdir()) == []

    assert [path.name for path in tmp_path.iterdir()] == ["out"]
