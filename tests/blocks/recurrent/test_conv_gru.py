"""Convolutional GRU against loops that follow the formulas of the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from weft.blocks.recurrent.conv_gru_module import ConvGRU, ConvGRUDecoder

Array = np.ndarray[Any, np.dtype[np.float64]]


def convolved(weight: torch.Tensor, x_LD: Array, here: int) -> Array:
    """Return sum_k W_k x_{here + k} for a centered kernel, with zeros beyond the ends."""
    kernel = weight.double().detach().numpy()
    total = np.zeros(kernel.shape[0])
    for k in range(kernel.shape[2]):
        there = here + k - (kernel.shape[2] - 1) // 2
        if 0 <= there < len(x_LD):
            total += kernel[:, :, k] @ x_LD[there]
    return total


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def next_state(unit: ConvGRU, state_LD: Array, tape_LE: Array | None = None) -> Array:
    """Return the next state of one sequence, position by position."""
    d = state_LD.shape[1]
    bias = {n: p.double().detach().numpy() for n, p in unit.named_parameters() if n[-4:] == "bias"}
    extra = np.zeros((len(state_LD), 3 * d))
    if tape_LE is not None:
        written = unit.get_parameter("written.weight")
        extra = np.stack([convolved(written, tape_LE, i) for i in range(len(state_LD))])
    gates = np.stack(
        [
            sigmoid(
                convolved(unit.gates.weight, state_LD, i) + bias["gates.bias"] + extra[i, : 2 * d]
            )
            for i in range(len(state_LD))
        ]
    )
    update, reset = gates[:, :d], gates[:, d:]
    candidate = np.stack(
        [
            np.tanh(
                convolved(unit.candidate.weight, reset * state_LD, i)
                + bias["candidate.bias"]
                + extra[i, 2 * d :]
            )
            for i in range(len(state_LD))
        ]
    )
    return np.asarray(update * state_LD + (1 - update) * candidate)


def drawn(model: nn.Module) -> None:
    """Draw every weight of a module, in float64."""
    generator = torch.Generator().manual_seed(1)
    model.double()
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(0.4 * torch.randn(weight.shape, generator=generator))


@pytest.mark.parametrize("kernel", [2, 3, 4])
def test_the_unit_equals_the_formula(kernel: int) -> None:
    """Kaiser and Sutskever 2016, section 2, as a loop."""
    unit = ConvGRU(4, kernel)
    drawn(unit)
    x = torch.randn(2, 6, 4, dtype=torch.float64)

    wanted = np.stack([next_state(unit, row) for row in x.numpy()])

    np.testing.assert_allclose(unit(x).detach().numpy(), wanted, atol=1e-12)


def test_padding_acts_as_the_end_of_the_sequence() -> None:
    """Padding is zero before and after every unit, so units can be stacked."""
    unit = ConvGRU(4, 5)
    drawn(unit)
    x = torch.randn(2, 6, 4, dtype=torch.float64)
    mask = torch.arange(6).expand(2, 6) < 4

    y = unit(x, mask)

    torch.testing.assert_close(y[:, :4], unit(x[:, :4]))
    assert not y[:, 4:].any()


@pytest.mark.parametrize("kernel", [3, 4])
def test_the_decoder_is_the_formula_on_a_state_that_grows(kernel: int) -> None:
    """Kaiser and Bengio 2016, section 3.1; the state has as many positions as are active."""
    decoder = ConvGRUDecoder(4, 3, kernel, 2)
    drawn(decoder)
    x = torch.randn(1, 6, 3, dtype=torch.float64)
    memory = torch.randn(1, 4, 4, dtype=torch.float64)

    state, tape = memory[0].numpy(), np.zeros((4, 3))
    wanted = []
    for t in range(6):
        if t >= len(state):
            state, tape = (np.concatenate([a, np.zeros((1, a.shape[1]))]) for a in (state, tape))
        tape[t] = x[0, t].numpy()
        for unit in decoder.cells:
            state = next_state(unit, state, tape)
        wanted.append(state[t])

    given = decoder(x, memory)[0].detach().numpy()
    np.testing.assert_allclose(given, np.stack(wanted), atol=1e-12)


def test_the_decoder_reads_the_same_however_far_the_memory_is_padded() -> None:
    """The result does not depend on the number of later steps either."""
    decoder = ConvGRUDecoder(4, 3, 3, 1)
    drawn(decoder)
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    memory = torch.randn(2, 7, 4, dtype=torch.float64)
    mask = torch.arange(7).expand(2, 7) < 3

    padded = decoder(x, memory, mask)

    torch.testing.assert_close(padded[:, :5], decoder(x[:, :5], memory[:, :3]))
