"""Tools that measure and guard the code base and its supply."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import weft
from house import ROOT, fillers, measured, room_of, twins
from journeys import JOURNEYS, UPDATE
from journeys import walked as walk
from lock import EXTRAS, LOCKED, TORCH
from lowest import CONTRIBUTORS, bound, lowest, pins, requirements
from release_notes import main, notes, versions

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


def test_two_public_classes_of_one_name_are_refused(small: Path) -> None:
    """A private class, and a class of another name, may stand beside them."""
    classes = "class _Spec:\n    pass\n\n\nclass Spec(_Spec):\n    pass\n"
    (small / "runtime/spec.py").write_text(classes)
    (small / "runtime/spec_form.py").write_text("class _Spec:\n    pass\n")

    assert list(twins(small)) == ["runtime/spec.py:5: Spec, as in specs/form.py"]


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


def as_numbers(version: str) -> tuple[int, ...]:
    """Return a version as numbers that compare."""
    return tuple(map(int, version.split(".")))


def test_a_package_has_one_lower_bound() -> None:
    """Two extras with different bounds would leave it open which of them is tested.

    An extra may need a newer PyTorch than Weft itself.
    """
    bounds: dict[str, set[str]] = {}
    for extra, listed in requirements().items():
        if extra not in set(CONTRIBUTORS) - {"dev"}:
            for name, version in map(bound, listed):
                bounds.setdefault(name, set()).add(version)

    assert {name for name, found in bounds.items() if len(found) > 1} <= {"torch"}


def test_pinned_versions_satisfy_the_lower_bounds() -> None:
    """`constraints.txt` and `pyproject.toml` are edited separately."""
    listed = {bound(each) for group in requirements().values() for each in group}
    pinned = pins()

    assert {
        name: (version, pinned[name])
        for name, version in listed
        if name in pinned and as_numbers(version) > as_numbers(pinned[name])
    } == {}


def test_every_dependency_of_an_installation_is_pinned() -> None:
    """Otherwise a new release of it could break a clone."""
    assert [name for name, _ in map(bound, requirements()[""]) if name not in pins()] == []


def test_the_lowest_set_has_lower_bounds_of_users_and_pinned_tools() -> None:
    """An old pytest would test pytest, not Weft."""
    found = lowest()

    assert found["networkx"] == "3.2"
    assert found["torch"] == "2.11"
    assert found["fastapi"] == "0.121"
    assert found["pytest"] == pins()["pytest"]
    assert "weft" not in found


def test_a_requirement_of_another_form_is_refused() -> None:
    """A bound that the script cannot read must not be left out silently."""
    with pytest.raises(ValueError, match=r"'torch!=2\.12' as NAME>=VERSION"):
        bound("torch!=2.12")


PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = {"torch": "pytorch", "graphviz": "python-graphviz", "matplotlib": "matplotlib-base"}
"""Names of packages that conda-forge calls otherwise; its graphviz is the program."""


@pytest.fixture(scope="module")
def recipe() -> dict[str, Any]:
    """Return the recipe for conda."""
    yaml = pytest.importorskip("yaml")
    value: dict[str, Any] = yaml.safe_load((ROOT / "tools/packages/recipe.yaml").read_text())
    return value


def test_the_recipe_needs_what_the_wheel_needs(recipe: dict[str, Any]) -> None:
    """With the same lower bounds."""
    parts = [re.fullmatch(r"([\w-]+)(.*)", line) for line in PROJECT["dependencies"]]
    expected = {f"{CONDA.get(part[1], part[1])} {part[2]}" for part in parts if part}

    assert {*recipe["requirements"]["run"]} == {f"python {PROJECT['requires-python']}", *expected}


def test_the_recipe_has_the_version_and_the_command(recipe: dict[str, Any]) -> None:
    """Those of the project."""
    [command] = PROJECT["scripts"].items()

    assert recipe["context"]["version"] == PROJECT["version"]
    assert recipe["build"]["python"]["entry_points"] == [" = ".join(command)]


def test_the_image_installs_extras_that_exist() -> None:
    """And copies files that exist."""
    text = (ROOT / "tools/packages/Dockerfile").read_text()
    [extras] = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    copied = re.findall(r"^COPY (?!--from)(\S+)", text, re.MULTILINE)

    assert {*extras.split(",")} <= {*PROJECT["optional-dependencies"]}
    assert all((ROOT / name).exists() for name in copied)


def test_the_container_for_development_runs_a_target_of_make() -> None:
    """Its last command."""
    container = json.loads((ROOT / ".devcontainer/devcontainer.json").read_text())
    target = container["postCreateCommand"].split()[-1]

    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_digest(workflow: Path) -> None:
    """Whoever controls a repository can move its tags."""
    used = re.findall(r"uses: *(\S+)(?: *# *(\S+))?", workflow.read_text())

    assert used
    for action, comment in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), action
        assert re.match(r"v\d", comment), f"{action} needs its version as a comment"


def test_releases_have_one_index() -> None:
    """With two, pip installs the package of the higher version, whoever has published it."""
    text = (ROOT / ".github/workflows/release.yml").read_text()

    assert not re.search(r"extra.index", text, re.IGNORECASE)


def test_an_audit_without_data_fails() -> None:
    """Unless it is strict, pip-audit passes over what it has no data of, and succeeds."""
    audits = re.findall(r"run: pip-audit (.*)", (ROOT / ".github/workflows/ci.yml").read_text())

    assert len(audits) == 4
    assert all("--strict" in audit.split() for audit in audits)


def test_what_builds_a_release_has_digests() -> None:
    """So has the backend that pyproject.toml requires, because nothing else is downloaded."""
    lines = (ROOT / "tools/release.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert all(re.fullmatch(r"[\w-]+==[\d.]+( --hash=sha256:[0-9a-f]{64})+", pin) for pin in pins)
    assert {"build", "setuptools"} <= {pin.partition("==")[0] for pin in pins}


@pytest.mark.parametrize("path", [LOCKED, TORCH], ids=lambda path: path.name)
def test_what_is_locked_has_digests(path: Path) -> None:
    """One without any turns the check off for all, or stops pip."""
    comment, *lines = path.read_text().splitlines()

    assert comment.startswith("#")
    for line in lines:
        assert re.fullmatch(r"[\w.-]+==\S+( ; [^#]+?)?( --hash=sha256:[0-9a-f]{64})+", line), line


def locked() -> dict[str, str]:
    """Return the locked versions by name."""
    lines = [*LOCKED.read_text().splitlines()[1:], *TORCH.read_text().splitlines()[1:]]
    pairs = (line.split(" ", 1)[0].split("==") for line in lines)
    return dict(pairs)


def test_locked_versions_are_those_of_the_constraints() -> None:
    """After a change of `constraints.txt`, `tools/lock.py` must run."""
    versions = locked()

    assert versions.items() >= {
        (name, version) for name, version in pins().items() if name in versions
    }


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_everything_that_an_extra_names_is_locked(extra: str) -> None:
    """CI would not have it; after a change of `pyproject.toml`, `tools/lock.py` must run."""
    assert {bound(each)[0] for each in requirements()[extra]} <= {*locked(), "weft"}


def test_releases_and_ci_install_what_is_locked() -> None:
    """Only the tests of the lowest and of the newest versions, and of users' way, do not."""
    release, ci = (
        (ROOT / f".github/workflows/{name}.yml").read_text() for name in ("release", "ci")
    )

    assert "      LOCKED: cuda" in release.partition("  attest:")[0]
    command = r"- run: (\./\.ci/run|make [\w-]+)[^\n]*(\n {8}env:\n {10}LOCKED: cpu)?"
    by_command = {name: bool(lock) for name, lock in re.findall(command, ci)}
    assert by_command.pop("make test-lowest") is False
    assert set(by_command) == {"./.ci/run", "make fast", "make test-docs", "make test-studio"}
    assert all(by_command.values())


def test_the_list_of_a_release_has_every_dependency() -> None:
    """Also those of the extras, which are optional."""
    command = [sys.executable, str(ROOT / "tools/sbom.py")]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    scopes = {entry["name"]: entry["scope"] for entry in listed["components"]}
    assert scopes["torch"] == scopes["filelock"] == "required"
    assert scopes["fastapi"] == scopes["pillow"] == "optional"
    assert "pytest" not in scopes
    assert len({entry["bom-ref"] for entry in listed["components"]}) == len(scopes)


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
