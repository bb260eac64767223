"""ONNX exports of published examples, whose blocks are formulas, products and slices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from weft.extensions.interop.export.onnx import export_onnx
from weft.specs.findings import InputError

pytest.importorskip("onnxscript", reason="the extra 'onnx' is missing")
pytest.importorskip("onnxruntime", reason="the extra 'onnx' is missing")
pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[5] / "examples/published"
ONE = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 24}
SMALL: dict[str, dict[str, Any]] = {
    "canon-layers": ONE,
    "differential": ONE,
    "forgetting": ONE,
    "griffin": {**ONE, "layers": 3, "d_k": 8, "window": 4},
    "hyena": {"layers": 1, "d_model": 8, "d_filter": 6, "bands": 3, "longest": 24},
    "hyper-connections": {**ONE, "streams": 2},
    "macaron": ONE,
    "megabyte": {
        "patch": 3,
        "d_byte": 4,
        "d_model": 12,
        "heads": 2,
        "layers": 1,
        "d_local": 8,
        "local_heads": 2,
        "local_layers": 1,
    },
    "mixture-of-recursions": {**ONE, "layers": 3},
    "ngpt": {"d_model": 8, "heads": 2, "layers": 2},
    "resformer": {**ONE, "layers": 2},
    "softmax-off-by-one": ONE,
    "ssru": ONE,
    "streaming": {**ONE, "sinks": 2, "window": 3},
    "transparent-attention": {**ONE, "layers": 2},
    "ttt-linear": {**ONE, "batch": 3},
    "xlstm": {"d_model": 8, "heads": 2, "layers": 2},
}


@pytest.mark.parametrize("name", SMALL)
def test_the_engine_agrees_with_the_model(checkpoint_of: Any, tmp_path: Path, name: str) -> None:
    """Logits (1e-4) and greedy outputs agree for several rows, lengths, orders and past lengths."""
    checkpoint = checkpoint_of(str(FOLDER / f"{name}.json"), **SMALL[name])

    checked = export_onnx(checkpoint, tmp_path / "out")

    assert checked.largest < 1e-4
    assert checked.same == checked.outputs


@pytest.mark.parametrize(
    ("name", "node", "count"),
    [
        ("layer-wise-coordination", "mixed_mask", "S positions"),
        ("sink-token", "sink", "1 position"),
    ],
)
def test_positions_before_the_first_step_are_refused_by_node(
    checkpoint_of: Any, tmp_path: Path, name: str, node: str, count: str
) -> None:
    """A step graph computes one position, and the first step of these computes more."""
    checkpoint = checkpoint_of(str(FOLDER / f"{name}.json"), **ONE)

    with pytest.raises(InputError, match=f"node '{node}' puts {count} before") as caught:
        export_onnx(checkpoint, tmp_path / "out")

    assert "weft eject" in str(caught.value)
    assert not (tmp_path / "out").exists()
