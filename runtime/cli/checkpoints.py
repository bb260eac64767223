"""The commands `weft average`, `import`, `prune` and `merge`."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ...specs.findings import InputError
from .common.command import CHECKPOINTS, command, wrong
from .common.parameters import (
    Checkpoint,
    Json,
    argument,
    complete_files,
    complete_tables,
    option,
    out_option,
    parse_heads,
)

if TYPE_CHECKING:
    pass


@command(CHECKPOINTS, "weft average outputs/demo/checkpoints/* -o outputs/demo/mean")
def average(
    folders: Annotated[
        list[str],
        argument("CHECKPOINT...", "Checkpoint folders of one run.", complete_files),
    ],
    *,
    out: Annotated[str, out_option("Checkpoint folder to write.")],
) -> None:
    """Average the weights of several checkpoints.

    Raises:
        InputError: a checkpoint cannot be opened, or the graphs differ.
    """
    from ..checkpoint.average import average_weights
    from ..checkpoint.checkpoint import open_checkpoint
    from ..checkpoint.differences import refuse_other_graph
    from ..checkpoint.saving import Contents, save

    checkpoints = [open_checkpoint(folder) for folder in folders]
    first = checkpoints[0]
    for other in checkpoints[1:]:
        refuse_other_graph(
            first.graph,
            other.graph,
            problem="the checkpoints have different graphs",
            place=f"{first.folder}, {other.folder}",
            help_="average checkpoints of one run",
        )
    contents = Contents(
        graph=first.graph,
        objective=first.objective,
        weights=average_weights([each.weights for each in checkpoints]),
        run=first.run,
        state={
            **checkpoints[-1].state,
            "averaged": [str(each.folder.name) for each in checkpoints],
        },
        tokenizers=first.tokenizers,
        metrics=checkpoints[-1].folder / "metrics.jsonl",
    )
    print(save(Path(out), contents))


@command(
    CHECKPOINTS,
    "weft import hf ../bert-base-uncased --as bert --out outputs/bert",
    note="""None of that library's code is run, except with `--compare`, which runs the installed
library (`pip install 'weft[parity]'`) but no code of the folder.""",
)
def import_(
    library: Annotated[
        Literal["hf"],
        argument("LIBRARY", "`hf`: a folder written by save_pretrained."),
    ],
    folder: Annotated[
        str,
        argument("FOLDER", "Folder with config.json and model.safetensors.", complete_files),
    ],
    *,
    table: Annotated[
        str | None,
        option(
            "--as",
            "Shipped import table, such as bert, or a table file. [default: chosen by the "
            "model's type]",
            metavar="TABLE",
            complete=complete_tables,
        ),
    ] = None,
    adapter: Annotated[
        str | None,
        option(
            "--adapter",
            "Folder of a LoRA adapter in PEFT's format, to merge into the weights.",
            metavar="FOLDER",
            complete=complete_files,
        ),
    ] = None,
    out: Annotated[
        str | None, out_option("Checkpoint folder to write. [default: outputs/NAME]")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            help="Compare the outputs with those of transformers on random inputs, and write only "
            "if they are equal.",
        ),
    ] = False,
    json_: Json = False,
) -> int:
    """Convert another library's checkpoint folder.

    Raises:
        InputError: the folder, the table or the output path is invalid; nothing is written.
    """
    del library
    from ..importing.comparing import compare as comparing
    from ..importing.hf import import_hf

    if compare:
        comparing.refuse_without_library()
        if adapter is not None:
            raise wrong("--adapter", "the source that --compare runs has no adapter")
    source = Path(folder)
    target = Path(out or Path("outputs") / source.resolve().name)
    made = import_hf(source, table, adapter=adapter)
    comparison = comparing.save_if_equal(made, source, table, target) if compare else None
    equal = comparison is None or comparison.equal
    if comparison is None:
        made.save(target)
    name, parameters = made.graph.name, made.graph.parameters()
    if json_:
        report: dict[str, Any] = {"spec": name, "parameters": parameters, "notes": made.notes}
        report["comparison"] = comparison.as_json() if comparison is not None else None
        print(json.dumps({**report, "wrote": str(target) if equal else None}, indent=2))
        return int(not equal)
    print(f"{name}: {parameters:,} parameters from {source}")
    for note in filter(None, (*made.notes, comparison)):
        print(note)
    print(f"wrote {shlex.quote(str(target))}" if equal else "the outputs differ: wrote nothing")
    return int(not equal)


@command(
    CHECKPOINTS,
    "weft prune outputs/demo/averaged --heads encoder.0.self_attention.f:0,3 -o outputs/pruned",
)
def prune(
    checkpoint: Checkpoint,
    *,
    heads: Annotated[
        list[str],
        option(
            "--heads",
            "Path of an attention node and the heads to remove, counted from 0. Repeat the "
            "option for several nodes.",
            metavar="PATH:0,3",
        ),
    ],
    out: Annotated[str, out_option("Checkpoint folder to write.")],
) -> None:
    """Write a checkpoint with some attention heads removed.

    Raises:
        InputError: the checkpoint or a head is invalid; nothing is written.
    """
    from ..checkpoint.deployed import open_deployed
    from ..checkpoint.prune import attentions, pruned
    from ..checkpoint.saving import Contents, save

    chosen = parse_heads(heads)
    opened = open_deployed(checkpoint)
    made = pruned(opened, chosen)
    contents = Contents(
        graph=made.graph,
        weights=made.weights,
        objective=made.objective,
        run=made.run,
        state=made.state,
        tokenizers=made.tokenizers,
    )
    folder = save(Path(out), contents)
    before, after = (
        {place.path: len(place.kept) for place in attentions(graph)}
        for graph in (opened.graph, made.graph)
    )
    for path in chosen:
        print(f"{path}  {before[path]} -> {after[path]} heads")
    sizes = opened.graph.parameters(), made.graph.parameters()
    print(f"parameters  {sizes[0]:,} -> {sizes[1]:,}")
    print(folder)


@command(CHECKPOINTS, "weft merge outputs/adapted/averaged -o outputs/merged")
def merge(
    checkpoint: Checkpoint,
    *,
    out: Annotated[str, out_option("Checkpoint folder to write.")],
) -> None:
    """Write a checkpoint with LoRA merged into its weights.

    Raises:
        InputError: the checkpoint cannot be opened or has no LoRA; nothing is written.
    """
    from ..checkpoint.deployed import open_deployed
    from ..checkpoint.merge import lora_factors, merged_checkpoint
    from ..checkpoint.saving import Contents, save

    opened = open_deployed(checkpoint)
    maps = len(lora_factors(opened.graph))
    if not maps:
        raise InputError(
            "the model has no LoRA to merge",
            place=str(opened.folder),
            help="merge a checkpoint of a spec that sets 'lora_rank'",
        )
    made = merged_checkpoint(opened)
    contents = Contents(
        graph=made.graph,
        weights=made.weights,
        objective=made.objective,
        run=made.run,
        state=made.state,
        tokenizers=made.tokenizers,
    )
    folder = save(Path(out), contents)
    print(f"merged {maps} linear maps")
    sizes = opened.graph.parameters(), made.graph.parameters()
    print(f"parameters  {sizes[0]:,} -> {sizes[1]:,}")
    print(folder)
