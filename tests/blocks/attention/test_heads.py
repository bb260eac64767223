"""Splitting vectors into heads: sizes that do not fit."""

from __future__ import annotations

import pytest
from weft.blocks.attention.heads import SPLIT_HEADS, SplitHeadsParams


@pytest.mark.parametrize(
    ("width", "d_head", "help_"), [(10**12, 1, f"use {10**12} heads"), (10, 4, "change d_head")]
)
def test_a_width_that_does_not_fit_is_refused_with_a_number_that_does(
    width: int, d_head: int, help_: str
) -> None:
    """However large it is."""
    params = SplitHeadsParams(heads=3, d_head=d_head)

    with pytest.raises(ValueError, match="is not 3 heads") as caught:
        SPLIT_HEADS.arguments(params, {"d_model": width})

    assert caught.value.args[1] == help_
