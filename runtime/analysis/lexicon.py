"""Count which target tokens the attention of a model aligns with each source token.

The alignment is that of `alignment.py`: the model reads given pairs of sentences, and each target
token is aligned with one source token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from torch import nn

from ...graphs.ir.graph import Graph
from ..data.symbols import Vocabulary
from ..decode.positions import longest_source, positions_of
from .alignment import aligned

LONGEST = 100
"""Pairs with a longer side, in tokens, are not counted: a batch holds the logits of all tokens."""
_AHEAD = 1024
"""Pairs that are sorted by length at a time."""

Ids = tuple[list[int], list[int]]
"""Ids of a source and of its translation, without begin and end tokens."""


def count_aligned(
    model: nn.Module,
    graph: Graph,
    tokenizers: tuple[Vocabulary, Vocabulary],
    pairs: Iterable[Ids],
    callback: Callable[[int], None] = lambda _: None,
) -> Counter[tuple[int, int]]:
    """Return how often each target token was aligned with each source token.

    Args:
        model: a model with the inputs `source`, `source_mask` and `target`.
        graph: the graph that it was built from.
        tokenizers: of the source and of the target.
        pairs: sentences with their translations; empty and long ones are left out.
        callback: called with the number of further pairs that were read.

    Raises:
        InputError: the model has no attention that reads the source, or other inputs.
    """
    longest = longest_source(LONGEST, positions_of(model))
    counts: Counter[tuple[int, int]] = Counter()
    for some in _parts(pairs):
        usable = [pair for pair in some if all(0 < len(side) <= longest for side in pair)]
        usable.sort(key=lambda pair: (len(pair[0]), len(pair[1])))
        for (source, target), places in zip(
            usable, aligned(model, graph, tokenizers, usable), strict=True
        ):
            counts.update((source[position], target[number]) for position, number in places)
        callback(len(some))
    return counts


def _parts(pairs: Iterable[Ids]) -> Iterator[list[Ids]]:
    """Yield the pairs in parts."""
    remaining = iter(pairs)
    while some := list(islice(remaining, _AHEAD)):
        yield some
