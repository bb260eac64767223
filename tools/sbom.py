"""Print a list of what a release depends on (SBOM), in the format CycloneDX 1.5.

    python tools/sbom.py > dist/weft.cdx.json

It has the package, its dependencies with the versions of `constraints.txt` or the lowest that are
accepted, and the extras that need them.  Source: CycloneDX 1.5, ECMA-424.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

from lowest import CONTRIBUTORS, bound, lowest, pins, requirements

ROOT = Path(__file__).resolve().parent.parent
UNUSED = {*CONTRIBUTORS, "docs", "studio-tests", "all"}
"""Extras that no user installs, and the one that lists others."""


def purl(name: str, version: str) -> str:
    """Return the URL of a package.

    >>> purl("Filelock", "3.20.3")
    'pkg:pypi/filelock@3.20.3'
    """
    return f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"


def component(name: str, version: str, extras: list[str], *, pinned: bool) -> dict[str, Any]:
    """Return the entry of a dependency."""
    return {
        "type": "library",
        "bom-ref": purl(name, version),
        "name": name,
        "version": version,
        "purl": purl(name, version),
        "scope": "required" if "" in extras else "optional",
        "properties": [
            {"name": "weft:version", "value": "pinned" if pinned else "lowest accepted"},
            *({"name": "weft:extra", "value": extra} for extra in extras if extra),
        ],
    }


def sbom() -> dict[str, Any]:
    """Return the list as JSON data."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    used: dict[str, list[str]] = {}
    for extra, listed in requirements().items():
        for name, _ in map(bound, listed):
            if extra not in UNUSED and name != "weft":
                used.setdefault(name, []).append(extra)
    pinned, least = pins(), lowest()
    components = [
        component(name, pinned.get(name, least[name]), extras, pinned=name in pinned)
        for name, extras in sorted(used.items())
    ]
    root = purl(project["name"], project["version"])
    required = [entry["bom-ref"] for entry in components if entry["scope"] == "required"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": root,
                "name": project["name"],
                "version": project["version"],
                "purl": root,
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": components,
        "dependencies": [{"ref": root, "dependsOn": required}],
    }


if __name__ == "__main__":
    print(json.dumps(sbom(), indent=2))
