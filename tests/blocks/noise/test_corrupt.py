"""Noise on ids: what may change, how often, and that it can be repeated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.noise import generator_for, masked_at_random
from weft.blocks.noise.corrupt import DROP_TOKENS, MASK_TOKENS, REPLACE_TOKENS
from weft.blocks.noise.corrupt_module import DropTokens, MaskTokens, ReplaceTokens, SampleTokens
from weft.blocks.noise.span_corruption_module import SpanCorruption

VOCABULARY = 50
IDS = torch.randint(0, VOCABULARY, (200, 100), generator=torch.Generator().manual_seed(7))
SPECIAL = IDS < 4
WORDS = (~SPECIAL).sum().item()
NOISY: dict[str, Callable[[], nn.Module]] = {
    "mask": lambda: MaskTokens(VOCABULARY),
    "uniform": lambda: MaskTokens(VOCABULARY, "uniform"),
    "drop": lambda: DropTokens(0.2, in_evaluation=True),
    "replace": lambda: ReplaceTokens(VOCABULARY),
    "spans": lambda: SpanCorruption(VOCABULARY, sentinels=20),
}


def share(chosen: Tensor, among: Tensor) -> float:
    """Return the part of true entries among some."""
    return (chosen & among).sum().item() / among.sum().item()


def test_15_percent_are_selected_and_of_these_80_10_10() -> None:
    """Section 3.1 of Devlin et al. 2019, within five standard errors."""
    torch.manual_seed(1)

    noisy, selected = MaskTokens(VOCABULARY)(IDS)

    assert share(selected, ~SPECIAL) == pytest.approx(0.15, abs=0.013)
    masked = noisy == 3
    kept = noisy == IDS
    assert share(masked, selected) == pytest.approx(0.8, abs=0.04)
    # A random token is the old one in one of 46 cases.
    assert share(kept, selected) == pytest.approx(0.1 + 0.1 / 46, abs=0.03)
    assert noisy[selected & ~masked].min() >= 4
    assert torch.equal(noisy[~selected], IDS[~selected])
    assert not (selected & SPECIAL).any()


def test_a_uniform_number_is_that_of_mask_predict_bit_for_bit() -> None:
    """With the same generator; words are the ids from 2 on, all of which are masked."""
    torch.manual_seed(3)
    noisy, selected = MaskTokens(VOCABULARY, "uniform", random=0.0, keep=0.0, first=2)(IDS)

    torch.manual_seed(3)
    words = IDS >= 2
    wanted = masked_at_random(words)

    assert torch.equal(selected, wanted)
    assert torch.equal(noisy, IDS.masked_fill(wanted, 3))
    assert selected.any(1).all()


def test_dropped_tokens_become_one_id() -> None:
    """Only in training by default, as for dropout."""
    torch.manual_seed(1)
    drop = DropTokens(0.2)

    noisy = drop(IDS)

    assert share(noisy == 2, ~SPECIAL) == pytest.approx(0.2, abs=0.015)
    assert torch.equal(noisy[noisy != 2], IDS[noisy != 2])
    assert torch.equal(noisy[SPECIAL], IDS[SPECIAL])
    assert drop.eval()(IDS) is IDS


def test_replaced_tokens_are_other_words() -> None:
    """And the mask tells where; a token drawn to be itself is not replaced."""
    torch.manual_seed(1)

    noisy, replaced = ReplaceTokens(VOCABULARY, 0.3)(IDS)

    assert share(replaced, ~SPECIAL) == pytest.approx(0.3 * 45 / 46, abs=0.017)
    assert torch.equal(replaced, noisy != IDS)
    assert noisy[replaced].min() >= 4
    assert torch.equal(noisy[SPECIAL], IDS[SPECIAL])


def test_sampled_tokens_have_the_probabilities_of_the_model() -> None:
    """100,000 draws from one distribution at temperature 2."""
    torch.manual_seed(1)
    logits = torch.tensor([1.0, -1.0, 0.0, 3.0], requires_grad=True)

    drawn = SampleTokens(2.0)(logits.expand(100_000, 4))

    found = drawn.bincount(minlength=4) / len(drawn)
    torch.testing.assert_close(found, (logits / 2).softmax(-1).detach(), rtol=0, atol=0.01)
    assert not drawn.requires_grad


def test_tokens_are_sampled_where_the_mask_is_true() -> None:
    """The other ids stay."""
    logits = torch.zeros(200, 100, VOCABULARY)
    mask = IDS > 30

    drawn = SampleTokens()(logits, IDS, mask)

    assert torch.equal(drawn[~mask], IDS[~mask])
    assert (drawn != IDS)[mask].float().mean() > 0.9


@pytest.mark.parametrize("make", NOISY.values(), ids=NOISY)
def test_training_draws_from_the_global_generator(make: Callable[[], nn.Module]) -> None:
    """Which the trainer seeds for each micro-batch: one seed, one noise; then other noise."""
    noise = make().train()

    def drawn() -> Any:
        found = noise(IDS)
        return found if isinstance(found, tuple) else (found,)

    torch.manual_seed(4)
    first, later = drawn(), drawn()
    torch.manual_seed(4)

    assert all(map(torch.equal, first, drawn()))
    assert not all(map(torch.equal, first, later))


@pytest.mark.parametrize("make", NOISY.values(), ids=NOISY)
def test_evaluation_always_has_the_same_noise(make: Callable[[], nn.Module]) -> None:
    """For a batch of one shape, without touching the global generator; but it has noise."""
    noise = make().eval()
    state = torch.get_rng_state()

    first, second = noise(IDS), noise(IDS)

    pairs = zip(first, second, strict=True) if isinstance(first, tuple) else [(first, second)]
    assert all(torch.equal(one, other) for one, other in pairs)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(first[0] if isinstance(first, tuple) else first, IDS)


def test_batches_of_other_shapes_have_other_noise() -> None:
    """The seed depends on each size and on their order."""
    shapes = [(2, 3), (3, 2), (6,), (2, 4), (1, 2, 3)]

    seeds = {generator.initial_seed() for shape in shapes if (generator := of(shape)) is not None}

    assert len(seeds) == len(shapes)
    assert generator_for(IDS, training=True) is None


def of(shape: tuple[int, ...]) -> torch.Generator | None:
    """Return the generator of the evaluation of a batch."""
    return generator_for(torch.empty(shape), training=False)


def test_ids_and_parts_that_do_not_fit_are_refused() -> None:
    """With a help text."""
    for block, params, text in (
        (MASK_TOKENS, {"mask_id": 11}, "mask_id is 11, but there are only 11 ids"),
        (MASK_TOKENS, {"random": 0.6, "keep": 0.5}, r"more than 1 together"),
        (DROP_TOKENS, {"drop_id": 12}, "drop_id is 12"),
        (REPLACE_TOKENS, {"first": 11}, "first is 11"),
    ):
        with pytest.raises(ValueError, match=text) as caught:
            block.arguments(block.params(**params), {"v": 11})
        assert len(caught.value.args) == 2
