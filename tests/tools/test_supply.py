"""What a release is built from: pinned, by digest, and listed."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_what_builds_a_release_has_digests() -> None:
    """So has the backend that pyproject.toml requires, because nothing else is downloaded."""
    lines = (ROOT / "tools/release.txt").read_text().splitlines()
    pins = [line for line in lines if not line.startswith("#")]

    assert all(re.fullmatch(r"[\w-]+==[\d.]+( --hash=sha256:[0-9a-f]{64})+", pin) for pin in pins)
    assert {"build", "setuptools"} <= {pin.partition("==")[0] for pin in pins}


def test_the_list_of_a_release_has_every_dependency() -> None:
    """Also those of the extras, which are optional."""
    command = [sys.executable, str(ROOT / "tools/sbom.py")]
    listed = json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    scopes = {entry["name"]: entry["scope"] for entry in listed["components"]}
    assert scopes["torch"] == scopes["filelock"] == "required"
    assert scopes["fastapi"] == scopes["pillow"] == "optional"
    assert "pytest" not in scopes
    assert len({entry["bom-ref"] for entry in listed["components"]}) == len(scopes)
