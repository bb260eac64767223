"""A sample of the fuzzed data files: the right rows, or an error that names the file."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from types import ModuleType

FILES = 500


def _module() -> ModuleType:
    """Return `fuzz_readers.py`, which `make fuzz-readers` runs."""
    path = Path(__file__).parent / "fuzz_readers.py"
    spec = importlib.util.spec_from_file_location("weft_fuzz_readers", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fuzz = _module()


@pytest.mark.integration
def test_a_sample_of_files_is_read_rightly_or_refused_by_name(tmp_path: Path) -> None:
    """Each kind of file is read as well as refused, and so are rows to predict."""
    rng, counts = random.Random("a sample"), Counter[str]()
    for _ in range(FILES):
        counts += fuzz.check(fuzz.made(rng), tmp_path)

    for kind in (*fuzz.FORMATS, "arrays"):
        assert counts[f"{kind} read"] > 10
        assert counts[f"{kind} refused"] > 10
    assert counts["mistakes refused"] > 20
    assert counts["rows"] > counts["rows refused"] > 10
