"""Fields: params that a block got later change nothing for specs that do not use them."""

from __future__ import annotations

from typing import Annotated

import pytest
from weft.blocks.attention.multi_head import AttentionParams
from weft.blocks.params import LATER, Count, Flag, Params


class Grown(Params):
    """A block's params, two of them added after its first specs."""

    size: Count = 3
    """As ever."""
    odd: Annotated[Flag, LATER] = False
    """Added."""
    reach: Annotated[Count | None, LATER] = None
    """Added too."""


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ({}, {"size": 3}),
        ({"odd": False, "reach": None}, {"size": 3}),
        ({"odd": True}, {"size": 3, "odd": True}),
        ({"size": 4, "reach": 2}, {"size": 4, "reach": 2}),
    ],
)
def test_a_later_param_stands_in_json_only_where_it_does_something(
    written: dict[str, object], kept: dict[str, object]
) -> None:
    """So the full form, and with it the fingerprint, of an old spec is what it was."""
    assert Grown.model_validate(written).model_dump(mode="json") == kept


def test_a_module_is_given_every_param() -> None:
    """Leaving out is for what is written; the constructor gets all, later ones too."""
    assert Grown().model_dump() == {"size": 3, "odd": False, "reach": None}


def test_attention_is_written_as_before_positions_and_windows() -> None:
    """What checkpoints of format 1 hold of an attention block, key for key."""
    known = {"heads", "d_k", "d_v", "causal", "bias", "dropout"}

    assert AttentionParams(heads=2).model_dump(mode="json").keys() == known
