"""Tests of locks: what is written beside a lock is written into its folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from weft.runtime.system.lock import locked
from weft.specs.findings import InputError


@pytest.mark.parametrize("name", [".lock", ".owner.json", "metrics.jsonl", "metrics.partial"])
@pytest.mark.parametrize("dangling", [False, True])
def test_a_link_in_the_folder_of_a_run_is_refused(
    name: str, dangling: bool, tmp_path: Path
) -> None:
    """A training of a stranger's folder would overwrite the file to which it leads."""
    (tmp_path / "run").mkdir()
    target = tmp_path / "profile"
    if not dangling:
        target.write_text("mine")
    (tmp_path / "run" / name).symlink_to(target)

    with pytest.raises(InputError, match="a file elsewhere would be overwritten"):
        locked(tmp_path / "run").__enter__()

    assert target.exists() != dangling
    assert dangling or target.read_text() == "mine"


def test_a_linked_folder_is_allowed(tmp_path: Path) -> None:
    """Jobs of a study share prepared data by such links."""
    (tmp_path / "run").mkdir()
    (tmp_path / "prepared").mkdir()
    (tmp_path / "run/prepared").symlink_to("../prepared", target_is_directory=True)

    with locked(tmp_path / "run"):
        assert (tmp_path / "run/.owner.json").is_file()
