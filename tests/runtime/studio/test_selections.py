"""Selections that reach exactly some records, and the patches that they make shorter."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from weft.runtime.studio.reading import read
from weft.runtime.studio.selections import covering
from weft.runtime.studio.variant import variant
from weft.specs.load import load
from weft.specs.patches.select import read_selection
from weft.specs.patches.sites import Walk
from weft.specs.reader import SHIPPED

BASE = SHIPPED / "models" / "transformer-base.json"
SPEC = load("transformer-base").value()
ATTENTION = ["encoder.*.self_attention", "decoder.*.self_attention", "decoder.*.cross_attention"]
FEED_FORWARD = ["encoder.*.feed_forward", "decoder.*.feed_forward"]


@pytest.mark.parametrize(
    ("paths", "selections"),
    [
        (["head"], ["head"]),
        ([*ATTENTION, *FEED_FORWARD], ["**[use=sublayer@1]"]),
        ([f"{path}/f" for path in ATTENTION], ["**/f[use=attention@2]"]),
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
        return {place for found in walk.found for place in found.paths}

    for some in (paths, paths[::2], paths[1::2], paths[::3], *map(list, pairwise(paths))):
        assert reached(covering(value, some)) == reached(some)


def test_one_key_of_several_is_joined_where_it_changes_alike() -> None:
    """Both layers get another order, and one of them another dropout, too."""
    value = json.loads(BASE.read_text())
    for layer in ("encoder_layer", "decoder_layer"):
        value["blocks"][layer]["nodes"]["feed_forward"]["params"]["order"] = "pre"
    value["blocks"]["encoder_layer"]["nodes"]["feed_forward"]["params"]["dropout"] = 0.3
    old, new = read(BASE.read_text(), str(BASE)), read(json.dumps(value), str(BASE))

    _, made = variant(old, new, "transformer-base", "mine")

    assert made["patch"] == [
        {"select": "**.feed_forward", "set": {"params.order": "pre"}},
        {"select": "encoder.*.feed_forward", "set": {"params.dropout": 0.3}},
    ]


def test_changes_that_always_come_together_are_one_patch() -> None:
    """Two keys of the same nodes."""
    value = json.loads(BASE.read_text())
    for layer in ("encoder_layer", "decoder_layer"):
        record = value["blocks"][layer]["nodes"]["feed_forward"]
        record["params"] |= {"order": "pre", "dropout": 0.3}
    old, new = read(BASE.read_text(), str(BASE)), read(json.dumps(value), str(BASE))

    _, made = variant(old, new, "transformer-base", "mine")

    assert made["patch"] == [
        {"select": "**.feed_forward", "set": {"params.dropout": 0.3, "params.order": "pre"}}
    ]
