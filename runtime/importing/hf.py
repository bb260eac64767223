"""Import: a local folder of Hugging Face's library to a model of a spec; no network.

The folder holds `config.json` and safetensors; a table says what becomes what.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError, SpecError, did_you_mean
from ...specs.load import FOLDERS, load
from ...specs.reader import shipped_names
from ..checkpoint.checkpoint import Contents, save, set_weights
from ..codegen.build import build_empty
from ..spec.check import graph_of
from .config import Configuration, classes_of, read_configuration, read_object, settle
from .table import FOLDER, LIBRARY, Table, load_table
from .tensors import Tensors
from .tokenizers import tokenizers_for
from .weights import converted


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """A model of another library as one of ours, in memory."""

    graph: Graph
    weights: Mapping[str, Tensor]
    """Every parameter once, in float32."""
    state: Mapping[str, Any]
    """Where it came from, and the ids with which decoding begins and ends."""
    tokenizers: Mapping[str, bytes]
    notes: tuple[str, ...]
    """What is worth knowing, such as why there is no tokenizer."""

    def build(self, device: str = "cpu") -> nn.Module:
        """Return the module with the weights, in evaluation mode."""
        model = build_empty(self.graph, device=device)
        set_weights(model, self.weights, self.graph, self.graph.source)
        return model.eval()

    def save(self, folder: Path | str) -> Path:
        """Write a checkpoint, which opens as any other.

        Raises:
            InputError: the folder cannot be written, or holds something else.
        """
        _refuse_another_folder(Path(folder))
        contents = Contents(
            graph=self.graph,
            weights=self.weights,
            state=self.state,
            tokenizers=self.tokenizers,
        )
        return save(Path(folder), contents)


def _refuse_another_folder(out: Path) -> None:
    """Take the place of nothing but an older checkpoint.

    Raises:
        InputError: something else has the name.
    """
    ours = (out / "state.json").is_file() and (out / "weights.safetensors").is_file()
    if out.exists() and not ours and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(
            "something that is no checkpoint has this name, and would be lost",
            place=str(out),
            help="choose another place with --out",
        )


def import_hf(folder: Path | str, table: Path | str | None = None) -> Imported:
    """Read a folder of Hugging Face's library: `config.json` and safetensors.

    Args:
        folder: what `save_pretrained` wrote.
        table: a shipped table such as `bert`, or a table file; by the model's type when
            left out.

    Raises:
        InputError: the folder or a file in it cannot be read.
        SpecError: the table is wrong, or the model is not what it is for.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise InputError(
            "no such folder, or no 'config.json' in it",
            place=str(folder),
            help="name the folder of a model that was saved with save_pretrained",
        )
    held, source = load_table(table if table is not None else table_for(folder))
    config = read_configuration(folder, held)
    settled = settle(held, source, config)
    graph = graph_of(load(spec_of(settled["spec"], source), settled["params"]))
    with Tensors(folder, held.prefix, held.endings) as theirs:
        weights = converted(held, source, graph.weights(), theirs, config)
    tokenizers, notes = tokenizers_for(held, folder, graph)
    return Imported(
        graph=graph,
        weights=weights,
        state={"imported": _origin(held, config, settled["tokens"])},
        tokenizers=tokenizers,
        notes=notes,
    )


def _origin(table: Table, config: Configuration, tokens: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a checkpoint keeps of where it came from."""
    return {
        "table": table.name,
        "model_type": config["model_type"],
        "architectures": config.get("architectures"),
        "tokens": dict(tokens),
    }


def table_for(folder: Path) -> str:
    """Return the name of the shipped table for the model of a folder.

    Raises:
        InputError: there is none, or several are for it.
    """
    path = folder / "config.json"
    value = read_object(path)
    tables = {name: load_table(name)[0] for name in shipped_names(FOLDER)}
    kind, classes = value.get("model_type"), classes_of(value)
    fits = [name for name, table in tables.items() if kind in table.model_type]
    exact = [name for name in fits if classes & set(tables[name].architectures)]
    chosen = exact or fits
    if len(chosen) > 1:
        chosen = [name for name in chosen if _is_for(tables[name], name, folder)] or chosen
    if len(chosen) == 1:
        return chosen[0]
    names = [name.removeprefix(f"{LIBRARY}-") for name in chosen or tables]
    problem = f"no table is for a model of type '{kind}'"
    if chosen:
        problem = f"several tables are for a model of type '{kind}'"
    raise InputError(
        problem, place=f"{path}#/model_type", help=f"choose with --as: {', '.join(names)}"
    )


def _is_for(table: Table, source: str, folder: Path) -> bool:
    """Say whether a model is as a table requires it."""
    try:
        settle(table, source, read_configuration(folder, table))
    except SpecError:
        return False
    return True


def spec_of(name: Any, source: str) -> str:
    """Return the spec that a table names: shipped, or a file beside the table.

    Raises:
        InputError: neither.
    """
    text = str(name)
    if not text.endswith(".json"):
        known = shipped_names(*FOLDERS)
        if text in known:
            return str(known[text])
        raise InputError(
            f"spec '{text}' is not shipped with weft",
            place=f"{source}#/spec",
            help=did_you_mean(text, known),
        )
    beside = Path(source).parent / text
    if Path(text).name != text or not beside.is_file():
        raise InputError(
            f"no spec '{text}' beside the table",
            place=f"{source}#/spec",
            help="put it there, or name a shipped one",
        )
    return str(beside)
