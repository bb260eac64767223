"""The built page: small, and what its source gives."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "graphs" / "draw" / "page"
LARGEST = 400_000
"""Maximum number of bytes of all files, compressed."""


def test_the_page_is_small() -> None:
    """All files together are below the limit when compressed."""
    assert sum(len(gzip.compress(path.read_bytes())) for path in PAGE.iterdir()) < LARGEST


def test_the_page_is_what_its_source_gives(tmp_path: Path) -> None:
    """Building again gives the same bytes; this needs node and its packages."""
    if shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    studio = tmp_path / "studio"
    shutil.copytree(ROOT / "studio", studio, ignore=shutil.ignore_patterns("node_modules"))
    (tmp_path / "graphs" / "draw" / "page").mkdir(parents=True)
    for words in (["ci", "--no-fund", "--no-audit"], ["run", "types"], ["run", "build"]):
        done = subprocess.run(
            ["npm", *words], cwd=studio, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    for path in (tmp_path / "graphs" / "draw" / "page").iterdir():
        assert path.read_bytes() == (PAGE / path.name).read_bytes(), "run 'make page'"
    assert (studio / "LICENSES.md").read_bytes() == (PAGE / "LICENSES.md").read_bytes()
