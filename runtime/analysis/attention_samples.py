"""Pictures of the attention weights of a few pairs of sentences, for the trackers of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..data.symbols import Vocabulary
from .attention_page import groups_of, write_attention
from .attention_weights import maps_of_ids

MOST_PIECES = 40
"""Maximum pieces of a sentence; longer pairs are left out, because their maps are not legible."""


def attention_pictures(
    model: nn.Module,
    graph: Graph,
    tokenizers: tuple[Vocabulary, Vocabulary],
    pairs: Sequence[tuple[str, str]],
    folder: Path,
    *,
    most: int = 2,
) -> list[Path]:
    """Write a PNG file for each of the first pairs; return none if the model cannot be drawn.

    Args:
        model: a model with the inputs `source`, `source_mask` and `target`; its mode is restored.
        graph: its graph.
        tokenizers: of the source and of the target.
        pairs: source and target, such as the model's own output.
        folder: existing folder of the files `attention-N.png`.
        most: number of pictures.
    """
    if not {"source", "source_mask", "target"} <= graph.inputs.keys():
        return []
    reads, writes = tokenizers
    paths: list[Path] = []
    for source, target in pairs:
        ids = reads.encode(source), writes.encode(target)
        if not ids[0] or max(map(len, ids)) >= MOST_PIECES:
            continue
        try:
            groups = groups_of(graph, maps_of_ids(model, tokenizers, *ids))
            path = folder / f"attention-{len(paths) + 1}.png"
            paths.append(write_attention(groups, path, source))
        except InputError:  # no attention over sentences, or too many heads for one picture
            return paths
        if len(paths) == most:
            break
    return paths
