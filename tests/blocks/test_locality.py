"""Rotary positions against complex numbers, and windows against dense masks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import weft
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.attention.masks_module import Window
from weft.blocks.attention.multi_head_module import Attention
from weft.blocks.kernels.decode_state import Capacity, State
from weft.blocks.position.rotary import ROTARY, RotaryParams
from weft.blocks.position.rotary_module import Rotary, rotated
from weft.specs.load import loaded

BOTH = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
MASK = torch.tensor([[1, 1, 0, 0, 0, 1], [0, 1, 1, 1, 1, 0]]).bool()


def attention(**how: Any) -> Attention:
    """Return attention with two heads and random weights."""
    made = Attention(8, 8, 2, 4, 3, **how).double().eval()
    for weight in made.parameters():
        nn.init.normal_(weight, std=0.5)
    return made


def stepped(block: Attention, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, State]:
    """Return the outputs of a block one position at a time, and its decoding state."""
    state = block.begin(Capacity(x.size(0), 1, x.size(1), x.dtype, x.device))
    given = []
    for t in range(x.size(1)):
        here = None if mask is None else mask[:, t : t + 1]
        given.append(block.step(x[:, t : t + 1], here, state=state, position=t))
    return torch.cat(given, 1), state


def test_a_pair_is_a_point_turned_by_its_position() -> None:
    """By hand, base 100 and width 4: at position 2 the angles are 2 and 2 * 100^(-1/2)."""
    x = torch.tensor([1.0, 0.0, 0.0, 3.0]).view(1, 1, 1, 4)

    found = rotated(x, torch.tensor([2]), 100.0)

    expected = [math.cos(2), math.sin(2), -3 * math.sin(0.2), 3 * math.cos(0.2)]
    torch.testing.assert_close(found.flatten(), torch.tensor(expected))


def test_only_the_distance_counts() -> None:
    """Section 3.4.1: the product of a rotated query and key depends only on t - s."""
    query, key = torch.randn(2, 1, 1, 1, 6, dtype=torch.float64)

    def product(t: int, s: int) -> float:
        turned = rotated(query, torch.tensor([t]), 50.0), rotated(key, torch.tensor([s]), 50.0)
        return float((turned[0] * turned[1]).sum())

    assert product(9, 4) == pytest.approx(product(5, 0), abs=1e-5)
    assert product(4, 9) == pytest.approx(product(0, 5), abs=1e-5)
    assert product(9, 4) != pytest.approx(product(4, 9), abs=1e-3)
    assert product(0, 0) == float((query * key).sum())


@BOTH
@pytest.mark.parametrize("base", [10_000.0, 30.0])
def test_rotary_is_a_product_of_complex_numbers(base: float, *, causal: bool) -> None:
    """Equation 12 of the paper: each pair is a complex number, times exp(i t theta), per head."""
    block = attention(position=Rotary(4, base), causal=causal)
    x = torch.randn(6, 8, dtype=torch.float64)

    found = block(x[None])[0]

    theta = base ** (-2 * torch.arange(2, dtype=torch.float64) / 4)
    turn = torch.exp(1j * torch.arange(6)[:, None] * theta)
    query, key = (
        torch.view_as_complex(part(x).view(6, 2, 2, 2)) * turn[:, None]
        for part in (block.query, block.key)
    )
    score = torch.einsum("thp,shp->hts", query, key.conj()).real / math.sqrt(4)
    if causal:
        score = score.masked_fill(torch.ones(6, 6, dtype=torch.bool).triu(1), -math.inf)
    read = torch.einsum("hts,shv->thv", score.softmax(-1), block.value(x).view(6, 2, 3))
    # Angles are computed in float32, with 24 bits.
    torch.testing.assert_close(found, block.out(read.flatten(1)), rtol=0, atol=1e-6)


def test_a_step_stores_the_key_turned_by_its_own_position() -> None:
    """Stored keys are not rotated again."""
    block = attention(position=Rotary(4), causal=True)
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    given, state = stepped(block, x)

    keys = block.key(x).view(2, 6, 2, 4).transpose(1, 2)
    expected = rotated(keys, torch.arange(6), 10_000.0)
    torch.testing.assert_close(state.appended["key"], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(given, block(x), rtol=0, atol=1e-12)


def test_order_counts_with_rotary_positions_and_not_without() -> None:
    """Full attention without position encodings does not depend on the order."""
    x = torch.randn(1, 6, 8, dtype=torch.float64)
    plain, turned = attention(), attention(position=Rotary(4))

    torch.testing.assert_close(plain(x).flip(1), plain(x.flip(1)), rtol=0, atol=1e-12)
    assert not torch.allclose(turned(x).flip(1), turned(x.flip(1)), atol=1e-3)


def dense(window: int, *, causal: bool) -> Tensor:
    """Return the mask of a window over six positions, entry by entry."""
    near = [[abs(t - s) <= window and (s <= t or not causal) for s in range(6)] for t in range(6)]
    return torch.tensor(near)


@BOTH
@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("window", [1, 2, 4, 5, 100])
def test_a_window_is_a_dense_mask(window: int, mask: Tensor | None, *, causal: bool) -> None:
    """Positions at a larger distance than the window are not attended to, on either side."""
    block = attention(mask=Window(window), causal=causal)
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    found = block(x, mask=mask)

    allowed = dense(window, causal=causal)[None, None]
    if mask is not None:
        allowed = allowed & mask[:, None, None]
    query, key, value = (
        part(x).unflatten(-1, (2, -1)).transpose(1, 2)
        for part in (block.query, block.key, block.value)
    )
    read = F.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
    expected = block.out(read.transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("mask", [None, MASK], ids=["no padding", "padding"])
@pytest.mark.parametrize("parts", [{}, {"position": Rotary(4)}], ids=["plain", "rotary"])
def test_steps_with_a_window_give_the_parallel_result(
    mask: Tensor | None, parts: dict[str, nn.Module]
) -> None:
    """Also where a window is fully masked; then the output is the projection of zeros."""
    block = attention(mask=Window(1), causal=True, **parts)
    x = torch.randn(2, 6, 8, dtype=torch.float64)

    given, _ = stepped(block, x, mask)

    torch.testing.assert_close(given, block(x, mask=mask), rtol=0, atol=1e-12)
    if mask is not None:
        torch.testing.assert_close(given[0, 3], block.out.bias)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_a_step_reads_only_the_window(kv_heads: int) -> None:
    """At position 5, a window of 2 covers 3, 4 and 5; earlier positions have no effect."""
    block = attention(mask=Window(2), causal=True, kv_heads=kv_heads)
    x = torch.randn(2, 6, 8, dtype=torch.float64)
    _, state = stepped(block, x[:, :5].contiguous())
    state = State(
        appended={name: F.pad(held, (0, 0, 0, 1)) for name, held in state.appended.items()}
    )

    def last() -> Tensor:
        return block.step(x[:, 5:], state=state, position=5)

    before = last()
    for held in state.appended.values():
        held[:, :, :3] = math.nan

    assert torch.equal(before, last())
    torch.testing.assert_close(before, block(x)[:, 5:], rtol=0, atol=1e-12)
    for held in state.appended.values():
        held[:, :, 3] = math.nan
    assert last().isnan().all()


@pytest.mark.parametrize(
    ("how", "width", "problem"),
    [
        ({}, 3, "3 of 3 features are rotated, but they come in pairs"),
        ({"fraction": 0.25}, 4, "1 of 4 features are rotated"),
        ({"scaling": "linear"}, 4, "scaling is 'linear', but factor is 1"),
        ({"scaling": "yarn", "factor": 2.0}, 4, "scaling 'yarn' needs original_length"),
        (
            {"scaling": "yarn", "factor": 2.0, "original_length": 8, "base": 1.0},
            4,
            "scaling 'yarn' finds pairs by their frequencies, but base is 1",
        ),
    ],
    ids=str,
)
def test_angles_that_cannot_be_are_refused(how: dict[str, Any], width: int, problem: str) -> None:
    """Rotation needs pairs, and scaling its params."""
    with pytest.raises(ValueError, match=problem):
        ROTARY.arguments(RotaryParams(**how), {"d_k": width})


def test_half_of_a_width_in_halves_by_hand() -> None:
    """GPT-NeoX: of width 8, features 0 and 2, and 1 and 3, form pairs; 4 to 7 stay."""
    x = torch.arange(1.0, 9.0).view(1, 1, 1, 8)

    found = Rotary(4, 100.0, "halves")(x, 3)[0, 0, 0]

    angles = [3.0, 0.3]
    first = [
        x[0, 0, 0, i] * math.cos(a) - x[0, 0, 0, i + 2] * math.sin(a) for i, a in enumerate(angles)
    ]
    second = [
        x[0, 0, 0, i] * math.sin(a) + x[0, 0, 0, i + 2] * math.cos(a) for i, a in enumerate(angles)
    ]
    torch.testing.assert_close(found, torch.stack([*first, *second, *x[0, 0, 0, 4:]]))


def angles(rotary: Rotary, length: int) -> list[float]:
    """Return the angle of each pair at position 1, from what becomes of (1, 0)."""
    width = rotary.width
    ones = torch.tensor([1.0, 0.0]).repeat(width // 2).expand(1, 1, length, width)
    turned = rotary(ones)[0, 0, 1].view(-1, 2) / rotary.magnitude
    return [math.atan2(float(sin), float(cos)) for cos, sin in turned]


def test_linear_scaling_divides_positions() -> None:
    """Chen et al. 2023: position 1 is turned as position 1 / 4 was."""
    expected = [1 / 4, 100 ** (-1 / 2) / 4]

    assert angles(Rotary(4, 100.0, scaling="linear", factor=4.0), 2) == pytest.approx(expected)


def test_dynamic_scaling_enlarges_the_base_with_the_length() -> None:
    """Base * (f L / L0 - (f - 1))^(d / (d - 2)) beyond L0; up to L0, angles stay."""
    rotary = Rotary(4, 100.0, scaling="dynamic", factor=2.0, original_length=4)

    assert angles(rotary, 4) == pytest.approx([1.0, 0.1])
    base = 100 * (2 * 8 / 4 - 1) ** (4 / 2)
    assert angles(rotary, 8) == pytest.approx([1.0, base ** (-2 / 4)])


def test_llama_3_divides_only_slow_frequencies() -> None:
    """Above 4 turns within the length they stay, below 1 they are divided, linear between."""
    how = {"factor": 8.0, "original_length": 64, "slow_turns": 1.0, "fast_turns": 4.0}
    rotary = Rotary(8, 10_000.0, scaling="llama3", **how)
    expected = []
    for i in range(4):
        own = 10_000 ** (-2 * i / 8)
        turns = 64 * own / (2 * math.pi)
        kept = min(max((turns - 1.0) / (4.0 - 1.0), 0.0), 1.0)
        expected.append(kept * own + (1 - kept) * own / 8)

    assert angles(rotary, 2) == pytest.approx(expected, rel=1e-4)
    assert expected[0] == 1.0
    assert expected[3] == pytest.approx(0.001 / 8)


def test_yarn_ramps_over_pairs_and_raises_the_magnitude() -> None:
    """Peng et al. 2023, section 3.2 and equation 22; base 100, width 8, length 640."""
    how = {"factor": 4.0, "original_length": 640, "slow_turns": 1.0, "fast_turns": 32.0}
    rotary = Rotary(8, 100.0, scaling="yarn", **how)
    low = math.floor(8 * math.log(640 / (32 * 2 * math.pi)) / (2 * math.log(100)))
    high = math.ceil(8 * math.log(640 / (2 * math.pi)) / (2 * math.log(100)))
    assert (low, high) == (1, 5)
    expected = []
    for i in range(4):
        own, ramp = 100 ** (-2 * i / 8), min(max((i - low) / (high - low), 0), 1)
        expected.append(own * (1 - ramp) + own / 4 * ramp)

    assert angles(rotary, 2) == pytest.approx(expected, rel=1e-5)
    assert rotary.magnitude == pytest.approx(0.1 * math.log(4) + 1)


def test_yarn_may_ramp_between_parts_of_pairs() -> None:
    """As above, but the bounds of the ramp, 1.006 and 4.016, are not rounded."""
    how = {"factor": 4.0, "original_length": 640, "slow_turns": 1.0, "fast_turns": 32.0}
    rotary = Rotary(8, 100.0, scaling="yarn", rounded=False, **how)
    low, high = (8 * math.log(640 / (n * 2 * math.pi)) / (2 * math.log(100)) for n in (32, 1))
    assert (low, high) == pytest.approx((1.006, 4.016), abs=1e-3)
    expected = []
    for i in range(4):
        own, ramp = 100 ** (-2 * i / 8), min(max((i - low) / (high - low), 0), 1)
        expected.append(own * (1 - ramp) + own / 4 * ramp)

    assert angles(rotary, 2) == pytest.approx(expected, rel=1e-5)


NODE = {
    "format": 1,
    "name": "turned",
    "axes": {"B": "batch", "T": "time"},
    "inputs": {"x": "f[B 3 T 4]"},
    "outputs": {"y": "rotary.y"},
    "nodes": {"rotary": {"use": "rotary@1", "in": {"query": "x"}, "params": {"base": 100.0}}},
    "step": {"axis": "T"},
    "allow": ["D05"],
}


def test_a_node_rotates_as_complex_numbers_do() -> None:
    """Features 2i and 2i + 1 are a number, multiplied by exp(j pos base^(-2i/K)); K is 4."""
    x = torch.randn(2, 3, 7, 4, dtype=torch.float64)

    y = weft.build(loaded(NODE)).double()(x=x)["y"]

    angle = torch.arange(7)[:, None] * torch.tensor([1.0, 0.1], dtype=torch.float64)
    numbers = torch.view_as_complex(x.unflatten(-1, (2, 2)))
    wanted = torch.view_as_real(numbers * torch.polar(torch.ones_like(angle), angle)).flatten(-2)
    torch.testing.assert_close(y, wanted, rtol=0, atol=1e-6)


def test_a_node_rotates_the_next_positions_while_decoding() -> None:
    """Two positions at once, then single ones."""
    x, model = torch.randn(2, 3, 7, 4), weft.build(loaded(NODE))

    state = model.begin(Capacity(2, 1, 7, x.dtype, x.device))
    steps = [model.step(x=x[:, :, :2], state=state, position=0)["y"]]
    steps += [model.step(x=x[:, :, [t]], state=state, position=t)["y"] for t in range(2, 7)]

    torch.testing.assert_close(torch.cat(steps, 2), model(x=x)["y"])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "how",
    [
        {"position": Rotary(4), "mask": Window(2), "causal": True, "kv_heads": 1},
        {"position": Rotary(4), "kv_heads": 1},
    ],
    ids=["a window", "full"],
)
def test_one_graph_serves_every_size(
    how: dict[str, Any], compiles_once: Callable[[nn.Module], None]
) -> None:
    """Compiled without graph breaks, and not recompiled for other batch sizes or lengths."""
    compiles_once(attention(**how))
