"""Scores of COMET are those that unbabel-comet predicts.

Needs an environment with unbabel-comet, whose Python the variable WEFT_COMET_PYTHON names.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from weft.runtime.metrics.comet import PYTHON, Comet

pytestmark = [
    pytest.mark.parity,
    pytest.mark.slow,
    pytest.mark.skipif(PYTHON not in os.environ, reason=f"{PYTHON} is not set"),
]
ROWS = [
    {"src": "ein hund", "mt": "a dog", "ref": "a dog runs."},
    {"src": "zwei katzen", "mt": "two cats sit", "ref": "two cats"},
    {"src": "ja", "mt": "", "ref": "yes"},
]


def test_scores_equal_those_of_unbabel_comet(tmp_path: Path) -> None:
    """Of a tiny random model in the format of wmt22-comet-da, opened from its files."""
    script = Path(__file__).with_name("tiny_comet.py")
    command = [os.environ[PYTHON], str(script), str(tmp_path), json.dumps(ROWS)]
    written = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    expected = json.loads(written.splitlines()[-1])
    metric = Comet(model=str(tmp_path), batch=2)

    rows = [{"source": row["src"], "target": row["ref"]} for row in ROWS]
    sums = metric.statistics([row["mt"] for row in ROWS], metric.references(rows, "target"))

    assert sums[:, 0].tolist() == pytest.approx(expected, abs=1e-6)
