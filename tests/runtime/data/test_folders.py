"""Atomic folders: complete or absent, and never replacing unrelated content."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from weft.runtime.data.folders import building, remove_leftover, resuming
from weft.specs.findings import InputError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_appears_at_the_end(tmp_path: Path) -> None:
    """The folder is absent while it is filled; no temporary folder remains."""
    folder = tmp_path / "deep" / "data"

    with building(folder, "marker") as fresh:
        (fresh / "marker").write_text("new")
        assert not folder.exists()

    assert (folder / "marker").read_text() == "new"
    assert list(folder.parent.iterdir()) == [folder]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    """A failed rebuild keeps the old folder."""
    folder = tmp_path / "data"
    with building(folder, "marker") as fresh:
        (fresh / "marker").write_text("old")

    def fail() -> None:
        with building(folder, "marker") as fresh:
            (fresh / "marker").write_text("new")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert (folder / "marker").read_text() == "old"
    assert list(tmp_path.iterdir()) == [folder]


def test_a_folder_of_its_kind_is_replaced_completely(tmp_path: Path) -> None:
    """No file of the old folder is in the new one."""
    folder = tmp_path / "data"
    for name in ("first", "second"):
        with building(folder, "marker") as fresh:
            (fresh / "marker").touch()
            (fresh / name).touch()

    assert sorted(path.name for path in folder.iterdir()) == ["marker", "second"]
    assert list(tmp_path.iterdir()) == [folder]


def test_other_folders_and_files_are_not_replaced(tmp_path: Path) -> None:
    """A folder with other content, or a file, raises an error; an empty folder is replaced."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()

    for name in ("papers", "file"):
        with pytest.raises(InputError, match="exists and does not contain marker"):  # noqa: SIM117
            with building(tmp_path / name, "marker"):
                pytest.fail("the body must not run")
    with building(tmp_path / "empty", "marker") as fresh:
        (fresh / "marker").touch()

    assert (tmp_path / "papers" / "thesis").exists()
    assert (tmp_path / "empty" / "marker").exists()


def test_one_process_works_and_the_others_wait(tmp_path: Path) -> None:
    """The second process gets the lock after the first is done, and finds its result."""
    folder, messages = tmp_path / "data", list[str]()
    waiting, seen = threading.Event(), list[bool]()

    def callback(text: str) -> None:
        messages.append(text)
        waiting.set()

    def second() -> None:
        with resuming(folder, "marker", "key", callback):
            seen.append((folder / "marker").is_file())

    thread = threading.Thread(target=second)
    with resuming(folder, "marker", "key", messages.append) as (_, fresh):
        thread.start()
        assert waiting.wait(10)
        (fresh / "marker").touch()
    thread.join(10)

    assert messages == [f"waiting for another process that prepares {tmp_path / '.data.work'}"]
    assert seen == [True]
    assert list(tmp_path.iterdir()) == [folder]


def test_a_leftover_of_finished_work_is_removed(tmp_path: Path) -> None:
    """The process was killed between the renaming and the removal of its intermediate files."""
    folder, work = tmp_path / "data", tmp_path / ".data.work"
    folder.mkdir()
    work.mkdir()
    (work / "train.lines").write_text("large")

    remove_leftover(folder)

    assert list(tmp_path.iterdir()) == [folder]
    remove_leftover(folder)


def test_the_work_of_another_process_is_no_leftover(tmp_path: Path) -> None:
    """It holds the lock of its working folder."""
    folder = tmp_path / "data"
    with resuming(folder, "marker", "key", lambda _: None) as (work, fresh):
        remove_leftover(folder)

        assert work.is_dir()
        (fresh / "marker").write_text("done")
    assert list(tmp_path.iterdir()) == [folder]
