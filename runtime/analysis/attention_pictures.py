"""Attention weights of every head, as an interactive page or as a picture.

The page is one file without external resources: weights and words are embedded as data and
drawn by a short script; words are never interpreted as markup.

Axes: H heads, T query positions, S key positions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from ...graphs.draw.render import check_suffix
from ...graphs.ir.graph import Graph
from ...graphs.passes.objective import deployed_graph, feeds_of
from ...specs.files import write_beside
from ...specs.findings import InputError
from ..data.columns.column import Column
from ..data.symbols import Vocabulary
from .attention_weights import maps_of_ids, what_reads_what

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from torch import Tensor

    from .attention_weights import AttentionMaps

SUFFIXES = ("html", "png", "svg", "pdf")
_MOST_PANELS = 240
"""Maximum number of panels in one PNG; more would be too small to distinguish."""
_MOST_LABELS = 40
"""Maximum number of pieces that label a panel."""
_LONGEST = 200
"""Maximum positions of a sentence."""


@dataclass(frozen=True, slots=True)
class AttentionHeads:
    """The heads of one attention."""

    path: str
    heads: Tensor
    """Attention weights, [H, T, S]."""


@dataclass(frozen=True, slots=True)
class AttentionGroup:
    """All attentions from one sequence to another."""

    title: str
    """Such as `target reads source`."""
    reads: tuple[str, ...]
    """Pieces at the query positions, from the top."""
    read: tuple[str, ...]
    """Pieces at the key positions, from the left."""
    layers: tuple[AttentionHeads, ...]


def groups_of(graph: Graph, maps: AttentionMaps) -> list[AttentionGroup]:
    """Group the attentions of a pair of sentences by the sequences they connect, in graph order.

    Raises:
        InputError: the model has no attention over complete sentences, or they are too long.
    """
    if max(len(maps.source), len(maps.target)) > _LONGEST:
        raise InputError(
            f"a sentence has more than {_LONGEST} pieces",
            help="use a part of it; larger maps are not legible",
        )
    sequences = what_reads_what(graph)
    pieces = {"source": maps.source, "target": maps.target}
    layers_by_pair: dict[tuple[str, str], list[AttentionHeads]] = {}
    for path, weights_HTS in maps.weights.items():
        path_once = path.partition(" ")[0]
        if path_once not in sequences:
            continue
        reads, read = sequences[path_once]
        if weights_HTS.shape[1:] == (len(pieces[reads]), len(pieces[read])):
            layers_by_pair.setdefault((reads, read), []).append(AttentionHeads(path, weights_HTS))
    if not layers_by_pair:
        raise InputError(
            "the model has no attention over complete sentences",
            location=graph.source,
            help="run 'weft show' for a list of its blocks",
        )
    return [
        AttentionGroup(f"{reads} reads {read}", pieces[reads], pieces[read], tuple(layers))
        for (reads, read), layers in layers_by_pair.items()
    ]


def write_attention(groups: list[AttentionGroup], out: Path, title: str) -> Path:
    """Write a page or a picture, depending on the file's suffix.

    Raises:
        InputError: the suffix is unknown, there are too many heads for a picture, or the file
            cannot be written.
    """
    suffix = check_suffix(out, SUFFIXES)
    if suffix == "html":
        write_beside(out, page(groups, title).encode(), "page")
        return out
    from matplotlib import rc_context  # noqa: PLC0415 - the page does not need it

    drawn = io.BytesIO()
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context({"svg.hashsalt": "weft", "svg.fonttype": "none", "pdf.fonttype": 42}):
        figure = picture(groups, title, str(out))
        figure.savefig(drawn, format=suffix, metadata=undated.get(suffix))
    write_beside(out, drawn.getvalue(), "picture")
    return out


def page(groups: list[AttentionGroup], title: str) -> str:
    """Return an HTML page: a small map for each layer and head, and a large one of the selected."""
    data = [
        {
            "title": group.title,
            "reads": group.reads,
            "read": group.read,
            "layers": [
                {
                    "path": layer.path,
                    "heads": [
                        [[round(x, 4) for x in row] for row in head]
                        for head in layer.heads.tolist()
                    ],
                }
                for layer in group.layers
            ],
        }
        for group in groups
    ]
    text = json.dumps({"title": title, "groups": data}, ensure_ascii=False)
    # The data must not close its own script element.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    template = (Path(__file__).parent / "attention_page.html").read_text(encoding="utf-8")
    return template.replace("__DATA__", safe)


def picture(groups: list[AttentionGroup], title: str, location: str) -> Figure:
    """Return one small map per head: a row for each attention, a column for each head.

    Raises:
        InputError: there are too many heads.
    """
    # Imported here because the HTML page does not need matplotlib.
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415
    from matplotlib.figure import Figure  # noqa: PLC0415

    rows = [(group, layer) for group in groups for layer in group.layers]
    columns = max(len(layer.heads) for _, layer in rows)
    if len(rows) * columns > _MOST_PANELS:
        raise InputError(
            f"{len(rows)} x {columns} maps are too many for one picture",
            location=location,
            help="select some with --only, or write a page, to a file that ends in .html",
        )
    height = max(1.1, 0.09 * max(len(group.reads) for group in groups))
    width = max(1.1, 0.09 * max(len(group.read) for group in groups))
    size = (2.2 + width * columns, 1.6 + (height + 0.35) * len(rows))
    figure = Figure(figsize=size, dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title, fontsize=8, parse_math=False)
    panels = figure.subplots(len(rows), columns, squeeze=False)
    for row, (group, layer) in enumerate(rows):
        for head in range(columns):
            panel = panels[row][head]
            if head >= len(layer.heads):
                panel.set_axis_off()
                continue
            weights = layer.heads[head].numpy()
            panel.pcolormesh(weights, vmin=0, vmax=1, cmap="Blues", linewidth=0, rasterized=False)
            panel.invert_yaxis()  # vectors, where an image would be pixels
            panel.tick_params(length=0)
            panel.set_xticks([])
            panel.set_yticks([])
            if row == 0:
                panel.set_title(f"head {head}", fontsize=7)
            if head == 0:
                panel.set_ylabel(layer.path, fontsize=5, parse_math=False)
                if len(group.reads) <= _MOST_LABELS:
                    _label(panel, group)
            panel.set_xlabel(group.title if head == 0 else "", fontsize=6)
            is_last = row + 1 == len(rows) or rows[row + 1][0] is not group
            if is_last and len(group.read) <= _MOST_LABELS:
                places = [column + 0.5 for column in range(len(group.read))]
                panel.set_xticks(places, group.read, fontsize=4, parse_math=False)
                panel.tick_params(axis="x", rotation=90)
    return figure


def _label(panel: Axes, group: AttentionGroup) -> None:
    places = [row + 0.5 for row in range(len(group.reads))]
    panel.set_yticks(places, group.reads, fontsize=4, parse_math=False)


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
