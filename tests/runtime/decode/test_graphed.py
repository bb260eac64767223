"""Steps replayed from graphs: the same logits, at fixed addresses, in few sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from weft.runtime.compile.decode_compile import Steps
from weft.runtime.compile.decoder import decoder_of, steps_of, use_steps
from weft.runtime.decode import graphed
from weft.runtime.decode.decode import Request, SpecialTokens, decode_ids
from weft.runtime.decode.settings import BeamSearch
from weft.runtime.decode.stepper import ModelStepper
from weft.runtime.model.opening import open_model
from weft.specs.findings import InputError

SMALL = {"vocab": 23, "d_model": 16, "heads": 2, "d_ff": 24, "layers": 2, "dropout": 0.0}
SPECIAL = SpecialTokens(3, 1, 0)


class Again:
    """What a CUDA graph is, on the CPU: it computes on the memory that it was recorded with."""

    made = 0

    def __init__(self, run: Callable[[], None]) -> None:
        """Keep a step without computing it."""
        Again.made += 1
        self._run = run

    def replay(self) -> None:
        """Compute the step."""
        self._run()


@pytest.fixture
def model() -> Any:
    """Return a small Transformer with random weights."""
    torch.manual_seed(7)
    return weft.build(weft.load("transformer-tiny", **SMALL)).eval()


def use_graphs(
    model: Any, monkeypatch: pytest.MonkeyPatch, choice: Any, record: Any = Again
) -> list[str]:
    """Decode with a model as on a CUDA device; return the list of its log lines."""
    messages: list[str] = []
    steps = Steps(choice, log=messages.append)
    steps.settle_on(torch.device("cuda"))
    use_steps(model, steps)
    Again.made = 0
    recording = functools.partial(graphed.GraphedStepper, record=record)
    monkeypatch.setattr(graphed, "GraphedStepper", recording)
    return messages


def decoded(model: Any, sources: list[list[int]], beam: int) -> list[tuple[Any, ...]]:
    """Return the tokens and scores of the best outputs, of different lengths."""
    search = BeamSearch(beam=beam, nbest=1, max_length=11)
    found = decode_ids([model], [Request(one) for one in sources], SPECIAL, search)
    return [(best.tokens, pytest.approx(best.score, abs=1e-5)) for best, *_ in found]


SOURCES = [[5, 6, 7, 1], [8, 1], [4, 9, 4, 9, 4, 1], [11, 12, 1], [20, 21, 22, 19, 1]]


@pytest.mark.integration
@pytest.mark.parametrize("beam", [1, 3])
def test_outputs_are_those_of_plain_steps(
    beam: int, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three batches: steps are computed, recorded and replayed, with padding and narrowing."""
    batches = [SOURCES, SOURCES[::-1][:4] + SOURCES[:1], SOURCES]
    use_graphs(model, monkeypatch, "graphs")
    found = [decoded(model, batch, beam) for batch in batches]
    recorded = Again.made
    assert recorded > 0
    assert decoded(model, SOURCES, beam) == found[0]
    assert Again.made == recorded  # everything was replayed

    use_steps(model, Steps("off"))
    assert found == [decoded(model, batch, beam) for batch in batches]


