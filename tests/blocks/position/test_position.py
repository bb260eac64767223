"""Encodings of positions, and embeddings."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.decode_state import Capacity, State
from weft.blocks.position.copy_position import COUNTED_POSITION
from weft.blocks.position.copy_position_module import CountedPosition
from weft.blocks.position.position_module import (
    LearnedPosition,
    SinusoidalPosition,
    StepPosition,
    sinusoids,
)
from weft.blocks.registry import registry
from weft.graphs.checker.check import check
from weft.graphs.ir.graph import Graph
from weft.runtime.codegen.build import build
from weft.runtime.train.recipe.groups import WeightGroup
from weft.runtime.train.recipe.optimize import (
    Optimizers,
    clip_gradient,
    load_optimizer_tensors,
    make_optimizer,
    optimizer_tensors,
    set_rates,
)
from weft.runtime.train.recipe.optimizers import AdamW
from weft.specs.load import loaded


@pytest.mark.parametrize("d_model", [2, 8, 512])
def test_sinusoids_follow_the_formula_of_the_paper(d_model: int) -> None:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same; in float64."""
    positions = [0, 1, 2, 7, 100, 511]

    found = sinusoids(torch.tensor(positions), d_model)

    expected = [
        [
            (math.sin if j % 2 == 0 else math.cos)(pos / 10000 ** ((j - j % 2) / d_model))
            for j in range(d_model)
        ]
        for pos in positions
    ]
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-4)


def test_sinusoids_of_the_first_positions_by_hand() -> None:
    """With d = 4, the two angles at position p are p and p / 100."""
    found = sinusoids(torch.arange(2), 4)

    expected = [[0.0, 1.0, 0.0, 1.0], [0.841471, 0.540302, 0.00999983, 0.99995]]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize("shift", [1, 5, 40])
def test_a_shift_is_a_linear_map(shift: int) -> None:
    """PE(pos + k) = M(k) PE(pos), where M is a rotation of each pair that depends only on k."""
    d_model = 16
    positions = torch.arange(100)
    angles = [shift / 10000 ** (2 * i / d_model) for i in range(d_model // 2)]
    rotation = torch.block_diag(
        *(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]]) for a in angles)
    )

    moved = sinusoids(positions, d_model) @ rotation.T

    torch.testing.assert_close(moved, sinusoids(positions + shift, d_model), rtol=0, atol=1e-4)


def test_wavelengths_run_from_two_pi_towards_ten_thousand_times_that() -> None:
    """A geometric progression: the last of d/2 wavelengths is one step below 10000 * 2 pi."""
    d_model = 512
    first = sinusoids(torch.ones(1), d_model)[0].double()

    lengths = 2 * math.pi / torch.atan2(first[0::2], first[1::2])

    assert lengths[0].item() == pytest.approx(2 * math.pi, rel=1e-6)
    ratios = lengths[1:] / lengths[:-1]
    torch.testing.assert_close(
        ratios, torch.full_like(ratios, 10000 ** (2 / d_model)), rtol=1e-5, atol=0
    )
    assert (lengths[-1] * ratios[-1]).item() == pytest.approx(10000 * 2 * math.pi, rel=1e-4)


def test_the_released_code_put_all_sines_first() -> None:
    """There are d/2 - 1 steps between the wavelengths, so the longest is exactly 10000 * 2 pi."""
    found = sinusoids(torch.tensor([3]), 6, "concatenated")

    angles = [3.0, 3 / 100, 3 / 10000]
    expected = [*(math.sin(a) for a in angles), *(math.cos(a) for a in angles)]
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_halves_reorder_the_sinusoids_of_the_paper() -> None:
    """Sines first, of angles 3 / 10000^(2i/6)."""
    found = sinusoids(torch.tensor([3]), 6, "halves")

    angles = [3.0, 3 / 10000 ** (1 / 3), 3 / 10000 ** (2 / 3)]
    expected = [*(math.sin(a) for a in angles), *(math.cos(a) for a in angles)]
    torch.testing.assert_close(found, torch.tensor([expected]))


def test_encodings_are_added_to_each_sequence() -> None:
    """The encodings are added without scaling."""
    x = torch.randn(2, 5, 8)

    found = SinusoidalPosition()(x)

    torch.testing.assert_close(found, x + sinusoids(torch.arange(5), 8))


