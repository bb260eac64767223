"""Too little memory of the device: commands name the options that need less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime.cli.main import main
from weft.runtime.decode.predictors import text

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("translate CKPT LINES", "smaller --buffer"),
        ("evaluate CKPT --source LINES --target LINES", "bfloat16, or a smaller --beam"),
        ("serve CKPT --port 0", "smaller --batch"),
        ("attend CKPT sun -o heads.html", "shorter inputs, or --device cpu"),
    ],
)
def test_too_little_memory_names_an_option_of_the_batch(
    command: str,
    named: str,
    toy_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message of torch names none, and comes with a traceback."""

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(text, "decode_ids", full)
    lines = tmp_path / "lines"
    lines.write_text("sun moon\ntree\n")
    words = command.replace("CKPT", str(toy_checkpoint)).replace("LINES", str(lines)).split()

    assert main([*words, "-q"]) == 1

    said = " ".join(capsys.readouterr().err.split())
    assert "error: the memory of the device is too small" in said
    assert named in said
    assert "Traceback" not in said
