"""`--quantize auto`: int8 where it is faster, by a measurement that other commands read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.blocks.kernels import quantized
from weft.runtime.compile import int8_gain
from weft.runtime.compile.decode_compile import Steps
from weft.runtime.compile.decoder import Passes, passes_of, use_passes, use_steps

needs_int8 = pytest.mark.skipif(not quantized.can_quantize(), reason="no exact products in int8")


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache measurements in a temporary folder."""
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))


def chosen(model: Any, dtype: torch.dtype = torch.float32) -> tuple[str, str]:
    """Return what `auto` chooses for a model, and the last log line."""
    lines: list[str] = []
    use_steps(model, Steps(log=lines.append))
    use_passes(model, Passes("auto"), dtype)
    return passes_of(model).quantize, lines[-1]


@needs_int8
@pytest.mark.parametrize(
    ("gains", "quantize"), [((1.1, 3.0), "int8"), ((0.7, 3.0), "none"), ((2.0, 1.09), "none")]
)
def test_both_products_must_be_faster(
    gains: tuple[float, float], quantize: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In 7 bits a product of many rows may be faster, and one of one row slower."""
    measured = dict(zip(("1", "64"), gains, strict=True))
    monkeypatch.setattr(int8_gain, "_measured", lambda _: measured)
    monkeypatch.setattr(quantized, "is_large", lambda *_: True)
    model = weft.build(weft.load("transformer-tiny", vocab=11)).eval()

    choice, line = chosen(model)

    assert choice == quantize
    assert line.startswith(f"quantize: {quantize}, products of 1 and 64 rows are {gains[0]:.2f} ")
    assert line.endswith("(measured now)")


@needs_int8
def test_a_measurement_is_made_once_and_a_damaged_one_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands on one machine choose alike, although it is busy at times."""
    measured: list[int] = []

    def measure(_: torch.dtype) -> dict[str, float]:
        measured.append(1)
        return {"1": 2.0, "64": 2.0}

    monkeypatch.setattr(int8_gain, "_measured", measure)
    monkeypatch.setattr(quantized, "is_large", lambda *_: True)

    lines = [int8_gain.int8_pays(torch.float32) for _ in range(2)]
    [file] = (tmp_path / "int8").iterdir()
    for damaged in ({"1": "x", "64": 2.0}, [1], {"1": 2.0}):
        file.write_text(json.dumps(damaged))
        assert int8_gain.int8_pays(torch.float32)[0]

    assert len(measured) == 4
    assert [pays for pays, _ in lines] == [True, True]
    assert lines[1][1].endswith("(measured before)")


@needs_int8
@pytest.mark.integration
def test_the_products_of_both_kinds_are_timed() -> None:
    """For each number of rows there is a speedup."""
    gains = int8_gain._measured(torch.float32)

    assert set(gains) == {"1", "64"}
    assert all(gain > 0 for gain in gains.values())


def test_models_without_products_in_int8_keep_their_precision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One on another device, one that does not decode, and a torch without exact products."""
    model = weft.build(weft.load("transformer-tiny", vocab=11)).eval()
    encoder = weft.build(weft.load("bert", layers=1, vocab=11, d_model=12))

    assert chosen(model.to("meta")) == ("none", "quantize: none, the model is not on the CPU")
    assert "does not decode step by step" in chosen(encoder)[1]
    monkeypatch.setattr(quantized, "library", lambda: None)
    assert int8_gain.int8_pays(torch.float32)[0] is False
