"""Export folders appear completely or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.runtime.checkpoint.exporter import MARKER, new_folder
from weft.specs.findings import InputError

MARKED = '{"target": "engine", "fingerprint": "0"}'


def test_a_folder_appears_when_all_went_well(tmp_path: Path) -> None:
    """An older export stays until then, and is replaced."""
    out = tmp_path / "deep" / "out"
    for text in ("old", "new"):
        with new_folder(out) as folder:
            (folder / MARKER).write_text(MARKED)
            (folder / text).touch()
            assert not (out / text).exists()

    assert sorted(one.name for one in out.iterdir()) == ["new", MARKER]
    assert [one.name for one in out.parent.iterdir()] == ["out"]


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    """No temporary folder is left either."""
    out = tmp_path / "out"
    with new_folder(out) as folder:
        (folder / MARKER).write_text(MARKED)

    def fail() -> None:
        with new_folder(out) as folder:
            (folder / "half").touch()
            raise InputError("wrong")

    with pytest.raises(InputError, match="wrong"):
        fail()
    assert [one.name for one in out.iterdir()] == [MARKER]
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("kind", ["folder", "file", "marker"])
def test_a_foreign_folder_is_not_replaced(tmp_path: Path, kind: str) -> None:
    """A folder with other files, a file of that name and a foreign marker are refused."""
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    else:
        out.mkdir()
        (out / "mine").touch()
        if kind == "marker":
            (out / MARKER).write_text('{"target": "mine"}')

    with pytest.raises(InputError, match="is not an export"), new_folder(out):
        pass

    assert out.exists()
