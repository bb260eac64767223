"""Ids, masks and values without a gradient."""

from __future__ import annotations

import pytest
import torch
from weft.blocks.noise.structure import PREFIX_MASK
from weft.blocks.noise.structure_module import (
    EmptyText,
    LengthClass,
    NotPadding,
    PrefixMask,
)

pytestmark = pytest.mark.exact

IDS = torch.tensor([[5, 6, 7, 1, 0], [8, 9, 1, 0, 0]])


def test_padding_is_one_id() -> None:
    """True elsewhere."""
    assert NotPadding()(IDS).sum(1).tolist() == [4, 3]
    assert NotPadding(1)(IDS).sum(1).tolist() == [4, 4]


def test_an_empty_text_is_the_end_token() -> None:
    """One for each row, as a tokenizer encodes an empty line."""
    assert EmptyText(1)(IDS).tolist() == [[1], [1]]


def test_the_class_of_a_length_counts_from_one() -> None:
    """An empty row is of the first class, and a row that is too long of the last."""
    mask = torch.arange(6) < torch.tensor([[0], [1], [3], [6]])

    assert LengthClass(4)(mask).tolist() == [0, 0, 2, 3]


def test_a_prefix_ends_with_the_first_separator() -> None:
    """Which belongs to it; a row without a separator has no prefix, and padding is in neither."""
    ids = torch.tensor([[5, 4, 6, 4, 1, 0], [5, 6, 7, 8, 1, 0], [4, 5, 1, 0, 0, 0]])

    prefix, rest = PrefixMask(4)(ids, ids != 0)

    assert prefix.int().tolist() == [[1, 1, 0, 0, 0, 0], [0] * 6, [1, 0, 0, 0, 0, 0]]
    assert rest.int().tolist() == [[0, 0, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]
    assert torch.equal(PrefixMask(4)(ids)[0], prefix)
    assert torch.equal(PrefixMask(4)(ids)[1], ~prefix)


def test_ids_outside_the_vocabulary_are_refused() -> None:
    """With the size of the vocabulary."""
    with pytest.raises(ValueError, match="separator is 11, but there are only 11 ids") as caught:
        PREFIX_MASK.arguments(PREFIX_MASK.params(separator=11), {"v": 11})
    assert caught.value.args[1] == "use an id below 11"
