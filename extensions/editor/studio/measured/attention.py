"""Attention weights of a sentence, computed by the model of a checkpoint as `weft attend` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .....specs.findings import InputError

if TYPE_CHECKING:
    from .....runtime.analysis.attention_page import Group, Layer
    from .....runtime.model.model import Model


class Attending:
    """The model of a checkpoint, opened when it is first needed, and the maps of one sentence."""

    def __init__(self, checkpoint: Path) -> None:
        """Remember a checkpoint.

        Args:
            checkpoint: its folder.
        """
        self.folder = checkpoint
        self._opened: Model | None = None
        self._last: tuple[tuple[str, str | None], str, list[Group]] | None = None

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

    def _groups(self, text: str, target: str | None) -> tuple[str, list[Group]]:
        """Return the input of the decoder and all maps of a sentence."""
        # Opening a model needs torch.
        from .....runtime.analysis.attention_page import groups_of  # noqa: PLC0415

        if self._last is None or self._last[0] != (text, target):
            model = self._model()
            translation = model.translate([text])[0] if target is None else target
            [maps] = model.attention([text], [translation])
            self._last = (text, target), translation, groups_of(model.graph, maps)
        return self._last[1], self._last[2]

    def _model(self) -> Model:
        from .....runtime.model.opening import open_folder  # noqa: PLC0415 - needs torch

        if self._opened is None:
            self._opened = open_folder(self.folder)
        return self._opened

    def _node(self, layer: Layer) -> str:
        """Return the node of a layer: copies of a repeat share one."""
        from .....runtime.profiling.scopes import paths_of  # noqa: PLC0415 - needs torch

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