def test_positions_can_begin_with_another_number() -> None:
    """The first vector gets the encoding of position 2, as in fairseq, whose padding id is 1."""
    x = torch.randn(2, 5, 8)

    found = SinusoidalPosition(first=2)(x)

    torch.testing.assert_close(found, x + sinusoids(torch.arange(2, 7), 8))


def test_learned_positions_are_rows_of_a_table() -> None:
    """Row p of the table is added to position p of every sequence."""
    block = LearnedPosition(d_model=3, max_length=4)
    with torch.no_grad():
        block.weight.copy_(torch.arange(12.0).view(4, 3))
    x = torch.full((2, 2, 3), 100.0)

    found = block(x)

    rows = torch.tensor([[100.0, 101.0, 102.0], [103.0, 104.0, 105.0]])
    assert torch.equal(found, rows.expand(2, 2, 3))


def test_input_longer_than_the_table_is_refused() -> None:
    """The message names the size of the table, in `forward` and in `step`."""
    block = LearnedPosition(d_model=3, max_length=4)

    with pytest.raises(
        ValueError, match="learned_position got 5 positions, but its max_length is 4"
    ):
        block(torch.zeros(1, 5, 3))
    with pytest.raises(
        ValueError, match="learned_position got 5 positions, but its max_length is 4"
    ):
        block.step(torch.zeros(1, 1, 3), state=State(), position=4)


def test_dropout_falls_on_the_sum() -> None:
    """Section 5.4: dropout applies to the sums of embeddings and encodings."""
    torch.manual_seed(0)
    x = torch.randn(2, 50, 8)
    block = SinusoidalPosition(dropout=0.5).train()

    found = block(x)

    whole = SinusoidalPosition()(x)
    unmasked = found != 0
    assert 0.4 < unmasked.float().mean().item() < 0.6
    torch.testing.assert_close(found[unmasked], 2 * whole[unmasked])


def test_each_step_adds_the_encoding_of_its_number() -> None:
    """Equation 7 of the Universal Transformer: the first step is 1, for all positions."""
    x, block = torch.zeros(2, 3, 8), StepPosition()

    first, clock = block(x, torch.zeros(2, 3, 8))
    second, clock = block(x, clock)

    for t, found in ((1, first), (2, second)):
        for i in range(4):
            rate = 10_000 ** (-2 * i / 8)
            assert found[..., 2 * i].unique().tolist() == pytest.approx([math.sin(t * rate)])
            assert found[..., 2 * i + 1].unique().tolist() == pytest.approx([math.cos(t * rate)])
    assert clock.unique().tolist() == [2.0]


def graph(*, frozen: bool, tie: list[str] | None = None) -> Graph:
    """Return a spec from words to scores: two tables, the first optionally frozen, and a map."""
    table = {"use": "embedding@1", "in": {"ids": "words"}}
    spec: dict[str, Any] = {
        "format": 1,
        "name": "words",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"words": "ids:7[B T]"},
        "outputs": {"frozen": "head.y", "free": "other.y"},
        "nodes": {
            "table": {**table, "params": {"d_model": 4, "frozen": frozen}},
            "free": {**table, "params": {"d_model": 4}},
            "norm": {"use": "layer_norm@1", "in": {"x": "table.y"}},
            "head": {"use": "linear@1", "in": {"x": "norm.y"}, "params": {"d_out": 7}},
            "other": {"use": "linear@1", "in": {"x": "free.y"}, "params": {"d_out": 7}},
        },
        "tie": [tie] if tie else [],
    }
    return check(loaded(spec).form, registry())


def optimizer_of(model: nn.Module) -> Optimizers:
    """Return an optimizer of all weights, with weight decay."""
    names = tuple(name for name, _ in model.named_parameters())
    return make_optimizer(model, [WeightGroup(AdamW(weight_decay=0.1), names)], 1.0)


