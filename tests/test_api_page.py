"""docs/api.md: its example runs, and it names everything that is public."""

from __future__ import annotations

import re
from pathlib import Path

import weft

PAGE = (Path(__file__).parents[1] / "docs/api.md").read_text(encoding="utf-8")


def test_the_example_runs() -> None:
    """Unchanged."""
    [example] = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)

    exec(compile(example, "docs/api.md", "exec"), {})


def test_the_page_names_everything_public() -> None:
    """A new name needs a line there."""
    missing = [name for name in vars(weft)["__all__"] if not re.search(rf"[`.]{name}[`(]", PAGE)]

    assert missing == []
