"""Tokenizers of a folder: those whose ids are those of the model."""

from __future__ import annotations

from pathlib import Path

from ...graphs.ir.graph import Graph
from ...graphs.ir.value_type import ValueType
from ...specs.findings import InputError
from ..data.hub import HUB
from ..data.tokenizer import Tokenizer
from .table import Table

OURS = "tokenizer.model"
"""The name under which a checkpoint keeps a tokenizer for both sides."""


def tokenizers_for(
    table: Table, folder: Path, graph: Graph
) -> tuple[dict[str, bytes], tuple[str, ...]]:
    """Return the tokenizers that go into the checkpoint by name, and what there is to say of them.

    One that `weft translate` can use becomes `tokenizer.model`; another one is taken
    along under its own name, and so is `tokenizer.json` of a model that goes on from
    prompts.

    Args:
        table: names the files whose ids are the model's.
        folder: where they may lie.
        graph: has the sizes of the vocabularies.
    """
    for name in table.tokenizers:
        if not (folder / name).is_file():
            continue
        data = (folder / name).read_bytes()
        why = _unusable(data, graph)
        if why is None:
            return {OURS: data}, ()
        return {name: data}, (f"'{name}' is taken along as it is: {why}",)
    if (folder / HUB).is_file() and graph.step_axis is not None and len(_ids(graph)) == 1:
        return {HUB: (folder / HUB).read_bytes()}, ()
    looked = f": no {' or '.join(table.tokenizers)}" if table.tokenizers else ""
    return {}, (f"the checkpoint has no tokenizer{looked}; it reads and writes ids",)


def _unusable(data: bytes, graph: Graph) -> str | None:
    """Return why text cannot be read with a tokenizer as our own are; None if it can."""
    try:
        size = Tokenizer(data).vocab_size
    except InputError as error:
        return error.problem
    sizes = {type_.size for type_ in _ids(graph)}
    if sizes != {size}:
        return f"it has {size} pieces, and the model {', '.join(map(str, sorted(sizes, key=str)))}"
    return None


def _ids(graph: Graph) -> list[ValueType]:
    """Return the types of the inputs that are ids."""
    return [type_ for type_ in graph.inputs.values() if type_.kind == "ids"]
