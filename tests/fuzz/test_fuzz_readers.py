"""A sample of the fuzzed data files: the right rows, or an error that names the file."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import fuzz_readers as fuzz
import pytest

FILES = 500


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
