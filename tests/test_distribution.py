"""What is published: the description on PyPI, the links of the README, and the metadata."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    ".github/CODE_OF_CONDUCT.md",
)


def targets(text: str) -> list[str]:
    """Return the targets of all links and pictures in Markdown."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return re.findall(r'(?:\]\(|<img src=")([^)"\s]+)', text)


def test_relative_links_lead_to_files() -> None:
    """A reader of the checkout follows them; the description on PyPI is made from them."""
    missing = [
        f"{name}: {target}"
        for name in PAGES
        if (ROOT / name).exists()
        for target in targets((ROOT / name).read_text(encoding="utf-8"))
        if not re.match(r"https?:|mailto:|#", target)
        and not (ROOT / name).parent.joinpath(target.partition("#")[0]).exists()
    ]

    assert missing == []


def test_the_description_on_pypi_has_absolute_links_to_the_release() -> None:
    """PyPI has no files of the repository; a later commit may rename what a release links to."""
    description = runpy.run_path(str(ROOT / "setup.py"))["description"]

    made = targets(description(README, REPOSITORY, "v1.2.3"))

    assert len(made) == len(targets(README))
    assert [target for target in made if not target.startswith(("https://", "#"))] == []
    assert f"{REPOSITORY}/blob/v1.2.3/docs/format.md" in made
    assert any(t.startswith("https://raw.githubusercontent.com/") for t in made)


def test_pictures_of_the_readme_are_small_and_shown_everywhere() -> None:
    """PyPI's proxy of pictures does not show every SVG."""
    pictures = [t for t in targets(README) if re.search(r"\.(png|svg|gif|jpe?g)$", t)]

    assert pictures
    assert [name for name in pictures if not name.endswith(".png")] == []
    assert [name for name in pictures if (ROOT / name).stat().st_size > 150_000] == []


def test_hooks_of_contributors_have_the_pinned_ruff() -> None:
    """Two versions of ruff may disagree about the format of a file."""
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")

    [hooked] = re.findall(r"ruff-pre-commit\n\s+rev: v(\S+)", hooks)
    assert f"ruff=={hooked}\n" in (ROOT / "constraints.txt").read_text(encoding="utf-8")
