"""Selections that reach exactly some records."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from weft.extensions.editor.studio.covering import covering
from weft.specs.load import load
from weft.specs.patches.selections import read_selection
from weft.specs.patches.walk import Walk

SPEC = load("transformer-base").value()
ATTENTION = ["encoder.*.self_attention", "decoder.*.self_attention", "decoder.*.cross_attention"]
FEED_FORWARD = ["encoder.*.feed_forward", "decoder.*.feed_forward"]


@pytest.mark.parametrize(
    ("paths", "selections"),
    [
        (["head"], ["head"]),
        ([*ATTENTION, *FEED_FORWARD], ["**[use=sublayer@1]"]),
        ([f"{path}/f" for path in ATTENTION], ["**/f[use=attention@1]"]),
        (ATTENTION[:2], ["**.self_attention"]),
        (ATTENTION[1:], ["decoder.*.*_attention"]),
        (FEED_FORWARD, ["**.feed_forward"]),
        (["source_position", "target_position"], ["*_position"]),
        (["source_position", "head"], ["source_position", "head"]),
        (["/", "/blocks/encoder_layer"], ["/", "/blocks/encoder_layer"]),
        # Two of the five, and one more: no pattern reaches exactly these.
        ([*FEED_FORWARD, "head"], ["**.feed_forward", "head"]),
    ],
)
def test_few_selections_reach_what_the_paths_reach(paths: list[str], selections: list[str]) -> None:
    """And nothing else."""
    assert covering(SPEC, paths) == selections


@pytest.mark.parametrize("name", ["transformer-base", "gemma2", "whisper", "moe-transformer"])
def test_selections_reach_exactly_the_same_records(name: str) -> None:
    """For every pair and every other record of a spec, as the patches themselves select them."""
    value = load(name).value()
    paths = [path for path in Walk(value, []).paths.values() if ": " not in path]

    def reached(selections: list[str]) -> set[Any]:
        walk = Walk(value, [read_selection(one) for one in selections])
        return {place for found in walk.matches for place in found.paths}

    for some in (paths, paths[::2], paths[1::2], paths[::3], *map(list, pairwise(paths))):
        assert reached(covering(value, some)) == reached(some)
