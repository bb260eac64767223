"""The published ideas of `examples/published` are correct specs, objectives and runs."""

from __future__ import annotations

from pathlib import Path

import pytest
import weft
from weft.runtime.train.check_run import check_run
from weft.runtime.train.run import load_run

FOLDER = Path(__file__).parents[1] / "examples/published"
RUNS = sorted(FOLDER.glob("*-run.json"))
SPECS = sorted({*FOLDER.glob("*.json")} - {*RUNS})


@pytest.mark.parametrize("file", SPECS, ids=lambda file: file.stem)
def test_a_spec_has_no_mistake_and_no_warning(file: Path) -> None:
    """They are written as a user would write them."""
    assert list(weft.check(file)) == []


@pytest.mark.parametrize("file", RUNS, ids=lambda file: file.stem)
def test_a_run_lacks_only_its_data(file: Path) -> None:
    """The files of a run are the user's."""
    run, source = load_run(file)

    findings = check_run(run, source)

    assert {finding.code for finding in findings} == {"R02"}
    assert all(finding.at.startswith("/data") for finding in findings)


def test_all_files_are_tested() -> None:
    """The folder is found."""
    assert RUNS
    assert SPECS
