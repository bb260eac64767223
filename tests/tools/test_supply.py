"""What a release is built from: pinned, by digest, and listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lock import EXTRAS, LOCKED, TORCH
from lowest import bound, pins, requirements

ROOT = Path(__file__).parents[2]
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
