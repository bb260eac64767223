"""The image, the recipe and the container for development agree with pyproject.toml."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
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