def trained(model: nn.Module, updates: int = 3) -> Optimizers:
    """Train on random words with weight decay and clipping, and return the optimizer."""
    optimizer = optimizer_of(model)
    set_rates(optimizer, 0.1, 1, 1)
    for _ in range(updates):
        outputs: dict[str, Tensor] = model(words=torch.randint(7, (3, 5)))
        sum(y.square().sum() for y in outputs.values()).backward()
        clip_gradient(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return optimizer


@pytest.mark.parametrize(
    ("tie", "still"),
    [
        (None, {"table.weight"}),
        (["table.weight", "head.weight"], {"table.weight", "head.weight"}),
        (["head.weight", "table.weight"], {"table.weight", "head.weight"}),
        (
            ["free.weight", "head.weight", "table.weight"],
            {"table.weight", "head.weight", "free.weight"},
        ),
    ],
    ids=["alone", "tied, first", "tied, second", "tied, last"],
)
def test_a_frozen_table_stays_and_the_rest_moves(tie: list[str] | None, still: set[str]) -> None:
    """Bit for bit, with weight decay and clipping, whichever owner of a tied table is frozen."""
    model = build(graph(frozen=True, tie=tie))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}

    trained(model)

    after = model.state_dict()
    assert {name for name in before if torch.equal(before[name], after[name])} == still


def test_a_table_that_is_not_frozen_moves() -> None:
    """Otherwise the test above could not fail."""
    model = build(graph(frozen=False))
    before = model.state_dict()["table.weight"].clone()

    trained(model)

    assert not torch.equal(before, model.state_dict()["table.weight"])


def test_freezing_changes_neither_counts_nor_initial_values() -> None:
    """The parameters are equal in number and value; only training differs."""
    frozen, free = graph(frozen=True), graph(frozen=False)

    assert frozen.parameters() == free.parameters() == 28 + 28 + 8 + 35 + 35
    left, right = build(frozen).state_dict(), build(free).state_dict()
    assert all(torch.equal(left[name], right[name]) for name in left)


def test_the_optimizer_has_no_state_for_a_frozen_table() -> None:
    """Its state can be saved and loaded, and has no moments for frozen weights."""
    model = build(graph(frozen=True))
    optimizer = trained(model)

    written = optimizer_tensors(optimizer, model)
    again = optimizer_of(model)
    load_optimizer_tensors(again, model, written)

    assert {name.rpartition(".")[0] for name in written} == set(model.state_dict()) - {
        "table.weight"
    }
    assert optimizer_tensors(again, model).keys() == written.keys()


COUNTS = [
    ([3, 5, 9, 6, 2], [-1, 0, 0, 1, 1]),
    ([4, 4, 4, 8, 0], [0, 1, 2, 2, 2]),
]
"""Ids, and how many ids up to each are from 4 to 7, minus one: by hand."""


@pytest.mark.parametrize(("ids", "counts"), COUNTS)
def test_the_encoding_is_that_of_the_count(ids: list[int], counts: list[int]) -> None:
    """The count of a position includes its own id."""
    x = torch.randn(1, len(ids), 8)

    found = CountedPosition(below=8, first=4, start=-1)(x, torch.tensor([ids]))

    torch.testing.assert_close(found[0] - x[0], sinusoids(torch.tensor(counts), 8))


@pytest.mark.parametrize("parts", [(1, 1, 1, 1, 1), (3, 2), (1, 4)])
def test_steps_continue_the_count_of_each_row(parts: tuple[int, ...]) -> None:
    """One at a time or several; each row has its own count."""
    module = CountedPosition(below=8, first=4, start=-1)
    ids = torch.tensor([row for row, _ in COUNTS])
    x = torch.zeros(2, 5, 8)
    capacity = Capacity(
        sentences=1, beams=2, length=5, dtype=torch.float32, device=torch.device("cpu")
    )
    state = module.begin(capacity)

    steps, start = [], 0
    for count in parts:
        here = slice(start, start + count)
        steps.append(module.step(x[:, here], ids[:, here], state=state, position=start))
        start += count

    counts = torch.tensor([row for _, row in COUNTS])
    expected = torch.stack([sinusoids(row, 8) for row in counts])
    torch.testing.assert_close(torch.cat(steps, 1), expected)
    assert state.carried["count"].tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("params", "width", "message"),
    [
        ({"below": 4}, 7, "width 7 is odd"),
        ({"first": 4, "below": 4}, 8, "'first' is 4, but it must be less than 'below', 4"),
    ],
)
def test_invalid_params_are_refused(params: dict[str, int], width: int, message: str) -> None:
    """An odd width, and an empty range of ids."""
    given = COUNTED_POSITION.params.model_validate(params)

    with pytest.raises(ValueError, match=message):
        COUNTED_POSITION.arguments(given, {"d_model": width})
