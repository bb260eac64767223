"""The start of a server: requests are served uncompiled while compiled steps are measured."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from weft.extensions.serve.limits import Limits
from weft.extensions.serve.service import Service, Work
from weft.runtime import api
from weft.runtime.compile import decode_compile as module
from weft.runtime.compile.decode_compile import Steps, StepTimes
from weft.runtime.compile.decoder import steps_of, use_steps
from weft.runtime.decode.predictors.text import row_of_line

pytestmark = pytest.mark.integration

REQUEST = row_of_line("sun moon")


@pytest.mark.parametrize(("gain", "mode"), [(2.0, "compiled"), (1.0, "plain")])
def test_compiled_steps_are_measured_apart_from_requests(
    gain: float,
    mode: str,
    toy_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a full batch and a single sentence; the service uses compiled steps if they are faster."""
    rows: list[int] = []
    during: list[str] = []

    def measure(_: Any, __: Any, moving: Mapping[str, Tensor], *___: Any) -> StepTimes:
        rows.append(moving["target"].size(0))
        before = len(rows)
        during.append(
            service._translated(Work(service.default_strategy), [REQUEST])[0]["translations"]
        )
        assert len(rows) == before  # a request runs no compiled step meanwhile
        return StepTimes(1.0, 1.0 / gain, 60.0, rows[-1])

    def compiled(function: Any, **_: Any) -> Any:
        def call(layer: Any, *, x: Tensor, **inputs: Any) -> Any:
            rows.append(x.size(0))
            return function(layer, x=x, **inputs)

        return call

    monkeypatch.setenv("WEFT_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_measure", measure)
    monkeypatch.setattr(torch, "compile", compiled)
    model = api.open_model(toy_checkpoint, steps=Steps("auto", work=math.inf))
    beam = model.search.beam
    service = Service(model, Limits(batch=3))

    service.warm()
    assert rows == []
    [expected] = service._translated(Work(service.default_strategy), [REQUEST])
    assert rows == []
    service.tune()

    assert rows[0] == 3 * beam
    assert steps_of(service.model.module).mode == mode
    assert during == [expected["translations"]]
    count = len(rows)
    [again] = service._translated(Work(service.default_strategy), [REQUEST])
    assert again["translations"] == expected["translations"]
    if mode == "compiled":
        assert rows[count - 1] == rows[-1] == beam
    assert (len(rows) > count) == (mode == "compiled")
    service.tune()  # a second time does nothing


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

    service = Service(model, Limits())
    service.warm()
    service.tune()

    assert batches == [1]
    assert service.model is model
