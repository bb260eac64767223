"""Span corruption: the source and the target together give the row back."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from weft.blocks.noise.span_corruption import SPAN_CORRUPTION
from weft.blocks.noise.span_corruption_module import SpanCorruption

pytestmark = pytest.mark.exact

VOCABULARY, SENTINELS = 400, 100


def rows(*lengths: int, width: int) -> Tensor:
    """Return rows of so many words, each followed by the end token and padding."""
    ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(4, VOCABULARY - SENTINELS, (length,))
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
        if one >= VOCABULARY - SENTINELS:
            found[one] = []
        else:
            found[[*found][-1]].append(one)
    return found


@pytest.mark.parametrize("rate", [0.05, 0.15, 0.5, 0.9])
@pytest.mark.parametrize("span", [1.0, 3.0, 8.0])
def test_spans_in_place_of_their_sentinels_give_the_row_back(rate: float, span: float) -> None:
    """For every length, and with the numbers of tokens and spans of the original code."""
    torch.manual_seed(2)
    lengths = range(41)
    ids = rows(*lengths, width=41)

    source, target = SpanCorruption(VOCABULARY, rate, span, SENTINELS)(ids)

    assert source.shape == target.shape == ids.shape
    for row, length in enumerate(lengths):
        spans = spans_of(words(target[row]))
        assert [*spans] == [VOCABULARY - 1 - n for n in range(len(spans))]
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


def test_a_row_without_an_end_fits_too() -> None:
    """As after cropping: as many words as positions, half of them in spans of one."""
    ids = rows(20, 20, width=20)

    source, target = SpanCorruption(VOCABULARY, 0.5, 1.0, SENTINELS)(ids)

    for row in range(2):
        spans = spans_of(words(target[row]))
        assert len(spans) == 10
        assert [w for one in words(source[row]) for w in spans.get(one, [one])] == words(ids[row])
    assert not (source == 1).any()


def test_all_divisions_into_spans_are_as_likely() -> None:
    """Three of six words go in two spans: 1 + 2 or 2 + 1; those that stay are divided alike."""
    torch.manual_seed(5)
    ids = torch.tensor([[4, 5, 6, 7, 8, 9, 1]]).expand(20_000, -1)

    source, _ = SpanCorruption(VOCABULARY, 0.5, 1.5, SENTINELS)(ids)

    kinds, counts = source.unique(dim=0, return_counts=True)
    assert len(kinds) == 4
    assert counts.tolist() == pytest.approx([5000] * 4, abs=300)


def test_the_number_of_spans_is_limited_by_the_sentinels() -> None:
    """Longer rows get longer spans."""
    ids = rows(100, width=101)

    _, target = SpanCorruption(VOCABULARY, 0.4, 1.0, 5)(ids)

    assert len(spans_of(words(target[0]))) == 5


def test_sentinels_are_added_to_the_vocabulary() -> None:
    """So no sentinel is a piece of the tokenizer: of T5's 32,000 pieces, the first is 32,099."""
    params = SPAN_CORRUPTION.params()

    arguments = SPAN_CORRUPTION.arguments(params, {"v": 32_000})
    source, _ = SpanCorruption(**arguments)(rows(20, width=21))

    assert str(SPAN_CORRUPTION.signature(params, frozenset()).outputs[0].type).startswith(
        "ids:v+100"
    )
    assert source.max() == 32_099


def test_ids_outside_the_vocabulary_are_refused() -> None:
    """The end token must be an id of the tokenizer."""
    params = SPAN_CORRUPTION.params(end=50)

    with pytest.raises(ValueError, match="end is 50, but there are only 50 ids"):
        SPAN_CORRUPTION.arguments(params, {"v": 50})
