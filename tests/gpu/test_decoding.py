"""GPU tests of decoding: steps replayed from recorded CUDA graphs give those of plain steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from weft.runtime.compile.decode_compile import Steps
from weft.runtime.compile.decoder import use_steps
from weft.runtime.decode import graphed
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch
from weft.runtime.decode.stepper import ModelStepper

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
SMALL = {"vocab": 23, "d_model": 64, "heads": 4, "d_ff": 128, "layers": 2, "dropout": 0.0}
SOURCES = [[5, 6, 7, 1], [8, 1], [4, 9, 4, 9, 4, 1], [11, 12, 1], [20, 21, 22, 19, 1]]


@pytest.fixture
def model() -> Any:
    """Return a small Transformer with random weights on the GPU."""
    torch.manual_seed(7)
    return weft.build(weft.load("transformer-tiny", **SMALL)).eval().to(DEVICE)


def recorded(model: Any) -> int:
    """Return the number of graphs of a model."""
    return sum(len(bucket.graphs) for bucket in graphed._BUCKETS[model].values())


@pytest.mark.parametrize("beam", [1, 4])
def test_outputs_with_graphs_are_those_without(beam: int, model: Any) -> None:
    """The same batch three times: its steps are computed, recorded and replayed."""
    search = BeamSearch(beam=beam, max_length=11)

    def decoded(choice: Any) -> list[tuple[Any, ...]]:
        use_steps(model, Steps(choice))
        requests = [Request(source) for source in SOURCES]
        found = decode_ids([model], requests, SpecialTokens(3, 1, 0), search)
        return [(best.tokens, pytest.approx(best.score, abs=1e-4)) for best, *_ in found]

    expected = decoded("off")
    assert [decoded("graphs") for _ in range(3)] == [expected] * 3
    made = recorded(model)
    assert made > 0
    assert decoded("graphs") == expected
    assert recorded(model) == made


@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_logits_of_replayed_steps_are_those_of_plain_steps(half: bool, model: Any) -> None:
    """Three sentences, padded to four; the beams are reordered; three times the same tokens."""
    source = torch.arange(27, device=DEVICE).view(3, 9) % 19 + 4
    fixed = {"source": source, "source_mask": source % 5 > 0}
    tokens = torch.arange(24, device=DEVICE).view(6, 4) % 19 + 4
    parents = torch.tensor([1, 0, 3, 2, 4, 4], device=DEVICE)

    def logits(kind: type[ModelStepper]) -> list[Tensor]:
        stepper, found = kind(model, fixed, beams=2, length=4), []
        for position in range(4):
            if position == 2:
                stepper.reorder(parents)
            found.append(stepper.step(tokens[:, position], position))
        return found

    with torch.inference_mode(), torch.autocast(DEVICE, torch.bfloat16, enabled=half):
        expected = logits(ModelStepper)
        for _ in range(3):
            found = logits(graphed.GraphedStepper)
            close = {"rtol": 0.05, "atol": 0.1} if half else {"rtol": 1e-4, "atol": 1e-4}
            torch.testing.assert_close(found, expected, **close)
    assert recorded(model) == 4
