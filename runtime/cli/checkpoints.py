"""The commands `weft average`, `prune` and `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ...specs.findings import InputError
from .common.command import CHECKPOINTS, command
from .common.parameters import (
    Checkpoint,
    argument,
    complete_files,
    option,
    out_option,
    parse_heads,
)


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
    from ..checkpoint.checkpoint import open_checkpoint, refuse_other_graph
    from ..checkpoint.saving import Contents, save

    checkpoints = [open_checkpoint(folder) for folder in folders]
    first = checkpoints[0]
    for other in checkpoints[1:]:
        refuse_other_graph(
            first.graph,
            other.graph,
            problem="the checkpoints have different graphs",
            location=f"{first.folder}, {other.folder}",
            help_="average checkpoints of one run",
        )
    contents = Contents(
        graph=first.graph,
        objective=first.objective,
        weights=average_weights([checkpoint.weights for checkpoint in checkpoints]),
        run=first.run,
        state={
            **checkpoints[-1].state,
            "averaged": [str(checkpoint.folder.name) for checkpoint in checkpoints],
        },
        tokenizers=first.tokenizers,
        metrics=checkpoints[-1].metrics,
    )
    print(save(Path(out), contents))


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
    from ..checkpoint.checkpoint import open_deployed
    from ..checkpoint.prune import attentions, pruned
    from ..checkpoint.saving import Contents, save

    chosen = parse_heads(heads)
    opened = open_deployed(checkpoint)
    result = pruned(opened, chosen)
    contents = Contents(
        graph=result.graph,
        weights=result.weights,
        objective=result.objective,
        run=result.run,
        state=result.state,
        tokenizers=result.tokenizers,
    )
    folder = save(Path(out), contents)
    before, after = (
        {attention.path: len(attention.heads) for attention in attentions(graph)}
        for graph in (opened.graph, result.graph)
    )
    for path in chosen:
        print(f"{path}  {before[path]} -> {after[path]} heads")
    sizes = opened.graph.parameters(), result.graph.parameters()
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
    from ..checkpoint.checkpoint import open_deployed
    from ..checkpoint.merge import lora_factors, merged_checkpoint
    from ..checkpoint.saving import Contents, save

    opened = open_deployed(checkpoint)
    maps = len(lora_factors(opened.graph))
    if not maps:
        raise InputError(
            "the model has no LoRA to merge",
            location=str(opened.folder),
            help="merge a checkpoint of a spec that 'weft lora' wrote",
        )
    result = merged_checkpoint(opened)
    contents = Contents(
        graph=result.graph,
        weights=result.weights,
        objective=result.objective,
        run=result.run,
        state=result.state,
        tokenizers=result.tokenizers,
    )
    folder = save(Path(out), contents)
    print(f"merged {maps} linear maps")
    sizes = opened.graph.parameters(), result.graph.parameters()
    print(f"parameters  {sizes[0]:,} -> {sizes[1]:,}")
    print(folder)
