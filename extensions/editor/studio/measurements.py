"""What is measured of a model: the curves of its run, its attention, and the time of its nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....plugin import Graph, InputError, cost_table, default_sizes
from ....runtime.system.strangers import object_in

if TYPE_CHECKING:
    from .... import Model
    from ....runtime.analysis.attention_pictures import AttentionGroup, AttentionHeads


class Attending:
    """The model of a checkpoint, opened when it is first needed, and the maps of one sentence."""

    def __init__(self, checkpoint: Path) -> None:
        """Remember a checkpoint.

        Args:
            checkpoint: its folder.
        """
        self.folder = checkpoint
        self._opened: Model | None = None
        self._last: tuple[tuple[str, str | None], str, list[AttentionGroup]] | None = None

    def look(self, text: str, target: str | None, node: str, layer: str) -> dict[str, Any]:
        """Return the heads of one layer for a sentence.

        Args:
            text: the sentence; an empty one is the first of the validation data.
            target: input of the decoder; None is the translation by the model.
            node: path of a node, such as `encoder.*.self_attention`; empty for all.
            layer: the layer to show, such as `encoder.3.self_attention`; default: the first.

        Raises:
            InputError: the model does not translate, it has no attention there, or a sentence is
                empty or too long.
        """
        text = text.strip() or self._first()
        target, groups = self._groups(text, target)
        every = [
            (group, attention, self._node(attention))
            for group in groups
            for attention in group.layers
        ]
        layers = [entry for entry in every if _is_in(entry[2], node)]
        if not layers:
            nodes = dict.fromkeys(path.partition("/")[0] for _, _, path in every)
            raise InputError(
                f"'{node}' does not attend from one sentence to another",
                location=node,
                help=f"choose one of {', '.join(nodes)}",
            )
        start = layer.replace("/", ".")
        paths = [attention.path for _, attention, _ in layers]
        shown = next((i for i, path in enumerate(paths) if f"{path}.".startswith(f"{start}.")), 0)
        group, chosen, _ = layers[shown]
        return {
            "source": text,
            "target": target,
            "layers": [{"path": attention.path, "node": path} for _, attention, path in layers],
            "shown": shown,
            "title": group.title,
            "reads": list(group.reads),
            "read": list(group.read),
            "heads": [
                [[round(weight, 4) for weight in row] for row in head]
                for head in chosen.heads.tolist()
            ],
        }

    def _groups(self, text: str, target: str | None) -> tuple[str, list[AttentionGroup]]:
        """Return the input of the decoder and all maps of a sentence."""
        # Opening a model needs torch.
        from ....runtime.analysis.attention_pictures import groups_of  # noqa: PLC0415

        if self._last is None or self._last[0] != (text, target):
            model = self._model()
            translation = model.translate([text])[0] if target is None else target
            [maps] = model.attention([text], [translation])
            self._last = (text, target), translation, groups_of(model.graph, maps)
        return self._last[1], self._last[2]

    def _model(self) -> Model:
        from ....plugin import open_folder  # noqa: PLC0415 - needs torch

        if self._opened is None:
            self._opened = open_folder(self.folder)
        return self._opened

    def _node(self, layer: AttentionHeads) -> str:
        """Return the node of a layer: copies of a repeat share one."""
        from ....runtime.analysis.profile_scopes import paths_of  # noqa: PLC0415 - needs torch

        module = layer.path.partition(" ")[0]  # without the number of its run
        return paths_of(self._model().graph).get(module, module)

    def _first(self) -> str:
        """Return the first sentence of the validation data that the checkpoint names.

        Raises:
            InputError: it names none, the files are not there, or the model does not translate.
        """
        trained, help_ = self._model().trained, "type a sentence"
        if trained is None:
            raise InputError("the checkpoint names no data", location="sentence", help=help_)
        column, _ = trained.sides()
        try:
            texts = (str(row[column]).strip() for row in trained.rows("valid"))
            return next(filter(None, texts))
        except (InputError, StopIteration) as error:
            problem = "the validation data of the run is not here"
            raise InputError(problem, location="sentence", help=help_) from error


def _is_in(path: str, node: str) -> bool:
    """Return whether a path is that of a node, or below it."""
    return not node or path == node or path.startswith((f"{node}/", f"{node}."))


MOST_POINTS = 600
"""Maximum number of points of a curve; more are replaced by means of neighbors."""
_OTHERS = frozenset({"update", "epoch", "seconds"})
"""Numbers of an event that are not drawn as curves."""


def curves(checkpoint: Path) -> dict[str, Any]:
    """Return the curves of the run that wrote a checkpoint.

    Args:
        checkpoint: the folder of the checkpoint.

    Returns:
        `update`, that of the checkpoint; `train` and `valid`, each a name to the updates and the
        values of a curve; `best`, the metric that selects the best checkpoint, or an empty text.
    """
    # The package of training needs torch.
    from ....runtime.train.history import read  # noqa: PLC0415

    events = read(checkpoint)
    run_events = events
    for folder in checkpoint.absolute().parents[:2]:
        later_events = read(folder)
        if events and later_events[: len(events)] == events:
            run_events = later_events  # the run went on after this checkpoint
            break
    return {
        "update": events[-1]["update"] if events else 0,
        "train": series(run_events, "train"),
        "valid": series(run_events, "valid"),
        "best": _best(checkpoint),
    }


def series(events: Sequence[Mapping[str, Any]], kind: str) -> dict[str, list[list[float]]]:
    """Return the curves of one type of event: name to updates and values.

    Of two events of an update, as after a run was resumed, the later one counts. Values that are
    not finite are left out.
    """
    newest = {event["update"]: event for event in events if event.get("type") == kind}
    points: dict[str, list[list[float]]] = {}
    for update, event in sorted(newest.items()):
        for name, value in event.items():
            if name in _OTHERS or isinstance(value, bool) or not isinstance(value, int | float):
                continue
            if isfinite(value):
                updates, values = points.setdefault(name, [[], []])
                updates.append(update)
                values.append(value)
    return {
        name: [_thinned(updates), _thinned(values)] for name, (updates, values) in points.items()
    }


def _thinned(values: Sequence[float]) -> list[float]:
    """Return at most `MOST_POINTS` means of neighbors."""
    size = -(-len(values) // MOST_POINTS)
    if size <= 1:
        return [*values]
    parts = [values[start : start + size] for start in range(0, len(values), size)]
    return [sum(part) / len(part) for part in parts]


def _best(checkpoint: Path) -> str:
    try:
        best = object_in(checkpoint, "run.json")["evaluate"]["best"]
    except (InputError, KeyError, TypeError):
        return ""
    return str(best.get("type", "") if isinstance(best, dict) else best)


MOST_FLOPS = 10**12
"""Maximum FLOPs of a forward pass that is measured."""
MOST_BYTES = 2 * 2**30
"""Maximum bytes of the weights and of the outputs of all nodes."""
MOST_SECONDS = 10.0
"""Time after which a measurement is given up."""


def times(graph: Graph, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Measure a forward pass on random inputs.

    Args:
        graph: a checked graph.
        sizes: axis to its length; the others have a default.

    Returns:
        `nodes`, the seconds of each node with all that is in it, by path as in a drawing;
        `seconds` of the complete pass; `passes`, the number of measured ones; and `device`.

    Raises:
        InputError: an axis is unknown, or the sizes are beyond a limit.
    """
    lengths = default_sizes(graph)
    if unknown := sorted({*sizes} - {*lengths}):
        help_ = f"the axes are {', '.join(lengths)}"
        raise InputError(f"no axis '{unknown[0]}'", location="sizes", help=help_)
    lengths |= sizes
    refuse_large(graph, lengths)
    # Computing needs torch.
    from ....runtime.analysis.measure import measure_forward  # noqa: PLC0415

    profile = measure_forward(graph, lengths, seconds=MOST_SECONDS)
    seconds: dict[str, float] = defaultdict(float)
    for path, spent in profile.nodes.items():
        ends = [index for index, sign in enumerate(path) if sign in "./"]
        for end in (*ends, len(path)):
            seconds[path[:end]] += spent.forward
    return {
        "nodes": dict(seconds),
        "seconds": profile.seconds,
        "passes": profile.updates,
        "device": profile.device,
    }


def refuse_large(graph: Graph, sizes: Mapping[str, int]) -> None:
    """Refuse sizes at which a pass would take too long or too much memory.

    Raises:
        InputError: they are too large.
    """
    table = cost_table(graph, sizes)
    bytes_ = 4 * graph.parameters() + table.activation_bytes
    for unit, needed, most in (("GFLOP", table.flops, MOST_FLOPS), ("GB", bytes_, MOST_BYTES)):
        if needed > most:
            raise InputError(
                f"a forward pass at these sizes takes {needed / 1e9:,.1f} {unit}, and the studio"
                f" measures up to {most / 1e9:,.1f}",
                location="sizes",
                help="choose smaller sizes, or run 'weft cost SPEC --measure'",
            )
