"""Sub-layers on a residual path in all orders, and the linear map, by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.feed_forward.feed_forward_module import FeedForward
from weft.blocks.kernels.decode_state import Capacity, State
from weft.blocks.position.position_module import Embedding
from weft.blocks.registry import registry
from weft.blocks.residual.sublayer_module import Linear, ParallelSublayer, Sublayer
from weft.graphs.checker.check import analyse
from weft.specs.load import loaded

NO_PORTS: dict[str, tuple[str, ...]] = {"f": (), "g": ()}
"""Additional wires of two slots."""


class Tenfold(nn.Module):
    """Ten times x, plus the value of another wire."""

    def forward(self, x: Tensor, more: float = 0.0) -> Tensor:
        """Compute it."""
        return 10 * x + more

    def begin(self, capacity: Capacity, more: float = 0.0) -> State:
        """Return the decoding state: the other wire."""
        return State(fixed={"more": torch.full((capacity.sentences,), more)})

    def step(self, x: Tensor, *, state: State, position: int) -> Tensor:
        """Compute it for one position."""
        return self(x, state.fixed["more"][0].item() + 0 * position)


class Same(nn.Module):
    """What it reads."""

    def forward(self, x: Tensor) -> Tensor:
        """Return it."""
        return x


def test_post_order_norms_the_sum() -> None:
    """Compute norm(x + f(x)): (1, 3) + (10, 30) = (11, 33), with mean 22 and deviation 11."""
    block = Sublayer(2, "post", eps=1e-6, f=Tenfold())

    found = block(torch.tensor([1.0, 3.0]))

    size = 11 / math.sqrt(121 + 1e-6)
    torch.testing.assert_close(found, torch.tensor([-size, size]))


def test_pre_order_norms_the_input_and_adds_to_the_residual() -> None:
    """Compute x + f(norm(x)): (1, 3) has mean 2 and deviation 1, so f returns (-10, 10)."""
    block = Sublayer(2, "pre", eps=1e-6, f=Tenfold())

    found = block(torch.tensor([1.0, 3.0]))

    size = 10 / math.sqrt(1 + 1e-6)
    torch.testing.assert_close(found, torch.tensor([1 - size, 3 + size]))


@pytest.mark.parametrize("order", ["post", "pre"])
def test_other_wires_go_to_the_sublayer(order: str) -> None:
    """Another wire, such as a memory, is passed on unchanged, in `forward` and in `step`."""
    block = Sublayer(2, order, f=Tenfold())
    x = torch.tensor([[[1.0, 3.0]]])
    capacity = Capacity(1, 1, 1, torch.float32, torch.device("cpu"))

    at_once = block(x, more=5.0)
    stepped = block.step(x, state=block.begin(capacity, more=5.0), position=0)

    assert torch.equal(at_once, stepped)
    assert torch.equal(at_once, block(x)) == (order == "post")  # the norm removes a constant


@pytest.mark.parametrize("order", ["post", "pre"])
def test_dropout_applies_to_the_sublayer_and_not_to_the_residual(order: str) -> None:
    """Section 5.4: the output of each sub-layer, before it is added: 1 + 0 or 1 + 2 * 10."""
    torch.manual_seed(0)
    block = Sublayer(2, order, dropout=0.5, f=Tenfold()).train()
    block.norm = nn.Identity()

    found = block(torch.ones(2000, 2))

    assert set(found.unique().tolist()) == {1.0, 21.0}


def test_sandwich_order_norms_before_and_after() -> None:
    """Compute x + norm2(f(norm1(x))): with unit weights, both norms return (-1, 1)."""
    block = Sublayer(2, "sandwich", eps=1e-6, f=Tenfold())
    with torch.no_grad():
        block.after.weight.copy_(torch.tensor([2.0, 3.0]))

    found = block(torch.tensor([1.0, 3.0]))

    torch.testing.assert_close(found, torch.tensor([1.0 - 2.0, 3.0 + 3.0]))


def test_rezero_begins_as_the_identity() -> None:
    """Compute x + alpha f(x), without a norm: alpha starts at 0; with 1/2, f = 10 x gives 6 x."""
    block = Sublayer(2, norm="none", residual="rezero", f=Tenfold())
    x = torch.tensor([[1.0, 3.0]])

    block.initialize(torch.Generator())
    assert torch.equal(block(x), x)
    assert [name for name, _ in block.named_parameters()] == ["gain"]
    assert block.gain is not None
    with torch.no_grad():
        block.gain.fill_(0.5)
    assert torch.equal(block(x), 6 * x)


def test_layer_scale_has_a_number_for_each_place() -> None:
    """Compute x + lambda * f(norm(x)), with a small initial lambda; f returns (-10, 10)."""
    block = Sublayer(2, "pre", residual="layer_scale", residual_start=1e-5, f=Tenfold())

    block.initialize(torch.Generator())
    assert block.gain is not None
    assert block.gain.tolist() == pytest.approx([1e-5, 1e-5])
    with torch.no_grad():
        block.gain.copy_(torch.tensor([0.1, 0.2]))
    found = block(torch.tensor([1.0, 3.0]))

    torch.testing.assert_close(found, torch.tensor([1.0 - 1.0, 3.0 + 2.0]))


def test_drop_path_drops_the_branch_for_complete_rows() -> None:
    """With probability 3/4; the remaining rows add four times as much: 1 + 4 * 10."""
    torch.manual_seed(0)
    block = Sublayer(2, norm="none", drop_path=0.75, f=Tenfold()).train()

    found = block(torch.ones(4000, 3, 2))

    rows = found.flatten(1)
    assert set(rows.unique().tolist()) == {1.0, 41.0}
    assert torch.equal(rows.amin(1), rows.amax(1))
    # The standard deviation of the share of 4000 rows is sqrt(3/16 / 4000) = 0.0068.
    assert (rows[:, 0] > 1).float().mean().item() == pytest.approx(0.25, abs=5 * 0.0068)
    assert set(block.eval()(torch.ones(2, 2)).unique().tolist()) == {11.0}


def test_two_sublayers_read_the_same_and_add_up() -> None:
    """Compute x + f(norm(x)) + g(norm(x)): with f = g = 10 x, the norm is added twenty times."""
    block = ParallelSublayer(4, f=Tenfold(), g=Tenfold(), ports=NO_PORTS, stepping=())
    x = torch.randn(3, 4)

    found = block(x)

    torch.testing.assert_close(found, x + 20 * F.layer_norm(x, (4,), eps=1e-6))


def test_each_of_two_sublayers_takes_its_wires() -> None:
    """`more` is passed to the slot with such a port, in `forward` and `step`, for every beam."""
    ports = {"f": (), "g": ("more",)}
    block = ParallelSublayer(2, norm="none", f=Same(), g=Tenfold(), ports=ports, stepping=("g",))
    x = torch.tensor([[[1.0, 3.0]]])
    capacity = Capacity(1, 1, 1, torch.float32, torch.device("cpu"))

    at_once = block(x, more=5.0)
    stepped = block.step(x, state=block.begin(capacity, more=5.0), position=0)

    assert at_once.tolist() == stepped.tolist() == [[[2 + 10 + 5, 6 + 30 + 5]]]


def side_by_side(wires: dict[str, str]) -> dict[str, Any]:
    """Return a spec of attention in parallel with a feed-forward, with these wires."""
    return {
        "format": 1,
        "name": "one",
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]", "mask": "mask[B T]"},
        "outputs": {"y": "both.y"},
        "nodes": {
            "both": {
                "use": "parallel_sublayer@1",
                "in": {"x": "x", **wires},
                "fill": {
                    "f": {"use": "attention@1", "params": {"heads": 2}},
                    "g": {"use": "inner"},
                },
            }
        },
        "blocks": {
            "inner": {
                "inputs": {"x": "f[B T 8]"},
                "outputs": {"y": "feed.y"},
                "nodes": {
                    "feed": {"use": "feed_forward@1", "in": {"x": "x"}, "params": {"d_ff": 9}}
                },
            }
        },
    }


def test_a_wire_goes_to_the_slot_that_has_a_port_for_it() -> None:
    """A template in the other slot ignores it; a wire without a port in any slot is an error."""
    graph, findings = analyse(loaded(side_by_side({"mask": "mask"})).form, registry())
    assert findings == []
    assert graph is not None
    part = graph.root.nodes[0].part
    assert part is not None
    assert [set(inner.inputs) for inner in part.fill.values()] == [{"x", "mask"}, {"x"}]

    _, findings = analyse(loaded(side_by_side({"maskk": "mask"})).form, registry())
    assert [(f.code, f.problem, f.help) for f in findings] == [
        (
            "N03",
            "no slot of parallel_sublayer@1 has a port 'maskk'",
            "did you mean 'mask'?",
        )
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_one_graph_serves_every_size(compiles_once: Callable[[nn.Module], None]) -> None:
    """Two slots, a wire for one of them: compiled without graph breaks, and only once."""
    read, feed = Attention(8, 8, 2, 4, 4, causal=True), FeedForward(8, 16)
    ports = {"f": ("mask",), "g": ()}
    block = ParallelSublayer(
        8, residual="layer_scale", f=read, g=feed, ports=ports, stepping=("f",)
    ).double()
    block.initialize(torch.Generator())

    compiles_once(block)


def test_linear_is_x_w_transposed_plus_b() -> None:
    """By hand: (1, 2) on rows (1, 0), (0, 1), (3, 4), with a bias on the last."""
    block = Linear(2, 3)
    with torch.no_grad():
        block.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]))
        block.bias.copy_(torch.tensor([0.0, 0.0, 100.0]))

    assert block(torch.tensor([1.0, 2.0])).tolist() == [1.0, 2.0, 111.0]


@pytest.mark.parametrize(("scale", "factor"), [("none", 1.0), ("sqrt", 2.0)])
def test_embeddings_are_rows_times_the_root_of_the_width(scale: str, factor: float) -> None:
    """Section 3.4: with d = 4, the factor is 2."""
    block = Embedding(3, 4, scale)
    with torch.no_grad():
        block.weight.copy_(torch.arange(12.0).view(3, 4))

    found = block(torch.tensor([[2, 0]]))

    expected = [[8.0, 9.0, 10.0, 11.0], [0.0, 1.0, 2.0, 3.0]]
    assert torch.equal(found, factor * torch.tensor([expected]))


def test_fresh_weights_have_the_spread_that_the_paper_names() -> None:
    """Embeddings N(0, 1/d), scaled to variance 1; Xavier within sqrt(6 / (in + out))."""
    generator = torch.Generator().manual_seed(1)
    embedding, linear = Embedding(400, 64, "sqrt"), Linear(50, 100)

    embedding.initialize(generator)
    linear.initialize(generator)

    # 25600 draws: the measured spread has a deviation of 0.125 / sqrt(2 * 25600) = 0.00055.
    assert embedding.weight.std().item() == pytest.approx(1 / 8, abs=5 * 0.00055)
    bound = math.sqrt(6 / 150)
    assert 0.99 * bound < linear.weight.abs().max().item() <= bound
    assert linear.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)
    assert not linear.bias.any()
