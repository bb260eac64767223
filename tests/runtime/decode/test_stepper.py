"""Stepping a complete Transformer equals its parallel forward pass, with beams."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import State
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.cost.decode_state import state_by_node
from weft.runtime.codegen.build import build
from weft.runtime.codegen.generated import program_of
from weft.runtime.decode import stepper as stepper_module
from weft.runtime.decode.stepper import ModelStepper, mean_log_p, narrow, reorder
from weft.specs.load import load, loaded

VOCAB, LENGTH = 11, 6
SMALL = {"vocab": VOCAB, "d_model": 8, "heads": 2, "d_ff": 12, "layers": 2}
POSITIONS: dict[str, dict[str, Any]] = {
    "waves": {"use": "sinusoidal_position@1"},
    "learned": {"use": "learned_position@1", "params": {"max_length": LENGTH}},
}


def transformer(order: str = "post", position: str = "waves") -> nn.Module:
    """Return a small Transformer in float64, whose weights give clearly different logits."""
    text = load("transformer-tiny").form.model_dump_json(by_alias=True)
    spec = loaded(json.loads(text.replace('"post"', f'"{order}"'))).form
    model = build(check(spec, registry(), {**SMALL, "position": POSITIONS[position]})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape))
    return model.double()


def sources() -> dict[str, Tensor]:
    """Return two sentences, the second with padding."""
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    return {"source": torch.randint(VOCAB, (2, 6)), "source_mask": mask}


@pytest.mark.parametrize("order", ["post", "pre"])
@pytest.mark.parametrize("position", POSITIONS)
@pytest.mark.parametrize("beams", [1, 3])
def test_stepping_equals_the_parallel_forward(order: str, position: str, beams: int) -> None:
    """Every step's logits equal those of the complete prefix, in float64 to 1e-12."""
    model, fixed = transformer(order, position), sources()
    target = torch.randint(VOCAB, (2 * beams, LENGTH))
    spread = {name: value.repeat_interleave(beams, 0) for name, value in fixed.items()}
    expected = model(**spread, target=target)["logits"]

    stepper = ModelStepper(model, fixed, beams=beams, length=LENGTH)

    assert (stepper.rows, stepper.beams) == (2, beams)
    for place in range(LENGTH):
        found = stepper.step(target[:, place], place)
        torch.testing.assert_close(found, expected[:, place], rtol=0, atol=1e-12)


