"""Noise of ids: corruption, spans, and the structure of a text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.blocks.kernels.noise import generator_for, masked_at_random
from weft.blocks.noise.corrupt import DROP_TOKENS, MASK_TOKENS, REPLACE_TOKENS
from weft.blocks.noise.corrupt_module import DropTokens, MaskTokens, ReplaceTokens, SampleTokens
from weft.blocks.noise.span_corruption import SPAN_CORRUPTION
from weft.blocks.noise.span_corruption_module import SpanCorruption
from weft.blocks.noise.structure import PREFIX_MASK
from weft.blocks.noise.structure_module import EmptyText, LengthClass, NotPadding, PrefixMask

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


SPAN_CORRUPTION_VOCABULARY, SENTINELS = 400, 100


def rows(*lengths: int, width: int) -> Tensor:
    """Return rows of so many words, each followed by the end token and padding."""
    ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(4, SPAN_CORRUPTION_VOCABULARY - SENTINELS, (length,))
        ids[row, length : length + 1] = 1
    return ids


def words(row: Tensor) -> list[int]:
    """Return the ids before the end token, which only padding follows."""
    ids = row.tolist()
    length = ids.index(1) if 1 in ids else len(ids)
    assert set(ids[length + 1 :]) <= {0}
    return ids[:length]


def spans_of(target: list[int]) -> dict[int, list[int]]:
    """Return each sentinel of a target with the ids after it, in order."""
    found: dict[int, list[int]] = {}
    for one in target:
        if one >= SPAN_CORRUPTION_VOCABULARY - SENTINELS:
            found[one] = []
        else:
            found[[*found][-1]].append(one)
    return found


@pytest.mark.exact
@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 0.9])
@pytest.mark.parametrize("span", [1.0, 3.0, 8.0])
def test_spans_in_place_of_their_sentinels_give_the_row_back(rate: float, span: float) -> None:
    """For every length, and with the numbers of tokens and spans of the original code."""
    torch.manual_seed(2)
    lengths = range(41)
    ids = rows(*lengths, width=41)

    source, target = SpanCorruption(SPAN_CORRUPTION_VOCABULARY, rate, span, SENTINELS)(ids)

    assert source.shape == target.shape == ids.shape
    for row, length in enumerate(lengths):
        spans = spans_of(words(target[row]))
        assert [*spans] == [SPAN_CORRUPTION_VOCABULARY - 1 - n for n in range(len(spans))]
        restored = [word for one in words(source[row]) for word in spans.get(one, [one])]
        assert restored == words(ids[row])
        assert all(spans.values())
        removed = sum(map(len, spans.values()))
        wanted = min(max(round(length * rate), 1), max(length - 1, 0))
        assert removed == wanted
        count = min(max(round(wanted / span), 1), wanted, length - wanted)
        assert len(spans) == count
        for one in (source, target):
            assert (one[row] == 1).sum() == 1


@pytest.mark.exact
def test_a_row_without_an_end_fits_too() -> None:
    """As after cropping: as many words as positions, half of them in spans of one."""
    ids = rows(20, 20, width=20)

    source, target = SpanCorruption(SPAN_CORRUPTION_VOCABULARY, 0.5, 1.0, SENTINELS)(ids)

    for row in range(2):
        spans = spans_of(words(target[row]))
        assert len(spans) == 10
        assert [w for one in words(source[row]) for w in spans.get(one, [one])] == words(ids[row])
    assert not (source == 1).any()


@pytest.mark.exact
def test_all_divisions_into_spans_are_as_likely() -> None:
    """Three of six words go in two spans: 1 + 2 or 2 + 1; those that stay are divided alike."""
    torch.manual_seed(5)
    ids = torch.tensor([[4, 5, 6, 7, 8, 9, 1]]).expand(20_000, -1)

    source, _ = SpanCorruption(SPAN_CORRUPTION_VOCABULARY, 0.5, 1.5, SENTINELS)(ids)

    kinds, counts = source.unique(dim=0, return_counts=True)
    assert len(kinds) == 4
    assert counts.tolist() == pytest.approx([5000] * 4, abs=300)


@pytest.mark.exact
def test_the_number_of_spans_is_limited_by_the_sentinels() -> None:
    """Longer rows get longer spans."""
    ids = rows(100, width=101)

    _, target = SpanCorruption(SPAN_CORRUPTION_VOCABULARY, 0.4, 1.0, 5)(ids)

    assert len(spans_of(words(target[0]))) == 5


@pytest.mark.exact
def test_sentinels_are_added_to_the_vocabulary() -> None:
    """So no sentinel is a piece of the tokenizer: of T5's 32,000 pieces, the first is 32,099."""
    params = SPAN_CORRUPTION.params()

    arguments = SPAN_CORRUPTION.arguments(params, {"v": 32_000})
    source, _ = SpanCorruption(**arguments)(rows(20, width=21))

    assert str(SPAN_CORRUPTION.signature(params, frozenset()).outputs[0].type).startswith(
        "ids:v+100"
    )
    assert source.max() == 32_099


@pytest.mark.exact
def test_ids_outside_the_vocabulary_are_refused() -> None:
    """The end token must be an id of the tokenizer."""
    params = SPAN_CORRUPTION.params(end=50)

    with pytest.raises(ValueError, match="end is 50, but there are only 50 ids"):
        SPAN_CORRUPTION.arguments(params, {"v": 50})


STRUCTURE_IDS = torch.tensor([[5, 6, 7, 1, 0], [8, 9, 1, 0, 0]])


@pytest.mark.exact
def test_padding_is_one_id() -> None:
    """True elsewhere."""
    assert NotPadding()(STRUCTURE_IDS).sum(1).tolist() == [4, 3]
    assert NotPadding(1)(STRUCTURE_IDS).sum(1).tolist() == [4, 4]


@pytest.mark.exact
def test_an_empty_text_is_the_end_token() -> None:
    """One for each row, as a tokenizer encodes an empty line."""
    assert EmptyText(1)(STRUCTURE_IDS).tolist() == [[1], [1]]


@pytest.mark.exact
def test_the_class_of_a_length_counts_from_one() -> None:
    """An empty row is of the first class, and a row that is too long of the last."""
    mask = torch.arange(6) < torch.tensor([[0], [1], [3], [6]])

    assert LengthClass(4)(mask).tolist() == [0, 0, 2, 3]


@pytest.mark.exact
def test_a_prefix_ends_with_the_first_separator() -> None:
    """Which belongs to it; a row without a separator has no prefix, and padding is in neither."""
    ids = torch.tensor([[5, 4, 6, 4, 1, 0], [5, 6, 7, 8, 1, 0], [4, 5, 1, 0, 0, 0]])

    prefix, rest = PrefixMask(4)(ids, ids != 0)

    assert prefix.int().tolist() == [[1, 1, 0, 0, 0, 0], [0] * 6, [1, 0, 0, 0, 0, 0]]
    assert rest.int().tolist() == [[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]
    assert torch.equal(PrefixMask(4)(ids)[0], prefix)
    assert torch.equal(PrefixMask(4)(ids)[1], ~prefix)


@pytest.mark.exact
def test_ids_of_a_text_outside_the_vocabulary_are_refused() -> None:
    """With the size of the vocabulary."""
    with pytest.raises(ValueError, match="separator is 11, but there are only 11 ids") as caught:
        PREFIX_MASK.arguments(PREFIX_MASK.params(separator=11), {"v": 11})
    assert caught.value.args[1] == "use an id below 11"
