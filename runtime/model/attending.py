"""What a model attends to: the attention weights of sentences, and alignments from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..analysis.alignment import Alignment, aligned, check_inputs
from ..analysis.attention_weights import AttentionMaps, maps_of, refuse_other_length

if TYPE_CHECKING:
    from torch import nn

    from ...graphs.ir.graph import Graph
    from ..decode.translate import Translator


def attention_of(
    module: nn.Module,
    graph: Graph,
    reader: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
) -> list[AttentionMaps]:
    """Return the attention weights of every head; see `Model.attention`.

    Raises:
        InputError: the lists differ in length, or a source is empty.
    """
    check_inputs(graph)
    return maps_of(module, (reader.source, reader.target), sources, targets)


def alignments_of(
    module: nn.Module,
    graph: Graph,
    reader: Translator,
    sources: Sequence[str],
    targets: Sequence[str],
) -> list[Alignment]:
    """Return the source token that each target token is aligned to; see `Model.align`.

    Raises:
        InputError: the lists differ in length, or no attention reads the source.
    """
    reads, writes = reader.source, reader.target
    refuse_other_length(sources, targets)
    pairs = list(zip(reads.encode_many(sources), writes.encode_many(targets), strict=True))
    cleaned = [pair if pair[0] else ([], []) for pair in pairs]
    filled = [pair for pair in cleaned if pair[0]]
    alignments = iter(aligned(module, graph, (reads, writes), filled))
    return [
        Alignment(
            tuple(reads.pieces(source)),
            tuple(writes.pieces(target)),
            next(alignments) if source else [],
        )
        for source, target in cleaned
    ]
