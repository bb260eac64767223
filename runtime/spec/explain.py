"""The paragraph about a finding's code in `docs/errors.md`, which is part of the package."""

from __future__ import annotations

import re
from pathlib import Path

from ...specs.findings import InputError, did_you_mean

PAGE = Path(__file__).parents[2] / "docs" / "errors.md"


def explanation(code: str) -> str:
    """Return what a code means, with an example and the way out.

    Raises:
        InputError: no finding has that code.
    """
    text = PAGE.read_text(encoding="utf-8")
    paragraphs = dict(re.findall(r"^### (\w+)\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL))
    paragraph = paragraphs.get(code.upper())
    if paragraph is None:
        raise InputError(
            f"no finding has the code '{code}'",
            location="--explain",
            help=did_you_mean(code.upper(), paragraphs),
        )
    return f"{code.upper()}\n{paragraph.rstrip()}"
