"""Wiring: the residual path in both orders, and the linear map."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.modules.embedding import Embedding
from weft.blocks.modules.state import Room, State
from weft.blocks.modules.wiring import Linear, Sublayer


class Tenfold(nn.Module):
    """Ten times x, plus what comes by another wire."""

    def forward(self, x: Tensor, more: float = 0.0) -> Tensor:
        """Compute it."""
        return 10 * x + more

    def begin(self, room: Room, more: float = 0.0) -> State:
        """Remember the other wire."""
        return State(fixed={"more": torch.full((room.sentences,), more)})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Compute it for one position."""
        return self(x, state.fixed["more"][0].item() + 0 * position)


def test_post_order_norms_the_sum() -> None:
    """By norm(x + f(x)): (1, 3) + (10, 30) = (11, 33), of mean 22 and deviation 11."""
    block = Sublayer(2, "post", eps=1e-6, f=Tenfold())

    found = block(torch.tensor([1.0, 3.0]))

    size = 11 / math.sqrt(121 + 1e-6)
    torch.testing.assert_close(found, torch.tensor([-size, size]))


def test_pre_order_norms_what_enters_and_adds_to_what_was() -> None:
    """By x + f(norm(x)): (1, 3) has mean 2 and deviation 1, so f gives (-10, 10)."""
    block = Sublayer(2, "pre", eps=1e-6, f=Tenfold())

    found = block(torch.tensor([1.0, 3.0]))

    size = 10 / math.sqrt(1 + 1e-6)
    torch.testing.assert_close(found, torch.tensor([1 - size, 3 + size]))


@pytest.mark.parametrize("order", ["post", "pre"])
def test_other_wires_go_to_the_sublayer(order: str) -> None:
    """A cross-attention's memory passes through untouched, at once and step by step."""
    block = Sublayer(2, order, f=Tenfold())
    x = torch.tensor([[[1.0, 3.0]]])
    room = Room(1, 1, 1, torch.float32, torch.device("cpu"))

    at_once = block(x, more=5.0)
    stepped = block.step(x, state=block.begin(room, more=5.0), position=0)

    assert torch.equal(at_once, stepped)
    assert torch.equal(at_once, block(x)) == (order == "post")  # the norm removes a constant


@pytest.mark.parametrize("order", ["post", "pre"])
def test_dropout_falls_on_the_sublayer_and_never_on_the_path_around(order: str) -> None:
    """Section 5.4: the output of each sub-layer, before it is added: 1 + 0 or 1 + 2 * 10."""
    torch.manual_seed(0)
    block = Sublayer(2, order, dropout=0.5, f=Tenfold()).train()
    block.norm = nn.Identity()

    found = block(torch.ones(2000, 2))

    assert set(found.unique().tolist()) == {1.0, 21.0}


def test_linear_is_x_w_transposed_plus_b() -> None:
    """By hand: (1, 2) on rows (1, 0), (0, 1), (3, 4), with a bias on the last."""
    block = Linear(2, 3)
    with torch.no_grad():
        block.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))
        block.bias.copy_(torch.tensor([0.0, 0.0, 100.0]))

    assert block(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0, 111.0]


@pytest.mark.parametrize(("scale", "factor"), [("none", 1.0), ("sqrt", 2.0)])
def test_embeddings_are_rows_times_the_root_of_the_width(scale: str, factor: float) -> None:
    """Section 3.4: with d = 4 the factor is 2."""
    block = Embedding(3, 4, scale)
    with torch.no_grad():
        block.weight.copy_(torch.arange(12.0).view(3, 4))

    found = block(torch.tensor([[2, 0]]))

    expected = [[8.0, 9.0, 10.0, 11.0], [0.0, 1.0, 2.0, 3.0]]
    assert torch.equal(found, factor * torch.tensor([expected]))


def test_fresh_weights_have_the_spread_that_the_paper_names() -> None:
    """Embeddings N(0, 1/d), so scaled ones have variance 1; Xavier within sqrt(6 / (in + out))."""
    generator = torch.Generator().manual_seed(1)
    embedding, linear = Embedding(400, 64, "sqrt"), Linear(50, 100)

    embedding.initialize(generator)
    linear.initialize(generator)

    # 25600 draws: a deviation of the measured spread is 0.125 / sqrt(2 * 25600) = 0.00055.
    assert embedding.weight.std().item() == pytest.approx(1 / 8, abs=5 * 0.00055)
    bound = math.sqrt(6 / 150)
    assert 0.99 * bound < linear.weight.abs().max().item() <= bound
    assert linear.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not linear.bias.any()
