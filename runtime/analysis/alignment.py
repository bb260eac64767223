"""Alignment: which token of a source each token of its translation comes from.

It is read off the last attention of the decoder that reads the source, its heads
averaged: the row that predicts a token, and in it the token of the source that is read
most.  The end of the source is left out, as heads rest on it when they look for nothing.

Axes: B pairs, H heads, T positions of the target, S positions of the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..data.symbols import Vocabulary
from .attention_weights import forced, recording, what_reads_what

_ROWS = 32
"""Pairs that are read at once."""

Pairs = list[tuple[int, int]]
"""Tokens of the source and of the target that belong together, by number from 0."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """A pair of sentences, and what belongs together in it."""

    source: tuple[str, ...]
    """Pieces of the source."""
    target: tuple[str, ...]
    """Pieces of the target."""
    pairs: Pairs


def aligned(
    model: nn.Module,
    graph: Graph,
    tokenizers: tuple[Vocabulary, Vocabulary],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    attention: str | None = None,
) -> list[Pairs]:
    """Return for each pair of sentences which tokens belong together.

    Every token of a target is there once, in order; a token of the source may come often,
    or never.

    Args:
        model: takes `source`, `source_mask` and `target`.
        graph: of which it was built.
        tokenizers: of the source and of the target.
        pairs: ids of source and target, without beginnings and ends; none empty.
        attention: path of the attention to read; the last that reads the source when None.

    Raises:
        InputError: there is no such attention, or the model takes other inputs.

    Source: Garg et al. 2019, section 4.1, with the last layer for the last but one.
    """
    path = reading_source(graph, model) if attention is None else attention
    check_inputs(graph)
    found: list[Pairs] = []
    for start in range(0, len(pairs), _ROWS):
        part = pairs[start : start + _ROWS]
        with recording(model, [path]) as maps:
            forced(model, tokenizers, part)
        # A layer that runs again has its last say.
        runs = [name for name in maps if name.partition(" ")[0] == path]
        if not runs:
            raise InputError(
                f"no attention '{path}' was run", place=graph.source, help="weft show lists them"
            )
        mean_BTS = maps[runs[-1]].float().mean(1)
        for weights_TS, (source, target) in zip(mean_BTS, part, strict=True):
            best = weights_TS[: len(target), : len(source)].argmax(-1).tolist()
            found.append([(place, number) for number, place in enumerate(best)])
    return found


def reading_source(graph: Graph, model: nn.Module) -> str:
    """Return the path of the last attention by which the target reads the source.

    Raises:
        InputError: there is none.
    """
    known = what_reads_what(graph)
    paths: list[str] = [
        path
        for path, module in model.named_modules()
        if known.get(path) == ("target", "source") and hasattr(module, "attention_weights")
    ]
    if not paths:
        raise InputError(
            "no attention of this model reads the source, so it tells no alignment",
            place=graph.source,
            help="weft show lists its blocks",
        )
    return paths[-1]


def check_inputs(graph: Graph) -> None:
    """Refuse a model that does not read a pair of sentences and nothing else.

    Raises:
        InputError: it takes other inputs.
    """
    more = graph.inputs.keys() - {"source", "source_mask", "target"}
    if more or not {"source", "target"} <= graph.inputs.keys():
        raise InputError(
            "attention is only told of models that read a source and a target",
            place=f"{graph.source}#/inputs",
            help=f"this one has {', '.join(graph.inputs)}",
        )
