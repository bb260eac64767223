"""Import of Hugging Face models from a local folder, without network access.

The folder has `config.json` and safetensors; a table maps its weights to those of a spec.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ....plugin import (
    Contents,
    Graph,
    InputError,
    SpecError,
    build_empty,
    did_you_mean,
    graph_of,
    save,
    set_weights,
)
from ....specs.load import FOLDERS, load
from ....specs.reader import shipped_names
from .adapter import Adapter
from .config import (
    Configuration,
    classes_of,
    keys_read,
    read_configuration,
    read_object,
    settle,
)
from .effects import without_effect
from .generation import Generation, read_generation
from .inherit import FOLDER, LIBRARY
from .table import Table, load_table
from .tensors import Tensors
from .tokenizers import tokenizers_for
from .weights import converted


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Imported:
    """Imported model: graph, weights, state and tokenizers, in memory."""

    graph: Graph
    weights: Mapping[str, Tensor]
    """Every parameter once, in float32."""
    state: Mapping[str, Any]
    """Origin of the model, and its begin, end and padding ids."""
    tokenizers: Mapping[str, bytes]
    """Content of each tokenizer file by name."""
    notes: tuple[str, ...]
    """Notes for the user, such as why there is no tokenizer."""

    def __repr__(self) -> str:
        """Return the name of the spec and the number of parameters."""
        return f"<Imported {self.graph.name}: {self.graph.parameters():,} parameters>"

    def build(self, device: str = "cpu") -> nn.Module:
        """Return the module with the weights, in evaluation mode."""
        model = build_empty(self.graph, device=device)
        set_weights(model, self.weights, self.graph, self.graph.source)
        return model.eval()

    def save(self, folder: Path | str) -> Path:
        """Write the model as a Weft checkpoint.

        Raises:
            InputError: the folder cannot be written, or exists and is not a checkpoint.
        """
        refuse_another_folder(Path(folder))
        contents = Contents(
            graph=self.graph,
            weights=self.weights,
            state=self.state,
            tokenizers=self.tokenizers,
        )
        return save(Path(folder), contents)


def refuse_another_folder(out: Path) -> None:
    """Check that the output replaces only an older checkpoint or an empty folder.

    Raises:
        InputError: the path is taken by something else.
    """
    is_checkpoint = (out / "state.json").is_file() and (out / "weights.safetensors").is_file()
    if out.exists() and not is_checkpoint and not (out.is_dir() and not any(out.iterdir())):
        raise InputError(
            "the output path exists and is not a checkpoint; it would be overwritten",
            location=str(out),
            help="choose another path with --out",
        )


def import_hf(
    folder: Path | str,
    table: Path | str | None = None,
    *,
    adapter: Path | str | None = None,
) -> Imported:
    """Import a Hugging Face model from a folder with `config.json` and safetensors.

    Args:
        folder: folder written by `save_pretrained`.
        table: name of a shipped table, such as `bert`, or path of a table file; chosen by
            the model's type by default.
        adapter: folder of a LoRA adapter in PEFT's format, which is merged into the weights.

    Raises:
        InputError: the folder or a file in it cannot be read, or the adapter is for another model.
        SpecError: the table is invalid, or it does not support the model.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise InputError(
            "the folder does not exist or has no 'config.json'",
            location=str(folder),
            help="give the folder of a model that was saved with save_pretrained",
        )
    loaded, source = load_table(table if table is not None else table_for(folder))
    config = read_configuration(folder, loaded)
    settled = settle(loaded, source, config)
    graph = graph_from(settled, source)
    lora = None
    if adapter is not None:
        lora = Adapter(Path(adapter), loaded.prefix, loaded.endings)
    with Tensors(folder, loaded.prefix, loaded.endings, lora) as theirs:
        weights = converted(loaded, source, graph.weights(), theirs, config, graph.ties)
        idle = without_effect(loaded, source, graph, [*theirs], config)
        warnings = [finding.render() for finding in idle]
    if lora is not None:
        lora.refuse_unread()
    tokenizers, notes = tokenizers_for(loaded, folder, graph)
    generation = Generation()
    if graph.step_axis is not None:
        generation = read_generation(folder, decodes=len(graph.inputs) > 1)
    if generation.unused:
        notes = (*notes, f"generation settings not used: {', '.join(generation.unused)}")
    return Imported(
        graph=graph,
        weights=weights,
        state={"imported": _origin(loaded, config, settled["tokens"], generation)},
        tokenizers=tokenizers,
        notes=(*notes, *warnings),
    )


def _origin(
    table: Table, config: Configuration, tokens: Mapping[str, Any], generation: Generation
) -> dict[str, Any]:
    """Return the origin of the model and its generation settings, as stored in a checkpoint."""
    return {
        "table": table.name,
        "model_type": config["model_type"],
        "architectures": config.get("architectures"),
        "config": config.stated(keys_read(table)),
        "tokens": {**tokens, **generation.tokens},
        "search": dict(generation.search),
        "generate": dict(generation.generate),
    }


def table_for(folder: Path) -> str:
    """Return the name of the shipped table for the model of a folder.

    Raises:
        InputError: no table, or more than one, supports the model.
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
    problem = f"no table supports models of type '{kind}'"
    if chosen:
        problem = f"several tables support models of type '{kind}'"
    raise InputError(
        problem,
        location=f"{path}#/model_type",
        help=f"choose a table with --as: {', '.join(names)}",
    )


def _is_for(table: Table, source: str, folder: Path) -> bool:
    """Return whether a model meets the requirements of a table."""
    try:
        settle(table, source, read_configuration(folder, table))
    except SpecError:
        return False
    return True


def graph_from(settled: Mapping[str, Any], source: str) -> Graph:
    """Return the graph of a settled table.

    A param that is null is left out if the spec has no param of that name: a table that extends
    another one so removes a param.

    Args:
        settled: the spec and its params, as `settle` returns them.
        source: file of the table.

    Raises:
        InputError: there is no such spec.
        SpecError: the spec does not have these params, or refuses their values.
    """
    spec, params = spec_of(settled["spec"], source), settled["params"]
    if None in params.values():
        names = load(spec).form.params
        params = {name: v for name, v in params.items() if v is not None or name in names}
    return graph_of(load(spec, params))


def spec_of(name: Any, source: str) -> str:
    """Return the path of the spec that a table names: a shipped one, or a file next to the table.

    Raises:
        InputError: there is no such spec.
    """
    text = str(name)
    if not text.endswith(".json"):
        shipped = shipped_names(*FOLDERS)
        if text in shipped:
            return str(shipped[text])
        raise InputError(
            f"spec '{text}' is not shipped with weft",
            location=f"{source}#/spec",
            help=did_you_mean(text, shipped),
        )
    path = Path(source).parent / text
    if Path(text).name != text or not path.is_file():
        raise InputError(
            f"no spec '{text}' next to the table",
            location=f"{source}#/spec",
            help="put the spec there, or use a shipped one",
        )
    return str(path)