@pytest.mark.parametrize("order", ["post", "pre"])
def test_reordered_rows_continue_the_state_of_their_parents(order: str) -> None:
    """Beams are reordered twice, and one is dropped each time; the state follows."""
    model, fixed = transformer(order), sources()
    written = torch.randint(VOCAB, (6, LENGTH))
    turns = {2: torch.tensor([1, 1, 0, 5, 3, 4]), 4: torch.tensor([2, 0, 1, 4, 4, 3])}
    spread = {name: value.repeat_interleave(3, 0) for name, value in fixed.items()}
    prefix = written[:, :0]

    stepper = ModelStepper(model, fixed, beams=3, length=LENGTH)

    for place in range(LENGTH):
        if place in turns:
            stepper.reorder(turns[place])
            prefix = prefix[turns[place]]
        prefix = torch.cat([prefix, written[:, place : place + 1]], 1)
        found = stepper.step(written[:, place], place)
        expected = model(**spread, target=prefix)["logits"][:, -1]
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("read", "expected_lengths"), [(0, [1, 2, 4, 4, 6, 6]), (3, [6, 6, 6])])
def test_buffers_are_enlarged_as_they_fill(
    read: int, expected_lengths: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logits do not change, also after a prompt; a buffer is never longer than the output."""
    monkeypatch.setattr(stepper_module.ModelStepper, "first_buffer", 1)
    model, fixed = transformer(), sources()
    written = torch.randint(VOCAB, (2, LENGTH))
    expected = model(**fixed, target=written)["logits"]
    lengths = []

    stepper = ModelStepper(model, fixed, beams=1, length=LENGTH)
    if read:
        stepper.read(written[:, :read])
    for place in range(read, LENGTH):
        found = stepper.step(written[:, place], place)
        torch.testing.assert_close(found, expected[:, place], rtol=0, atol=1e-12)
        lengths.append(stepper._state["decoder"][0]["self_attention"].appended["key"].size(2))

    assert lengths == expected_lengths


def test_sentences_do_not_mix() -> None:
    """A sentence decoded alone has the same logits as in the batch."""
    model, fixed = transformer(), sources()
    together = ModelStepper(model, fixed, beams=2, length=2)
    alone = ModelStepper(model, {n: v[1:] for n, v in fixed.items()}, beams=2, length=2)
    tokens = torch.tensor([3, 5, 7, 9])

    torch.testing.assert_close(alone.step(tokens[2:], 0), together.step(tokens, 0)[2:])


def test_the_memory_is_kept_once_for_each_sentence() -> None:
    """Beams of a sentence share its keys and values; only generated tokens are stored per row."""
    model = transformer()

    stepper = ModelStepper(model, sources(), beams=3, length=LENGTH)

    layer = stepper._state["decoder"][0]
    assert layer["cross_attention"].fixed["key"].shape == (2, 2, 6, 4)
    assert layer["self_attention"].appended["key"].shape == (6, 2, LENGTH, 4)
    assert layer["self_attention"].appended["key"].dtype == torch.float64


def test_the_state_has_the_dtype_of_autocast() -> None:
    """Buffers have the dtype of the projections, so steps need no cast."""
    model = transformer().float()

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        stepper = ModelStepper(model, sources(), beams=1, length=2)
        stepper.step(torch.tensor([1, 2]), 0)

    assert stepper._state["decoder"][0]["self_attention"].appended["key"].dtype == torch.bfloat16


@pytest.mark.parametrize("parents", [[2, 2, 0, 3], [0, 3, 2, 3], [1, 0, 3, 2], [0, 1, 2, 3]])
def test_reordering_copies_only_the_filled_prefix(parents: list[int]) -> None:
    """Only filled positions are copied, and per-sentence tensors never are.

    Whether all rows are reordered, one is, two are swapped, or none.
    """
    appended = torch.arange(4.0 * 5 * 2).view(4, 1, 5, 2)
    carried = torch.arange(8.0).view(4, 2)
    fixed = torch.arange(4.0)
    state = State(appended={"a": appended}, carried={"c": carried}, fixed={"f": fixed})
    before = {"a": appended.clone(), "c": carried.clone(), "f": fixed.clone()}
    rows = torch.tensor(parents)

    reorder({"node": [{"deep": state}], "=value": torch.ones(1)}, rows, used=3)

    assert torch.equal(appended[:, :, :3], before["a"][rows][:, :, :3])
    assert torch.equal(appended[:, :, 3:], before["a"][:, :, 3:])
    assert torch.equal(carried, before["c"][rows])
    assert torch.equal(fixed, before["f"])


def test_narrowing_keeps_rows_wherever_they_stand() -> None:
    """Keep the last of three sentences of two rows, in every kind of state.

    Buffers keep their capacity; tensors without a row axis are unchanged.
    """
    appended = torch.arange(6.0 * 5 * 2).view(6, 1, 5, 2)
    carried, fixed = torch.arange(12.0).view(6, 2), torch.arange(3.0)
    apart, same = torch.arange(2.0 * 6).view(2, 6), torch.arange(6.0)
    state = {
        "node": [{"deep": State({"a": appended}, {"c": carried}, {"f": fixed})}],
        "=x@1": apart,
        "=y": same,
    }

    narrow(state, torch.tensor([2]), torch.tensor([4, 5]), used=3)

    [node] = state["node"]
    found = node["deep"]  # type: ignore[index]
    assert found.appended["a"].shape == (2, 1, 5, 2)
    assert torch.equal(found.appended["a"][:, :, :3], appended[4:, :, :3])
    assert torch.equal(found.carried["c"], carried[4:])
    assert torch.equal(found.fixed["f"], fixed[2:])
    assert torch.equal(state["=x@1"], apart[:, 4:])  # type: ignore[arg-type]
    assert state["=y"] is same


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_memory_equals_the_cost_formula(precision: str) -> None:
    """With one beam, the bytes of `weft cost`; each further beam adds those of its rows.

    Neither steps nor reordering allocate or free state.
    """
    model = transformer().float()
    sizes = {"B": 2, "S": 6, "T": LENGTH}
    width = {"float32": 4, "bfloat16": 2}[precision]
    formula = state_by_node(program_of(model).graph, sizes, width)
    own = sum(count for path, count in formula.items() if path.endswith("self_attention"))
    assert (
        own == 2 * 2 * LENGTH * 8 * 2 * width
    )  # layers, sentences, positions, width, keys and values

    for beams in (1, 3, 4):
        with torch.inference_mode(), torch.autocast("cpu", enabled=precision == "bfloat16"):
            stepper = ModelStepper(model, sources(), beams=beams, length=LENGTH)
            before = state_bytes(stepper._state)
            for place in range(3):
                stepper.step(torch.arange(2 * beams), place)
                stepper.reorder(torch.arange(2 * beams).view(2, -1).flip(1).flatten())
        assert state_bytes(stepper._state) == before
        assert before == sum(formula.values()) + (beams - 1) * own


def state_bytes(state: Any) -> int:
    """Return the bytes of all storages in a state."""
    if isinstance(state, Tensor):
        return state.untyped_storage().nbytes()
    if isinstance(state, State):
        return sum(state_bytes(dict(part)) for part in state)
    return sum(map(state_bytes, state.values() if isinstance(state, dict) else state))


def test_reordering_keeps_every_buffer_where_it_is() -> None:
    """Addresses do not change, as recorded CUDA graphs require."""
    stepper = ModelStepper(transformer(), sources(), beams=3, length=LENGTH)
    stepper.step(torch.arange(6), 0)
    buffers = stepper._state["decoder"][1]["self_attention"].appended
    places = {name: buffer.data_ptr() for name, buffer in buffers.items()}

    stepper.reorder(torch.tensor([1, 0, 2, 3, 5, 4]))

    after = stepper._state["decoder"][1]["self_attention"].appended
    assert {name: buffer.data_ptr() for name, buffer in after.items()} == places


@pytest.mark.parametrize("models", [1, 2, 3])
@pytest.mark.parametrize("shape", [(7, 10), (3, 2, 10)])
def test_the_mean_of_probabilities_is_that_of_the_definition(
    models: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In blocks of two rows and a rest, with forbidden and nearly impossible tokens."""
    monkeypatch.setattr(stepper_module, "CACHED", 20)
    logits = [5 * torch.randn(shape) for _ in range(models)]
    for one in logits:
        one[..., 3] = -torch.inf
        one[..., 4] = -300.0
    given = [one.clone() for one in logits]

    found = mean_log_p(logits)

    wanted = sum(torch.softmax(one.double(), -1) for one in given) / models
    assert isinstance(wanted, Tensor)
    torch.testing.assert_close(found, wanted.log().float())
    assert (found[..., 3] == -torch.inf).all()
    assert (found[..., 4] < -250).all()
    assert all(torch.equal(one, before) for one, before in zip(logits, given, strict=True))
    torch.testing.assert_close(stepper_module._mean_log_p(given), found)
