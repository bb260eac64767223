"""Print the changes of a release from CHANGELOG.md, for a tag that matches the version.

    python tools/release_notes.py v0.2.0

The release workflow calls it before anything is built: it refuses a tag, a version in
pyproject.toml or CITATION.cff, and a changelog that disagree.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions(root: Path) -> dict[str, str]:
    """Return the version that each file states."""
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    [cited] = re.findall(r"^version: (\S+)$", citation, re.MULTILINE)
    return {"pyproject.toml": project["version"], "CITATION.cff": cited}


def notes(changelog: str, version: str) -> str:
    """Return the section of one version, without its heading.

    Raises:
        ValueError: there is no such section with a date, or it is empty.
    """
    heading = rf"^## \[?{re.escape(version)}\]? - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)"
    lines = re.search(heading, changelog, re.MULTILINE | re.DOTALL)
    if lines is None or not lines[1].strip():
        raise ValueError(f"CHANGELOG.md needs a section '## [{version}] - YYYY-MM-DD' with changes")
    return lines[1].strip()


def main(tag: str) -> None:
    """Print the notes.

    Raises:
        SystemExit: the tag, the versions and the changelog do not agree.
    """
    version = tag.removeprefix("v")
    wrong = [
        f"{name} has version {version_there}"
        for name, version_there in versions(ROOT).items()
        if version_there != version
    ]
    if wrong or not tag.startswith("v"):
        sys.exit(f"the tag is {tag}, but {'; '.join(wrong) or 'a tag begins with v'}")
    try:
        print(notes((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version))
    except ValueError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main(sys.argv[1])
