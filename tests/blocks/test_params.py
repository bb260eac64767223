"""Params added later do not change the form of specs that do not use them."""

from __future__ import annotations

from typing import Annotated

import pytest
from weft.blocks.attention.multi_head import AttentionParams
from weft.blocks.params import LATER, Count, Flag, Params


class Grown(Params):
    """Params of a block, two of them added after its first release."""

    size: Count = 3
    """Original param."""
    odd: Annotated[Flag, LATER] = False
    """Added later."""
    reach: Annotated[Count | None, LATER] = None
    """Added later, too."""


@pytest.mark.parametrize(
    ("written", "serialized"),
    [
        ({}, {"size": 3}),
        ({"odd": False, "reach": None}, {"size": 3}),
        ({"odd": True}, {"size": 3, "odd": True}),
        ({"size": 4, "reach": 2}, {"size": 4, "reach": 2}),
    ],
)
def test_a_later_param_is_written_only_where_it_has_an_effect(
    written: dict[str, object], serialized: dict[str, object]
) -> None:
    """So the full form and the fingerprint of an old spec do not change."""
    assert Grown.model_validate(written).model_dump(mode="json") == serialized


def test_a_module_is_given_every_param() -> None:
    """Defaults are omitted only in the written form; the constructor gets all params."""
    assert Grown().model_dump() == {"size": 3, "odd": False, "reach": None}


def test_attention_is_written_with_few_params() -> None:
    """Params with their default are omitted, except those that most specs set."""
    known = {"heads", "d_k", "d_v", "causal", "bias", "dropout"}

    assert AttentionParams(heads=2).model_dump(mode="json").keys() == known
