"""Word alignment from attention: the source token that each target token comes from.

The alignment uses the last attention of the decoder that reads the source, averaged over
heads: the row that predicts a target token, and in it the source token with the largest
weight.  The end of the source is excluded, because heads attend to it when they find nothing.

A lexicon counts which target tokens are aligned with each source token of given pairs.

Axes: B pairs, H heads, T positions of the target, S positions of the source.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from torch import nn

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..data.symbols import Vocabulary
from ..decode.inputs import longest_source, positions_of
from .attention_weights import forced, recording, refuse_other_length, what_reads_what

_ROWS = 32
"""Pairs per batch."""

Pairs = list[tuple[int, int]]
"""Aligned pairs of a source token and a target token, counted from 0."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """A pair of sentences with its alignment."""

    source: tuple[str, ...]
    """Pieces of the source."""
    target: tuple[str, ...]
    """Pieces of the target."""
    pairs: Pairs


def alignments_of(
    module: nn.Module,
    graph: Graph,
    tokenizers: tuple[Vocabulary, Vocabulary],
    sources: Sequence[str],
    targets: Sequence[str],
) -> list[Alignment]:
    """Return the source token that each target token is aligned to.

    Args:
        module: as for `aligned`.
        graph: the graph that it was built from.
        tokenizers: of the source and of the target.
        sources: sentences; the alignment of an empty one is empty.
        targets: the decoder's input for each.

    Raises:
        InputError: the lists differ in length, or no attention reads the source.
    """
    reads, writes = tokenizers
    refuse_other_length(sources, targets)
    pairs = list(zip(reads.encode_many(sources), writes.encode_many(targets), strict=True))
    cleaned = [pair if pair[0] else ([], []) for pair in pairs]
    filled = [pair for pair in cleaned if pair[0]]
    alignments = iter(aligned(module, graph, tokenizers, filled))
    return [
        Alignment(
            tuple(reads.pieces(source)),
            tuple(writes.pieces(target)),
            next(alignments) if source else [],
        )
        for source, target in cleaned
    ]


def aligned(
    model: nn.Module,
    graph: Graph,
    tokenizers: tuple[Vocabulary, Vocabulary],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    attention: str | None = None,
) -> list[Pairs]:
    """Return the aligned tokens of each pair of sentences.

    Every target token occurs exactly once, in order; a source token may occur any number of times.

    Args:
        model: a model with the inputs `source`, `source_mask` and `target`.
        graph: the graph that it was built from.
        tokenizers: of the source and of the target.
        pairs: ids of source and target, without begin and end tokens; none empty.
        attention: path of the attention to use; default: the last that reads the source.

    Raises:
        InputError: there is no such attention, or the model has other inputs.

    Source: Garg et al. 2019, section 4.1, with the last layer instead of the penultimate.
    """
    path = reading_source(graph, model) if attention is None else attention
    check_inputs(graph)
    alignments: list[Pairs] = []
    for start in range(0, len(pairs), _ROWS):
        part = pairs[start : start + _ROWS]
        with recording(model, [path]) as maps:
            forced(model, tokenizers, part)
        # Of a layer that runs several times, use the last run.
        runs = [name for name in maps if name.partition(" ")[0] == path]
        if not runs:
            raise InputError(
                f"no attention '{path}' was run",
                location=graph.source,
                help="run 'weft show' for a list of blocks",
            )
        mean_BTS = maps[runs[-1]].float().mean(1)
        for weights_TS, (source, target) in zip(mean_BTS, part, strict=True):
            best = weights_TS[: len(target), : len(source)].argmax(-1).tolist()
            alignments.append([(position, number) for number, position in enumerate(best)])
    return alignments


def reading_source(graph: Graph, model: nn.Module) -> str:
    """Return the path of the last attention by which the target reads the source.

    Raises:
        InputError: there is none.
    """
    sequences = what_reads_what(graph)
    paths: list[str] = [
        path
        for path, module in model.named_modules()
        if sequences.get(path) == ("target", "source")
        and hasattr(type(module), "attention_weights")
    ]
    if not paths:
        raise InputError(
            "alignment needs an attention that reads the source, and the model has none",
            location=graph.source,
            help="run 'weft show' for a list of its blocks",
        )
    return paths[-1]


def check_inputs(graph: Graph) -> None:
    """Raise unless a model's inputs are a source and a target.

    Raises:
        InputError: it has other inputs.
    """
    more = graph.inputs.keys() - {"source", "source_mask", "target"}
    if more or not {"source", "target"} <= graph.inputs.keys():
        raise InputError(
            "attention weights need a model whose inputs are 'source' and 'target'",
            location=f"{graph.source}#/inputs",
            help=f"its inputs are {', '.join(graph.inputs)}",
        )


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
