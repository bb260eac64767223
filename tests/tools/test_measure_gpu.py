"""`make measure-gpu`: a failed part does not hide the others, and ratios are those of the rows."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "measure_gpu.py"
GPU: dict[str, Any] = runpy.run_path(str(FILE))


def ran(code: str, folder: Path, *, name: str = "training", seconds: float = 60) -> Any:
    """Return the outcome of a part that runs a line of Python."""
    return GPU["run"](GPU["Part"](name, [sys.executable, "-c", code], seconds), folder)


@pytest.mark.integration
def test_a_part_gives_its_last_json_and_who_was_left_out(tmp_path: Path) -> None:
    """Other lines around it do not disturb; the complete output is kept."""
    found = ran("print('left out: Marian: no module\\n[1, 2]\\ndone')", tmp_path)

    assert (found.failed, found.found, found.last) == ("", [1, 2], "done")
    assert found.left_out == ["left out: Marian: no module"]
    assert (tmp_path / "training.log").read_text().endswith("done\n")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("code", "seconds", "failed"),
    [
        ("raise SystemExit(3)", 60, "exit code 3"),
        ("print('no CUDA device: nothing was measured')", 60, "it measured nothing"),
        ("import time; time.sleep(60)", 0.2, "not done after 0 seconds"),
    ],
)
def test_a_part_that_measures_nothing_has_failed(
    code: str, seconds: float, failed: str, tmp_path: Path
) -> None:
    """Otherwise the page would have an empty table."""
    assert ran(code, tmp_path, seconds=seconds).failed == failed


def test_the_page_compares_with_weft_of_the_same_precision() -> None:
    """Medians of 2 s against 6 s and 4 s against 6 s: 3 and 1.5 times as fast."""
    seconds = {
        "weft float32": [1, 2, 9],
        "weft bfloat16": [4],
        "Hugging Face float32": [6, 6],
        "Hugging Face bfloat16": [6],
    }
    rows = [{"name": name, "beam": 4, "seconds": each} for name, each in seconds.items()]
    parts = [
        GPU["Outcome"]("tests", failed="exit code 1", last="1 failed"),
        GPU["Outcome"]("decoding", found=rows, seconds=7.0),
    ]

    page = GPU["page"]({"device": "a GPU", "driver": "1.2"}, parts)

    assert page.startswith("# Measured on a GPU\n")
    assert "| driver | 1.2 |" in page
    assert "Failed: exit code 1.\n\n```text\n1 failed\n```" in page
    assert "| Hugging Face float32 | 4 | 6.000 | 6.000 to 6.000 | 3.00 |" in page
    assert "| Hugging Face bfloat16 | 4 | 6.000 | 6.000 to 6.000 | 1.50 |" in page


def test_the_page_separates_the_first_use_of_a_shape_from_later_ones() -> None:
    """A kernel that plans for every shape is fast in a benchmark of one shape only."""
    row = {"kernel": "cuDNN", "case": "causal"}
    row |= {"first": [0.5, 1.0, 0.75], "later": [0.002, 0.004, 0.003], "fixed": [0.001, 0.003]}
    found = {"precision": "bfloat16", "tokens": 25000, "rows": [row]}

    page = GPU["page"]({"device": "a GPU"}, [GPU["Outcome"]("attention", found=found)])

    assert "25000 positions in bfloat16" in page
    assert "| cuDNN | causal | 750.00 | 1000.00 | 3.00 | 2.00 |" in page


@pytest.mark.slow
def test_every_part_runs_on_a_cpu(tmp_path: Path) -> None:
    """With tiny sizes: the first user with a GPU must not be the first to run them."""
    done = subprocess.run(
        [sys.executable, str(FILE), "--device", "cpu", "--quick", "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    page = (tmp_path / "README.md").read_text()
    assert "| torch.nn.Transformer |" in page
    assert "| weft float32 | 1 |" in page
    assert "| 1 | eager |" in page
    assert "| weft fused | padded |" in page
    assert "| flash | causal |" in page
    assert "left out: cuDNN, padded: RuntimeError" in page
    parts = json.loads((tmp_path / "results.json").read_text())["parts"]
    assert [part["name"] for part in parts] == ["training", "attention", "decoding", "first update"]
