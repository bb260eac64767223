"""ONNX exports of published examples, whose blocks are formulas, products and slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.export.onnx import export_onnx

pytest.importorskip("onnxscript", reason="the extra 'onnx' is missing")
pytest.importorskip("onnxruntime", reason="the extra 'onnx' is missing")
pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[5] / "examples/published"
ONE = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 24}
SMALL: dict[str, dict[str, Any]] = {
    "canon-layers": ONE,
    "forgetting": ONE,
    "macaron": ONE,
    "mixture-of-recursions": {**ONE, "layers": 3},
    "softmax-off-by-one": ONE,
    "ssru": ONE,
    "transparent-attention": {**ONE, "layers": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_the_engine_agrees_with_the_model(checkpoint_of: Any, tmp_path: Path, name: str) -> None:
    """Logits (1e-4) and greedy outputs agree for several rows, lengths and past lengths."""
    checkpoint = checkpoint_of(str(FOLDER / f"{name}.json"), **SMALL[name])

    checked = export_onnx(checkpoint, tmp_path / "out")

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs
