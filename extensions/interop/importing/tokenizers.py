"""Tokenizers of an imported model."""

from __future__ import annotations

from pathlib import Path

from ....plugin import Graph, InputError, Tokenizer, ValueType
from ....runtime.data.hub import HUB
from .table import Table

OURS = "tokenizer.model"
"""File name of a tokenizer for both sides in a checkpoint."""


def tokenizers_for(
    table: Table, folder: Path, graph: Graph
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the tokenizer files for the checkpoint by name, and notes for the user.

    A tokenizer that `weft translate` can use becomes `tokenizer.model`; others are copied
    under their own name, and so is the `tokenizer.json` of a model that continues prompts.

    Args:
        table: names the tokenizer files whose ids the model uses.
        folder: folder of the model.
        graph: graph of the model, with the sizes of its vocabularies.
    """
    for name in table.tokenizers:
        if not (folder / name).is_file():
            continue
        data = (folder / name).read_bytes()
        why = _unusable(data, graph)
        if why is None:
            return {OURS: data}, ()
        return {name: data}, (f"'{name}' is copied unchanged and not used for text: {why}",)
    if (folder / HUB).is_file() and graph.step_axis is not None and len(_ids(graph)) == 1:
        return {HUB: (folder / HUB).read_bytes()}, ()
    missing = f": no {' or '.join(table.tokenizers)}" if table.tokenizers else ""
    return {}, (f"the checkpoint has no tokenizer{missing}; it reads and writes ids",)


def _unusable(data: bytes, graph: Graph) -> str | None:
    """Return why Weft cannot use a tokenizer for the text of a model, or None if it can."""
    try:
        size = Tokenizer(data).vocab_size
    except InputError as error:
        return error.problem
    sizes = {type_.size for type_ in _ids(graph)}
    if sizes != {size}:
        expected = ", ".join(map(str, sorted(sizes, key=str)))
        return f"it has {size} pieces, but the model's vocabulary has {expected}"
    return None


def _ids(graph: Graph) -> list[ValueType]:
    """Return the types of the graph inputs of kind ids."""
    return [type_ for type_ in graph.inputs.values() if type_.kind == "ids"]
