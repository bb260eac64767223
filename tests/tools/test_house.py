"""The script that measures the code base counts a small one correctly."""

from __future__ import annotations

from pathlib import Path

import pytest
from house import ROOT, fillers, measured, room_of

FILES = {
    "specs/reader.py": "from .form import Spec\n\n\ndef read(text):\n    found = one = text\n\n",
    "specs/form.py": "class Spec:\n    pass\n",
    "runtime/train/run.py": "from ...specs.form import Spec\nfrom ..data.table import rows\n",
    "runtime/train/checks/files.py": "from ..run import Spec\nfrom ....specs import form\n",
    "runtime/data/table.py": "rows = [each for each in ()]\n",
    "extensions/study/plan.py": "from ...runtime.train import run\nimport json\n",
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Write a code base of six files."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_lines_are_those_of_floors_and_extensions(small: Path) -> None:
    """The core is all floors without the extensions."""
    house = measured(small)

    assert house.lines == {"specs": 8, "runtime": 5, "extensions/study": 2}
    assert (house.core, house.files, house.folders) == (13, 6, 5)


def test_arrows_join_rooms(small: Path) -> None:
    """Train to specs, train to data, and study to train; a room does not join itself."""
    house = measured(small)

    assert (house.rooms, house.arrows) == (4, 3)


def test_fillers_are_counted_where_they_are_bound(small: Path) -> None:
    """read, text, found, one, Spec, rows, each: three of seven say nothing."""
    house = measured(small)

    assert house.fillers == {"found": 1, "one": 1, "each": 1}
    assert (house.names, house.filler_share) == (7, pytest.approx(3 / 7))


@pytest.mark.parametrize(
    ("parts", "room"),
    [
        (("runtime", "train", "checks", "files.py"), "runtime/train"),
        (("specs", "reader.py"), "specs"),
        (("tests", "conftest.py"), ""),
        ((), ""),
    ],
)
def test_a_room_is_a_folder_of_a_floor(parts: tuple[str, ...], room: str) -> None:
    """Files beside the rooms belong to the floor."""
    assert room_of(parts) == room


@pytest.mark.integration
def test_the_code_base_is_measured() -> None:
    """As many files as there are."""
    floors = ("specs", "graphs", "blocks", "runtime", "extensions")
    assert measured().files == sum(len([*(ROOT / floor).rglob("*.py")]) for floor in floors)


def test_fillers_are_listed_with_their_lines(small: Path) -> None:
    """Each is found where it is bound, not where it is read."""
    assert [*fillers(small)] == [
        "specs/reader.py:5: found",
        "specs/reader.py:5: one",
        "runtime/data/table.py:1: each",
    ]


def test_fields_functions_and_attributes_may_not_be_fillers_either(tmp_path: Path) -> None:
    """A reader meets them in more places than a variable."""
    text = "class Spec:\n    whole: int\n\n    def found(self):\n        self.kept = self.whole\n"
    path = tmp_path / "specs/form.py"
    path.parent.mkdir()
    path.write_text(text)

    assert {*fillers(tmp_path)} == {
        "specs/form.py:2: whole",
        "specs/form.py:4: found",
        "specs/form.py:5: kept",
    }
