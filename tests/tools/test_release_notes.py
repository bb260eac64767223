"""Notes of a release: the section of its version, and versions that agree."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_notes import main, notes, versions

CHANGELOG = """# Changelog

## Unreleased

- later

## 0.2.0 - 2027-01-31

### Added

- a block

## 0.1.0 - 2026-12-01

- the first release
"""


def test_the_notes_are_the_section_of_the_version() -> None:
    """Without the changes of other versions, and without the heading."""
    assert notes(CHANGELOG, "0.2.0") == "### Added\n\n- a block"
    assert notes(CHANGELOG, "0.1.0") == "- the first release"


@pytest.mark.parametrize("version", ["0.3.0", "0.2", "Unreleased"])
def test_a_version_without_a_dated_section_is_refused(version: str) -> None:
    """A release whose changes are still listed as unreleased was not prepared."""
    with pytest.raises(ValueError, match=rf"a section .## \[{version}\] - YYYY-MM-DD."):
        notes(CHANGELOG, version)


def test_all_files_state_the_same_version() -> None:
    """The citation names the version that is installed."""
    assert len(set(versions(Path(__file__).parents[2]).values())) == 1


def test_a_tag_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The workflow stops before it builds."""
    with pytest.raises(SystemExit, match=r"the tag is v99\.0, but pyproject\.toml has version"):
        main("v99.0")

    assert capsys.readouterr().out == ""
