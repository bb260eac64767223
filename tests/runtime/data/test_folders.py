"""Folders: whole or not at all, and never over something else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from weft.runtime.data.folders import building
from weft.specs.findings import InputError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_appears_at_the_end(tmp_path: Path) -> None:
    """While it is filled nothing is at its place; afterwards nothing is beside."""
    folder = tmp_path / "deep" / "data"

    with building(folder, "marker") as fresh:
        (fresh / "marker").write_text("new")
        assert not folder.exists()

    assert (folder / "marker").read_text() == "new"
    assert list(folder.parent.iterdir()) == [folder]


def test_an_error_leaves_the_old_folder(tmp_path: Path) -> None:
    """A rebuild that fails costs nothing."""
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


def test_a_folder_of_its_kind_is_replaced_whole(tmp_path: Path) -> None:
    """No file of the old one is left in the new one."""
    folder = tmp_path / "data"
    for name in ("first", "second"):
        with building(folder, "marker") as fresh:
            (fresh / "marker").touch()
            (fresh / name).touch()

    assert sorted(path.name for path in folder.iterdir()) == ["marker", "second"]
    assert list(tmp_path.iterdir()) == [folder]


def test_anything_else_is_not_replaced(tmp_path: Path) -> None:
    """A folder with other things in it, or a file; an empty folder is fine."""
    (tmp_path / "papers").mkdir()
    (tmp_path / "papers" / "thesis").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()

    for name in ("papers", "file"):
        with pytest.raises(InputError, match="exists and has no marker"):  # noqa: SIM117
            with building(tmp_path / name, "marker"):
                pytest.fail("the body must not run")
    with building(tmp_path / "empty", "marker") as fresh:
        (fresh / "marker").touch()

    assert (tmp_path / "papers" / "thesis").exists()
    assert (tmp_path / "empty" / "marker").exists()
