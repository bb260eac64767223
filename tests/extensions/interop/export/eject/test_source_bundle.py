"""Definitions gathered from several files into one file with the same behavior."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.export.source_bundle import Gatherer, SourceSymbol
from weft.specs.findings import InputError

FILES = {
    "__init__": "",
    "low": '''"""Low: numbers."""
import math

# What is added.
NEAR, FAR = 1, 10
"""Two numbers."""
UNUSED = object()


def scale(x):
    return math.floor(x * FAR)
''',
    "high": '''"""High: the other one."""
from .low import scale as low_scale


def scale(x):
    return low_scale(x) + 1


class Model:
    def forward(self, x):
        return scale(x)

    def attention_weights(self):
        return UNKNOWN
''',
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write a package of two files into a folder on Python's path."""
    folder = tmp_path / "two_files"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "two_files"


def test_one_file_computes_the_same_as_the_package(package: str) -> None:
    """Names used in both files become unique, and unneeded definitions are omitted."""
    gatherer = Gatherer([package])
    gatherer.want(SourceSymbol(f"{package}.high", "Model"))
    text = gatherer.render({})
    names: dict[str, Any] = {}

    exec(compile(text, "one.py", "exec"), names)

    assert names["Model"]().forward(2.57) == 26
    assert "UNUSED" not in text
    assert "UNKNOWN" not in text
    assert "# What is added.\nNEAR, FAR = 1, 10" in text
    assert text.index("# --- Low: numbers.") < text.index("# --- High: the other one.")
    assert text.startswith("import math\n")


def test_gathering_does_not_import_the_files(package: str) -> None:
    """Files are parsed, not imported; only their parent package is imported."""
    gatherer = Gatherer([package])
    gatherer.want(SourceSymbol(f"{package}.high", "Model"))
    gatherer.render({})

    assert not {f"{package}.low", f"{package}.high"} & set(sys.modules)


def test_a_missing_name_is_reported(package: str) -> None:
    """The message names the file that should define it."""
    with pytest.raises(
        InputError, match=r"'Modle' is not defined at the top level of two_files\.high"
    ):
        Gatherer([package]).want(SourceSymbol(f"{package}.high", "Modle"))
