"""Pictures of the attention weights of a few pairs of sentences, for the trackers of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph, feeds_of
from ...specs.findings import InputError
from ..data.columns.column import Column
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


def pictures_of(
    graph: Graph, columns: Mapping[str, Column], folder: Path, most: int
) -> Callable[[nn.Module, Sequence[tuple[Any, Any]]], list[Path]] | None:
    """Return a function that draws the predictions of an objective's model; None if it cannot be.

    The function takes the module of the objective and rows with their predictions, and writes PNG
    files, which replace those of its last call.

    Args:
        graph: graph of the objective.
        columns: prepared columns by name.
        folder: folder of the files; made when it is needed.
        most: number of pictures.
    """
    deploy = graph.deploy
    if deploy is None or not most:
        return None
    feeds, model_graph = feeds_of(graph), deployed_graph(graph)
    source, target = (columns.get(feeds.get(port, "")) for port in ("source", "target"))
    reads, writes = getattr(source, "vocabulary", None), getattr(target, "vocabulary", None)
    if reads is None or writes is None:
        return None

    def draw(module: nn.Module, answers: Sequence[tuple[Any, Any]]) -> list[Path]:
        texts = [(row[feeds["source"]], answer) for row, answer in answers]
        pairs = [pair for pair in texts if all(isinstance(text, str) for text in pair)]
        folder.mkdir(parents=True, exist_ok=True)
        model = module.get_submodule(deploy)
        return attention_pictures(model, model_graph, (reads, writes), pairs, folder, most=most)

    return draw
