"""Types of the tensors of trees, one set for each decoder.

Axes: B sentences, S words, P pieces and C characters of a word, N labeled spans of a tree,
T symbols of a linearized tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .....plugin import ValueType, parse_type
from ..tetra import TAGS

CHARACTERS = 257
"""Number of character ids: padding and 256 bytes."""
WORDS = {
    "pieces": "ids:vocab[B S P]",
    "pieces_mask": "mask[B S P]",
    "characters": f"ids:{CHARACTERS}[B S C]",
    "characters_mask": "mask[B S C]",
    "mask": "mask[B S]",
    "symbols": "len[B]",
}
"""Types of the tensors of words, and the number of symbols of each tree."""
CHART = {
    **WORDS,
    "first": "pos[B N]",
    "last": "pos[B N]",
    "label": "label:labels[B N]",
    "tags": "label:tags[B S]",
    "binary": "score[B]",
    "known": "mask[B]",
}
TAGGED = {**WORDS, **{name: f"label:{name}[B S]" for name in TAGS}}
SEQUENCE = {"source": "ids:source_vocab[B S]", "target": "ids:target_vocab[B T]"}
_OF = {"chart": CHART, "tags": TAGGED, "sequence": SEQUENCE}
_SIZES = ("vocab", "source_vocab", "target_vocab", "labels", *TAGS)
_UNKNOWN = 1 << 60
_AXES = dict.fromkeys("BSPCNT", "")


def types_of(decoder: str, sizes: Mapping[str, int] | None = None) -> dict[str, ValueType]:
    """Return the type of each tensor of a batch.

    Args:
        decoder: decoder of the trees.
        sizes: numbers of pieces, labels and tags; None leaves them out.
    """
    unknown = dict.fromkeys(_SIZES, _UNKNOWN) if sizes is None else sizes
    types = {name: parse_type(text, unknown, _AXES)[0] for name, text in _OF[decoder].items()}
    return {
        name: replace(type_, size=None) if type_.size == _UNKNOWN else type_
        for name, type_ in types.items()
    }
