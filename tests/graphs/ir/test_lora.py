"""Low-rank adaptation of the linear maps of a block, Hu et al. 2022, section 4.1."""

from __future__ import annotations

import pytest
from weft.graphs.ir.lora import Adaptable, LoraSettings, without_lora

MAPS = ("query", "key", "")
WEIGHTS = {"query.weight": (16, 8), "key.weight": (4, 8), "weight": (3, 5)}


def test_the_product_is_multiplied_by_alpha_over_rank() -> None:
    """Section 4.1: the change is scaled by alpha / r."""
    assert LoraSettings(rank=4, alpha=16.0).factor == 4.0


def test_the_matrices_have_the_inputs_and_the_outputs_of_their_map() -> None:
    """A is [rank, inputs] and B is [outputs, rank]; the block itself has no prefix."""
    assert LoraSettings(rank=2, maps=("query", "")).weights(MAPS, WEIGHTS) == {
        "query.lora.a.weight": (2, 8),
        "query.lora.b.weight": (16, 2),
        "lora.a.weight": (2, 5),
        "lora.b.weight": (3, 2),
    }


def test_all_maps_get_matrices_by_default() -> None:
    """Two for each map."""
    assert len(LoraSettings(rank=1).weights(MAPS, WEIGHTS)) == 6


def test_the_block_knows_nothing_of_lora() -> None:
    """Its constructor gets the other arguments."""
    params = Adaptable(lora=LoraSettings(rank=2, maps=("key",)))

    assert without_lora(params, {"d_out": 4, "lora": params.lora}, MAPS) == {"d_out": 4}


@pytest.mark.parametrize(
    ("maps", "help_"),
    [(MAPS, "did you mean 'query'"), (("output",), "known: output"), ((), "remove")],
)
def test_an_unknown_map_is_refused(maps: tuple[str, ...], help_: str) -> None:
    """With the nearest name, or those that exist."""
    params = Adaptable(lora=LoraSettings(rank=2, maps=("qeury",)))

    with pytest.raises(ValueError, match="names the linear map 'qeury'") as caught:
        without_lora(params, {}, maps)
    assert help_ in str(caught.value.args[1])
