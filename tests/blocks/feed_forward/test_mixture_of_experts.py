"""Mixture of experts against a loop over positions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from weft.blocks.feed_forward.mixture_of_experts import MIXTURE_OF_EXPERTS
from weft.blocks.feed_forward.mixture_of_experts_module import MixtureOfExperts


def drawn(
    top_k: int, capacity: float = 1.25, experts: int = 4, *, gated: bool = False
) -> MixtureOfExperts:
    """Return a mixture of experts with random weights, in float64."""
    generator = torch.Generator().manual_seed(1)
    mixture = MixtureOfExperts(8, experts, 12, top_k, capacity, gated=gated).double()
    with torch.no_grad():
        for weight in mixture.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    return mixture


def expert(mixture: MixtureOfExperts, index: int, x_D: Tensor) -> Tensor:
    """Return the output of one expert for one position."""
    assert mixture.inner_bias is not None
    assert mixture.outer_bias is not None
    hidden = F.linear(x_D, mixture.inner[index].T, mixture.inner_bias[index])
    if mixture.gate is None:
        hidden = F.relu(hidden)
    else:
        assert mixture.gate_bias is not None
        hidden *= F.relu(F.linear(x_D, mixture.gate[index].T, mixture.gate_bias[index]))
    return F.linear(hidden, mixture.outer[index].T, mixture.outer_bias[index])


def by_loop(
    mixture: MixtureOfExperts, x_ND: Tensor, most: float = math.inf
) -> tuple[Tensor, Tensor]:
    """Assign the first choices of all positions, then the second choices, up to the capacity."""
    y, taken, k = torch.zeros_like(x_ND), [0] * mixture.experts, mixture.top_k
    p_NE = (x_ND @ mixture.router.weight.T).softmax(-1)
    for choice in range(k):
        for n, p_E in enumerate(p_NE):
            ranked = p_E.argsort(descending=True)[:k]
            index = int(ranked[choice])
            taken[index] += 1
            if taken[index] <= most:
                whole = p_E[ranked].sum() if k > 1 else 1.0
                y[n] += p_E[index] / whole * expert(mixture, index, x_ND[n])
    share_E = torch.tensor(taken) / (k * len(x_ND))
    return y, mixture.experts * (share_E * p_NE.mean(0)).sum()


@pytest.mark.parametrize(("top_k", "gated"), [(1, False), (2, True), (2, False), (4, False)])
def test_evaluation_is_the_loop_that_drops_nothing(top_k: int, gated: bool) -> None:
    """Each position separately, through its most probable experts."""
    mixture = drawn(top_k, gated=gated).eval()
    x = torch.randn(3, 5, 8, dtype=torch.float64)

    y, balance, *_ = mixture(x)
    wanted, even = by_loop(mixture, x.flatten(0, 1))

    torch.testing.assert_close(y.flatten(0, 1), wanted)
    torch.testing.assert_close(balance, even)


@pytest.mark.parametrize("top_k", [1, 2])
def test_training_drops_positions_past_the_capacity(top_k: int) -> None:
    """An expert takes its even share times the capacity factor, rounded up, in order."""
    mixture, x = drawn(top_k, capacity=0.7), torch.randn(3, 5, 8, dtype=torch.float64)

    y, balance, *_ = mixture(x)
    most = math.ceil(0.7 * top_k * 15 / 4)
    wanted, even = by_loop(mixture, x.flatten(0, 1), most)

    torch.testing.assert_close(y.flatten(0, 1), wanted)
    torch.testing.assert_close(balance, even)
    assert not torch.allclose(wanted, by_loop(mixture, x.flatten(0, 1))[0])


@pytest.mark.parametrize(
    "options",
    [
        {"scores": "sigmoid"},
        {"scores": "sigmoid", "renormalize": False, "scaling": 2.5},
        {"renormalize": False},
        {"router_bias": True},
        {"choice_bias": True},
        {"groups": 3, "top_groups": 2},
        {"groups": 3, "top_groups": 2, "group_score": "max", "choice_bias": True},
        {"scores": "sigmoid", "groups": 2, "top_groups": 1, "choice_bias": True, "scaling": 0.5},
    ],
)
def test_a_position_goes_where_the_router_says(options: dict[str, Any]) -> None:
    """Scores, choice and weights of each position in plain Python, by section 2.1.2 of V3."""
    mixture = MixtureOfExperts(8, 6, 12, 2, **options).double().eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in mixture.parameters():
            weight.copy_(0.5 * torch.randn(weight.shape, generator=generator))
    x = torch.randn(1, 7, 8, dtype=torch.float64, generator=generator)

    y, _, logits, chosen = mixture(x)

    size = 6 // options.get("groups", 1)
    for n in range(7):
        z = F.linear(x[0, n], mixture.router.weight, mixture.router.bias).tolist()
        exps = [math.exp(value) for value in z]
        scores = [e / sum(exps) for e in exps]
        if options.get("scores") == "sigmoid":
            scores = [1 / (1 + math.exp(-value)) for value in z]
        added = mixture.choice_bias.tolist() if mixture.choice_bias is not None else [0.0] * 6
        choice = [score + more for score, more in zip(scores, added, strict=True)]
        groups = [sorted(choice[g : g + size], reverse=True) for g in range(0, 6, size)]
        best = 1 if options.get("group_score") == "max" else 2
        ranked = sorted(range(len(groups)), key=lambda g: -sum(groups[g][:best]))
        open_groups = ranked[: options.get("top_groups", 1)]
        experts = [e for e in range(6) if e // size in open_groups]
        two = sorted(experts, key=lambda e: -choice[e])[:2]
        weights = [scores[e] for e in two]
        if options.get("renormalize", True):
            weights = [weight / sum(weights) for weight in weights]
        wanted = sum(
            options.get("scaling", 1.0) * weight * expert(mixture, e, x[0, n])
            for weight, e in zip(weights, two, strict=True)
        )
        torch.testing.assert_close(y[0, n], wanted)
        torch.testing.assert_close(logits[0, n].tolist(), z)
        assert [e for e in range(6) if chosen[0, n, e]] == sorted(two)


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        ({"experts": 6, "groups": 4}, "6 experts are not divisible into 4 groups"),
        ({"experts": 6, "groups": 2, "top_groups": 3}, "top_groups is 3, but there are 2"),
        ({"experts": 6, "groups": 3, "top_k": 3}, "top_k is 3, but 1 groups have 2 experts"),
        ({"experts": 3, "groups": 3, "top_k": 1}, "each group has one expert"),
        ({"experts": 3, "top_k": 4}, "top_k is 4, but there are 3 experts"),
    ],
)
def test_a_router_that_cannot_choose_is_refused(params: dict[str, Any], problem: str) -> None:
    """Each message has a way out."""
    block = MIXTURE_OF_EXPERTS
    with pytest.raises(ValueError, match=problem) as error:
        block.arguments(block.params(d_ff=4, **params), {"d_model": 8})

    assert len(error.value.args) == 2


@pytest.mark.parametrize("training", [False, True])
def test_masked_positions_take_no_capacity_and_do_not_count(*, training: bool) -> None:
    """Outputs, dropping and balance depend on unmasked positions only."""
    mixture, x = drawn(2, capacity=0.7).train(training), torch.randn(1, 9, 8, dtype=torch.float64)
    mask = torch.tensor([[True, False, True, True, False, True, True, False, True]])

    y, balance, *_ = mixture(x, mask)
    alone, even, *_ = mixture(x[mask][None])

    torch.testing.assert_close(y[mask][None], alone)
    torch.testing.assert_close(balance, even)
    assert not y[~mask].any()


def test_balance_is_one_where_all_experts_are_alike_and_all_where_one_does_everything() -> None:
    """By hand: E * sum of 1/E * 1/E is 1; if one expert has every choice and probability 1, E."""
    mixture, x = drawn(1), torch.ones(1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        mixture.router.weight.zero_()
    assert mixture(x)[1].item() == pytest.approx(1.0)
    with torch.no_grad():
        mixture.router.weight[2] = 100.0
    assert mixture(x)[1].item() == pytest.approx(4.0)


def test_the_router_learns_from_outputs_and_balance() -> None:
    """Also with one expert per position, whose output is weighted by its probability."""
    mixture, x = drawn(1), torch.randn(2, 6, 8, dtype=torch.float64)

    for value in (mixture(x)[0].sum(), mixture(x)[1]):
        [gradient] = torch.autograd.grad(value, mixture.router.weight)
        assert gradient.abs().max() > 1e-4


@pytest.mark.parametrize("d_ff", [12, 16])
def test_half_precision_gradients_are_near_single_precision(d_ff: int) -> None:
    """For the grouped kernel (widths divisible by eight) and for the loop."""
    full = MixtureOfExperts(8, 3, d_ff, 2)
    full.initialize(torch.Generator().manual_seed(1))
    half = MixtureOfExperts(8, 3, d_ff, 2)
    half.load_state_dict(full.state_dict())
    half.bfloat16()
    with torch.no_grad():  # the same choices in both precisions, with a clear margin
        for mixture in (full, half):
            mixture.router.weight.zero_()
            mixture.router.weight[0, 0], mixture.router.weight[1, 1] = 4.0, 2.0
    x = torch.rand(2, 9, 8, generator=torch.Generator().manual_seed(2)).bfloat16() + 0.5
    full, half = full.eval(), half.eval()

    full(x.float())[0].square().sum().backward()
    half(x)[0].square().sum().backward()

    for name, weight in full.named_parameters():
        wanted, given = weight.grad, half.get_parameter(name).grad
        assert wanted is not None
        assert given is not None
        scale = wanted.abs().max().item()
        torch.testing.assert_close(given.float(), wanted, rtol=0.05, atol=0.05 * scale, msg=name)
