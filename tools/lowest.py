"""Print pip constraints that select the lowest version of each dependency that Weft accepts.

    python tools/lowest.py > lowest.txt
    pip install -c lowest.txt -e '.[dev]'

The lower bounds of `dependencies` and of the extras become exact versions.  Tools that only
contributors need, such as pytest, have the versions of `constraints.txt`.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRIBUTORS = ("dev", "fuzz", "benchmarks", "parity")
"""Extras for work on Weft itself."""
UNPINNED = ("import-linter",)
"""Contributors' tools that need newer libraries than Weft, so that pip chooses an older version."""
REQUIREMENT = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?\s*(?:(>=|==)\s*([\d.]+))?(?:;.*)?$")


def requirements() -> dict[str, list[str]]:
    """Return the requirements by extra; those of every installation have the key ''."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": project["dependencies"], **project["optional-dependencies"]}


def bound(requirement: str) -> tuple[str, str]:
    """Return the name and the lower bound of a requirement; the bound of `weft[serve]` is ''.

    Raises:
        ValueError: the requirement has another form.
    """
    match = REQUIREMENT.match(requirement)
    if match is None or not (match[3] or match[1] == "weft"):
        raise ValueError(f"write {requirement!r} as NAME>=VERSION or NAME==VERSION")
    return match[1], match[3] or ""


def pins() -> dict[str, str]:
    """Return the versions of `constraints.txt` by name."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def lowest() -> dict[str, str]:
    """Return the version of each package by name."""
    bounds: dict[str, str] = {}
    for extra, listed in requirements().items():
        if extra not in CONTRIBUTORS:
            bounds = dict(map(bound, listed)) | bounds  # an extra may need more than the base
    tools = {name: pins()[name] for name, _ in map(bound, requirements()["dev"]) if name in pins()}
    bounds = tools | bounds
    return {name: bounds[name] for name in bounds if name not in ("weft", *UNPINNED)}


def main() -> None:
    """Print one constraint a line."""
    for name, version in sorted(lowest().items()):
        print(f"{name}=={version}")


if __name__ == "__main__":
    main()
