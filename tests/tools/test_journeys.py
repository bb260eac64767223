"""The journeys that docs/architecture.md describes run, and enter the files that it names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import weft
from journeys import JOURNEYS, UPDATE
from journeys import walked as walk

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (.*)\n((?:(?!## ).*\n?)*)", PAGE, re.MULTILINE))
Files = dict[str, dict[str, list[str]]]


def heading(title: str) -> str:
    """Return the heading of a journey, without Markdown."""
    return title.replace("`", "").replace("'", "").lower()


@pytest.fixture(scope="module")
def walked() -> Files:
    """Run all journeys; return the files that each enters and loads."""
    command = [sys.executable, str(ROOT / "tools/journeys.py"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files: Files = json.loads(done.stdout)
    return files


def test_the_page_has_a_section_for_each_journey() -> None:
    """In the order in which they are printed."""
    assert [heading(title) for title in JOURNEYS.values()] == [*map(heading, SECTIONS)]


@pytest.mark.slow
def test_each_journey_loads_the_files_that_its_section_names(walked: Files) -> None:
    """A reader who follows the page is led to files that do the work."""
    for name, text in zip(JOURNEYS, SECTIONS.values(), strict=True):
        named = {f for f in re.findall(r"`([a-z_/0-9]+\.py)`", text) if "/" in f}

        assert named, name
        assert named - {*walked[name]["loaded"]} == set(), name


@pytest.mark.slow
def test_each_journey_enters_only_files_that_it_loads(walked: Files) -> None:
    """The counts are of files of the project: each is there, and is entered once."""
    for name, files in walked.items():
        assert files["entered"], name
        assert len(files["entered"]) == len({*files["entered"]})
        assert {*files["entered"]} <= {*files["loaded"]}
        assert all((ROOT / file).is_file() for file in files["loaded"])


def test_files_within_a_function_are_those_that_it_enters(tmp_path: Path) -> None:
    """Reading a text enters the reader; loading a spec enters more before and after."""
    within = ("specs/reader.py", "read_json")

    entered, inside, _ = walk(lambda _: weft.load("transformer-tiny"), tmp_path, within)

    assert "specs/reader.py" in inside
    assert {*inside} < {*entered}
    assert "specs/load.py" in {*entered} - {*inside}


@pytest.mark.slow
def test_an_update_enters_its_optimizer_and_not_what_surrounds_it(walked: Files) -> None:
    """From the batch to the step: nothing is planned, validated or written."""
    update, training = ({*walked[name]["entered"]} for name in ("update", "training"))

    assert {UPDATE[0], "runtime/train/recipe/optimize.py", "runtime/train/losses.py"} <= update
    assert update < training
    around = {
        "runtime/train/plan.py",
        "runtime/train/validation.py",
        "runtime/checkpoint/saving.py",
    }
    assert around <= training - update
