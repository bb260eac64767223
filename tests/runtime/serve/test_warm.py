"""The warm-up of a server, with full batches where steps may be compiled."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.runtime import api
from weft.runtime.compile import decode_compile as module
from weft.runtime.compile.decode_compile import Measured, Steps, use_steps
from weft.runtime.serve.limits import Limits
from weft.runtime.serve.service import Service


def test_compiled_steps_are_measured_on_a_full_batch(
    toy_checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full batch is decoded before any request, and then a single sentence."""
    rows: list[int] = []

    def measure(_: Any, __: Any, moving: Mapping[str, Tensor], *___: Any) -> Measured:
        rows.append(moving["target"].size(0))
        return Measured(1.0, 0.5, 60.0, rows[-1])

    def compiled(function: Any, **_: Any) -> Any:
        def call(layer: Any, x: Tensor, *given: Any, **named: Any) -> Any:
            rows.append(x.size(0))
            return function(layer, x, *given, **named)

        return call

    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_measure", measure)
    monkeypatch.setattr(torch, "compile", compiled)
    model = api.open_model(toy_checkpoint, steps=Steps("auto", work=math.inf))
    beam = model.search.beam

    Service(model, Limits(batch=3)).warm()

    assert rows[0] == 3 * beam
    assert rows[-1] == beam


def test_plain_steps_need_no_more_than_a_word(
    toy_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured."""
    model = api.open_model(toy_checkpoint)
    use_steps(model.module, Steps("off"))
    batches: list[int] = []
    own = Service._translated
    monkeypatch.setattr(
        Service,
        "_translated",
        lambda self, work, requests: batches.append(len(requests)) or own(self, work, requests),
    )

    Service(model, Limits()).warm()

    assert batches == [1]