def test_auto_records_on_cuda_what_the_third_batch_repeats(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first batch runs as it is, the second visits positions, the third records them."""
    expected = decoded(model, SOURCES, 1)
    messages = use_graphs(model, monkeypatch, "auto")

    made = []
    for _ in range(4):
        assert decoded(model, SOURCES, 1) == expected
        made.append(Again.made)

    assert made[:2] == [0, 0]
    assert made[2] == made[3] > 0
    assert messages == ["steps: recorded, as CUDA graphs, replayed for batches of similar sizes"]


def test_auto_records_nothing_elsewhere() -> None:
    """A processor has no graphs; there `auto` measures compiled steps."""
    steps = Steps("auto")
    steps.settle_on(torch.device("cpu"))

    assert steps.mode == "undecided"
    assert not any(steps.records_batch() for _ in range(3))


def test_steps_are_plain_after_recording_failed(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The step that could not be recorded is computed; the reason is one line, logged once."""
    expected = decoded(model, SOURCES, 1)

    def fail(_: Callable[[], None]) -> None:
        msg = "operation not permitted when stream is capturing\nCompile with CUDA_LAUNCH..."
        raise RuntimeError(msg)

    messages = use_graphs(model, monkeypatch, "graphs", fail)
    assert [decoded(model, SOURCES, 1) for _ in range(4)] == [expected] * 4

    [message] = messages
    assert message.startswith("steps: plain, recording them as a CUDA graph failed: operation not")
    assert message.endswith("when stream is capturing")
    assert not steps_of(model).records_batch()


def _fixed(rows: int, length: int) -> dict[str, Tensor]:
    source = torch.arange(rows * length).view(rows, length) % 19 + 4
    return {"source": source, "source_mask": torch.ones(rows, length, dtype=torch.bool)}


@torch.inference_mode()
@pytest.mark.parametrize(
    ("states", "kept"), [(0.9, []), (1.1, [16]), (3.6, [32, 48]), (9, [16, 32, 48])]
)
def test_states_of_buckets_have_bounded_memory(
    states: float, kept: list[int], model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest goes if there is no room, and a state that is too large never comes.

    Keys and values of width 16, of two layers and four sentences, in float32 take 1,024 bytes a
    position: 16 of the source and 16, 32 and 48 of the target.
    """
    monkeypatch.setattr(graphed, "STATES", states * 32 * 1024)
    for length in (16, 32, 48):
        fixed = _fixed(4, 16)
        stepper = graphed.GraphedStepper(model, fixed, beams=1, length=length, record=Again)
        stepper.step(torch.tensor([5, 6, 7, 8]), 0)
        del stepper

    lengths = [bucket.bytes // 1024 - 16 for bucket in graphed._BUCKETS[model].values()]
    assert lengths == kept


@torch.inference_mode()
def test_similar_sizes_share_a_bucket_whose_memory_stays(model: Any) -> None:
    """Five to eight sentences of up to 16 tokens, one after the other."""
    buckets = graphed._BUCKETS
    places = []
    for rows, length in ((5, 3), (8, 16), (6, 9)):
        stepper = graphed.GraphedStepper(
            model, _fixed(rows, length), beams=2, length=length, record=Again
        )
        logits = stepper.step(torch.full((rows * 2,), 5), 0)
        plain = ModelStepper(model, _fixed(rows, length), beams=2, length=length)
        torch.testing.assert_close(logits, plain.step(torch.full((rows * 2,), 5), 0))
        places.append([one.data_ptr() for _, one in graphed._tensors(stepper._state)])
        del stepper
    assert places[0] == places[1] == places[2]
    assert [set(one.graphs) for one in buckets[model].values()] == [{0}]


@torch.inference_mode()
def test_two_steppers_of_one_size_do_not_share_memory(model: Any) -> None:
    """The second one is not recorded: a server decodes several batches at the same time."""
    first, second = (
        graphed.GraphedStepper(model, _fixed(2, length), beams=1, length=4, record=Again)
        for length in (3, 5)
    )
    one = first.step(torch.tensor([5, 6]), 0)
    second.step(torch.tensor([7, 8]), 0)

    plain = ModelStepper(model, _fixed(2, 3), beams=1, length=4)
    torch.testing.assert_close(one, plain.step(torch.tensor([5, 6]), 0))
    following = plain.step(torch.tensor([9, 9]), 1)
    torch.testing.assert_close(first.step(torch.tensor([9, 9]), 1), following)


def test_a_source_is_not_padded_beyond_the_positions_of_the_model() -> None:
    """A learned table of 9 positions has none for a bucket of 16."""
    position = {"use": "learned_position@1", "params": {"max_length": 9}}
    model = weft.build(weft.load("transformer-tiny", **SMALL, position=position)).eval()
    given = _fixed(2, 9)

    with torch.inference_mode():
        found = graphed.GraphedStepper(model, given, beams=1, length=4, record=Again)
        plain = ModelStepper(model, given, beams=1, length=4)
        tokens_R = torch.tensor([5, 6])
        torch.testing.assert_close(found.step(tokens_R, 0), plain.step(tokens_R, 0))


def test_graphs_need_cuda() -> None:
    """The error comes before the checkpoint is read."""
    with pytest.raises(InputError, match="need a CUDA device, not cpu"):
        open_model("no-such-folder", steps=Steps("graphs"))


def test_a_state_that_a_step_replaces_is_not_recorded(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A graph would go on reading the tensor that was there when it was recorded."""
    with torch.inference_mode():
        made = type(decoder_of(model).module(model, torch.float32))
    step = made.step

    def replacing(self: Any, **given: Any) -> Any:
        found = step(self, **given)
        _replace(given["state"])
        return found

    monkeypatch.setattr(made, "step", replacing)
    Again.made = 0
    for _ in range(3):
        with torch.inference_mode():
            stepper = graphed.GraphedStepper(model, _fixed(2, 3), beams=1, length=4, record=Again)
            stepper.step(torch.tensor([5, 6]), 0)
        del stepper
    assert Again.made == 0


def _replace(state: Any) -> bool:
    """Replace the first buffer of a state by a copy."""
    if isinstance(state, graphed.State):
        for name, one in state.appended.items():
            state.appended[name] = one.clone()
            return True
        return False
    inner = state.values() if isinstance(state, dict) else state if isinstance(state, list) else []
    return any(_replace(one) for one in inner)
