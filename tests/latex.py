"""Pages that the tests compile."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def compiled(folder: Path, body: str, *packages: str, options: str = "") -> str:
    """Compile a page in a folder, to `page.pdf`, and return what pdfLaTeX prints.

    A test is skipped without pdfLaTeX or one of the packages, and fails if the page has an error.
    """
    if shutil.which("pdflatex") is None:
        pytest.skip("needs pdflatex")
    for package in packages:
        if subprocess.run(
            ["kpsewhich", f"{package}.sty"], capture_output=True, check=False
        ).returncode:
            pytest.skip(f"needs {package}.sty")
    used = "".join(f"\\usepackage{{{package}}}\n" for package in packages)
    head = f"\\documentclass[{options}]{{article}}\n{used}"
    text = f"{head}\\begin{{document}}\n{body}\n\\end{{document}}\n"
    (folder / "page.tex").write_text(text)
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "page"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout
