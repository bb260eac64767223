"""Make the links of README.md absolute in the description that PyPI shows.

PyPI has none of the repository's files, so relative links and pictures would be broken there.  In
the description they lead to the files of the release's tag.  The root is the package `weft`, whose
folders are found here.  All other settings are in pyproject.toml.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

PACKAGES = [
    pattern
    for folder in ("specs", "graphs", "blocks", "runtime", "extensions", "examples")
    for pattern in (folder, f"{folder}.*")
]
ROOT = Path(__file__).parent
PICTURE = re.compile(r'(!\[[^\]]*\]\(|<img src=")(?!https?:)([^")\s]+)')
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)\s]+)")


def description(text: str, repository: str, tag: str) -> str:
    """Return Markdown with absolute links.

    Args:
        text: the Markdown; its links are relative to the root of the repository.
        repository: the address of the repository on GitHub.
        tag: the tag of the release.
    """
    raw = repository.replace("https://github.com", "https://raw.githubusercontent.com")
    text = PICTURE.sub(rf"\g<1>{raw}/{tag}/\g<2>", text)
    return LINK.sub(rf"\g<1>{repository}/blob/{tag}/\g<2>", text)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        packages=["weft", *(f"weft.{name}" for name in find_packages(include=PACKAGES))],
        script_name="setup.py",  # so that it is not installed with the root package
        long_description=description(
            (ROOT / "README.md").read_text(encoding="utf-8"),
            project["urls"]["Repository"],
            f"v{project['version']}",
        ),
        long_description_content_type="text/markdown",
    )
