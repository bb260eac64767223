"""Import of Hugging Face models from a local folder, without network access."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from ....plugin import (
    Contents,
    Finding,
    Graph,
    InputError,
    SpecError,
    Tokenizer,
    ValueType,
    build_empty,
    did_you_mean,
    graph_of,
    pointer,
    save,
    set_weights,
)
from ....runtime.checkpoint.mapping.names import help_for, matcher
from ....runtime.checkpoint.mapping.origin import assigned
from ....runtime.data.settings import HUB
from ....runtime.system.strangers import has_file, read_in
from ....specs.load import FOLDERS, load
from ....specs.reader import read_file, shipped_names
from .adapter import LoraAdapter
from .config import (
    CONFIG,
    Configuration,
    classes_of,
    keys_read,
    read_configuration,
    read_object,
    settle,
)
from .generation import Generation, read_generation
from .inherit import FOLDER, LIBRARY
from .table import ImportTable, load_table
from .tensors import FolderTensors
from .weights import converted


def _without_effect(
    table: ImportTable,
    source: str,
    graph: Graph,
    tensors: Collection[str],
    config: Configuration,
) -> Iterator[Finding]:
    """Yield a warning for each part of a table that changes nothing.

    These are lines that fit no weight, patterns that ignore no tensor, and params that are null
    and that the spec lacks.

    Only what the file itself has is examined, since a table inherits lines for other specs.
    Shipped tables are for files of several versions of the library, and are not examined.

    Args:
        table: the table.
        source: its file.
        graph: graph of the spec with the params of the table.
        tensors: names of the source tensors.
        config: configuration read by the table's expressions.
    """
    if Path(source).resolve() in {path.resolve() for path in shipped_names(FOLDER).values()}:
        return
    paths = {*graph.weights(), *(path for group in graph.ties for path in group)}
    written, _ = read_file(Path(source))
    plan, _ = assigned(table.weights, source, paths)
    used = {origin.pattern for origin in plan.values()}
    for line, weight in (written.get("weights") or {}).items():
        if weight is not None and line not in used:
            yield Finding(
                code="I06",
                at=pointer("weights", line),
                level="warning",
                problem=f"no weight of the spec fits '{line}'",
                help=help_for(line, paths) or "remove the line, if no other configuration needs it",
                source=source,
            )
    params = (written.get("params") or {}) if "extends" not in written else {}
    for name, value in params.items():
        if value is None and name not in graph.spec.params:
            yield Finding(
                code="I06",
                at=pointer("params", name),
                level="warning",
                problem=f"the spec has no param '{name}'",
                help=_near(name, graph.spec.params) or "remove it",
                source=source,
            )
    read = {
        name
        for origin in plan.values()
        for part in origin.reads()
        for names in part.names(config)
        for name in names
    }
    ignored = set(tensors) - read
    for index, pattern in enumerate(written.get("ignore") or ()):
        fits = {name for name in ignored if matcher(pattern).fullmatch(name)}
        ignored -= fits
        if fits:
            continue
        help_ = help_for(pattern, tensors) or "remove it, if no other folder needs it"
        if table.prefix and pattern.startswith(table.prefix):
            help_ = f"names have no prefix: write '{pattern.removeprefix(table.prefix)}'"
        yield Finding(
            code="I06",
            at=pointer("ignore", index),
            level="warning",
            problem=f"'{pattern}' ignores no tensor that is not read or ignored already",
            help=help_,
            source=source,
        )


def _near(name: str, names: Collection[str]) -> str:
    """Return a help that names the most similar name; empty if none is similar."""
    help_ = did_you_mean(name, names)
    return help_ if help_.startswith("did you mean") and f"'{name}'" not in help_ else ""


OURS = "tokenizer.model"
"""File name of a tokenizer for both sides in a checkpoint."""


def tokenizers_for(
    table: ImportTable, folder: Path, graph: Graph
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
        if not has_file(folder, name):
            continue
        data = read_in(folder, name)
        why = _unusable(data, graph)
        if why is None:
            return {OURS: data}, ()
        return {name: data}, (f"'{name}' is copied unchanged and not used for text: {why}",)
    if has_file(folder, HUB) and graph.step_axis is not None and len(_ids(graph)) == 1:
        return {HUB: read_in(folder, HUB)}, ()
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
    if not has_file(folder, CONFIG):
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
        lora = LoraAdapter(Path(adapter), loaded.prefix, loaded.endings)
    with FolderTensors(folder, loaded.prefix, loaded.endings, lora) as theirs:
        read = converted(loaded, source, graph.weights(), theirs, config, graph.ties)
        idle = _without_effect(loaded, source, graph, [*theirs], config)
        warnings = [finding.render() for finding in idle]
    if lora is not None:
        lora.refuse_unread()
    tokenizers, notes = tokenizers_for(loaded, folder, graph)
    generation = Generation()
    if graph.step_axis is not None:
        generation = read_generation(folder, decodes=len(graph.inputs) > 1)
    if generation.unused:
        notes = (*notes, f"generation settings not used: {', '.join(generation.unused)}")
    names = {"names": read.names} if read.names else {}
    return Imported(
        graph=graph,
        weights=read.weights,
        state={"imported": {**_origin(loaded, config, settled["tokens"], generation), **names}},
        tokenizers=tokenizers,
        notes=(*notes, *warnings),
    )


def _origin(
    table: ImportTable, config: Configuration, tokens: Mapping[str, Any], generation: Generation
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
    path = folder / CONFIG
    value = read_object(folder, CONFIG)
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


def _is_for(table: ImportTable, source: str, folder: Path) -> bool:
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
