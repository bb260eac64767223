"""Recurrent networks against torch's, and padded rows against rows without padding."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from weft.blocks.kernels.decode_state import Capacity
from weft.blocks.recurrent.recurrent import LSTM as LSTM_BLOCK
from weft.blocks.recurrent.recurrent_module import GRU, LSTM, RNN

PAIRS = {"rnn": (RNN, nn.RNN), "gru": (GRU, nn.GRU), "lstm": (LSTM, nn.LSTM)}
EVERY = pytest.mark.parametrize("name", PAIRS)
DIRECTIONS = pytest.mark.parametrize("direction", ["forward", "backward", "both"])
MASK = torch.tensor([[1, 1, 1, 1, 0, 0], [0, 1, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0]]).bool()
"""No padding, padding at the end, padding anywhere."""


def made(name: str, direction: str = "forward", *, bias: bool = True) -> Any:
    """Return one of our blocks with random weights, in float64."""
    ours = PAIRS[name][0](4, 5, direction, bias=bias)
    ours.initialize(torch.Generator().manual_seed(1))
    return ours.double()


@EVERY
@DIRECTIONS
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_it_is_torchs(name: str, direction: str, *, bias: bool) -> None:
    """With torch's weights under torch's names, without the layer number."""
    ours = made(name, direction, bias=bias)
    both = direction == "both"
    theirs = PAIRS[name][1](4, 5, bias=bias, batch_first=True, bidirectional=both).double()
    weights = ours.state_dict()
    theirs.load_state_dict({re.sub("(?<=ih|hh)", "_l0", name): weights[name] for name in weights})
    x = torch.randn(3, 6, 4, dtype=torch.float64)

    wanted = theirs(x.flip(1))[0].flip(1) if direction == "backward" else theirs(x)[0]

    torch.testing.assert_close(ours(x), wanted, rtol=0, atol=1e-12)


@EVERY
@DIRECTIONS
def test_padding_is_as_if_it_were_not_there(name: str, direction: str) -> None:
    """Each row equals its unmasked positions run separately, with zeros elsewhere."""
    ours = made(name, direction)
    x = torch.randn(3, 6, 4, dtype=torch.float64)

    found = ours(x, MASK)

    for row, mask in enumerate(MASK):
        if mask.any():
            alone = ours(x[row : row + 1, mask])[0]
            torch.testing.assert_close(found[row, mask], alone, rtol=0, atol=1e-12)
    assert found[~MASK].abs().max() == 0


@EVERY
@DIRECTIONS
def test_padding_takes_no_part_in_learning(name: str, direction: str) -> None:
    """Gradients of weights are sums over rows run separately; the gradient of padding is 0."""
    ours = made(name, direction)
    x = torch.randn(3, 6, 4, dtype=torch.float64, requires_grad=True)
    weights = list(ours.parameters())

    gradient, *found = torch.autograd.grad(ours(x, MASK).square().sum(), [x, *weights])

    alone = [ours(x[r : r + 1, mask]).square().sum() for r, mask in enumerate(MASK) if mask.any()]
    expected = torch.autograd.grad(torch.stack(alone).sum(), weights)
    torch.testing.assert_close(found, list(expected), rtol=0, atol=1e-12)
    assert gradient[~MASK].abs().max() == 0
    assert gradient[MASK].abs().min() > 0


@EVERY
def test_a_step_that_is_not_kept_leaves_the_state(name: str) -> None:
    """Steps over padding give zeros, and the next unmasked step continues from the last one."""
    ours = made(name)
    x = torch.randn(3, 6, 4, dtype=torch.float64)
    state = ours.begin(Capacity(3, 1, 6, torch.float64, torch.device("cpu")))

    steps = [
        ours.step(x[:, t : t + 1], MASK[:, t : t + 1], state=state, position=t) for t in range(6)
    ]

    torch.testing.assert_close(torch.cat(steps, 1), ours(x, MASK), rtol=0, atol=1e-12)
    assert all(value[2].abs().max() == 0 for value in state.carried.values())


def test_gru_by_hand() -> None:
    """One step of width 1 from h = 0, weights 1, no biases: r = z = s(1), n = tanh(1)."""
    gru = GRU(1, 1, bias=False)
    with torch.no_grad():
        for weight in gru.parameters():
            weight.fill_(1.0)
    z = torch.sigmoid(torch.tensor(1.0))
    first = (1 - z) * torch.tanh(torch.tensor(1.0))
    r2 = z2 = torch.sigmoid(1 + first)
    second = (1 - z2) * torch.tanh(1 + r2 * first) + z2 * first

    found = gru(torch.ones(1, 2, 1)).flatten()

    torch.testing.assert_close(found, torch.stack([first, second]))


def test_the_formula_counts_a_cell_run_by_hand() -> None:
    """Torch's counter does not see inside the fused LSTM, but it does count cells."""
    ours = LSTM(4, 5)
    ours.initialize(torch.Generator().manual_seed(1))
    state = ours.begin(Capacity(3, 1, 6, torch.float32, torch.device("cpu")))

    with FlopCounterMode(display=False) as counter:
        for position in range(6):
            ours.step(torch.randn(3, 1, 4), state=state, position=position)

    arguments = {"d_in": 4, "d_hidden": 5, "direction": "forward", "bias": True}
    assert LSTM_BLOCK.flops(arguments, {"b": 3, "t": 6}) == counter.get_total_flops()
    assert counter.get_total_flops() == 2 * 3 * 6 * 20 * (4 + 5)


@EVERY
@pytest.mark.parametrize("given", [torch.float32, torch.bfloat16], ids=str)
def test_autocast_reaches_the_recurrence(name: str, given: torch.dtype) -> None:
    """Weights and inputs are cast to the autocast dtype, whatever the dtype of the input."""
    ours = made(name, "both").float()
    x = torch.randn(3, 6, 4)
    whole = ours(x, MASK)

    with torch.autocast("cpu", torch.bfloat16):
        half: Tensor = ours(x.to(given), MASK)
        state = ours.begin(Capacity(3, 1, 6, torch.bfloat16, torch.device("cpu")))
        stepped = ours.step(x[:, :1].to(given), state=state, position=0)

    assert half.dtype == stepped.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), whole, rtol=0.05, atol=0.02)


@pytest.mark.integration
@EVERY
@torch.no_grad()
def test_compiling_around_it_makes_two_graphs_for_all_lengths(name: str) -> None:
    """One before and one after: the recurrence stays a call of torch's kernel, not unrolled."""
    ours = made(name, "both")

    def around(x: Tensor) -> Tensor:
        result: Tensor = ours(2 * x) + 1
        return result

    inputs = [torch.ones(2, length, 4, dtype=torch.float64) for length in (3, 5, 8)]
    wanted = [around(x) for x in inputs]
    torch._dynamo.reset()
    graphs: list[int] = []

    def count(module: Any, _: Any) -> Any:
        graphs.append(len(module.graph.nodes))
        return module.forward

    compiled = torch.compile(around, backend=count, dynamic=True)
    found = [compiled(x) for x in inputs]

    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert len(graphs) == 2
    torch._dynamo.reset()
