"""`benchmarks/save_drill.py`: a run goes on after a fault at some file operations of its saves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DRILL = Path(__file__).parents[4] / "benchmarks" / "save_drill.py"
UNPRIVILEGED = shutil.which("unshare") is not None and (
    subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode == 0
)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="forks, and reads /proc")
@pytest.mark.parametrize(
    ("mode", "step"), [("kill", 37), ("full", 31), ("size", 1), ("outputs", 29), ("inodes", 5)]
)
def test_a_fault_at_a_file_operation_loses_nothing(mode: str, step: int, tmp_path: Path) -> None:
    """Every checkpoint is complete, and the continued run ends with the same bits.

    The drill itself tries every operation; here, every 29th to 37th one.
    """
    if mode == "inodes" and not UNPRIVILEGED:
        pytest.skip("user namespaces are not permitted")

    done = subprocess.run(
        [sys.executable, str(DRILL), "--mode", mode, "--step", str(step), "--folder", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 problems" in done.stdout
