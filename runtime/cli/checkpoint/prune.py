"""The command `weft prune`: remove attention heads from a checkpoint."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path

from ....specs.findings import InputError
from ...checkpoint.checkpoint import Contents, open_checkpoint, save
from ...checkpoint.prune import attentions, pruned


def prune(options: Namespace) -> None:
    """Write the pruned checkpoint and print the remaining heads and parameters.

    Raises:
        InputError: the checkpoint or a head is invalid; nothing is written.
    """
    checkpoint = open_checkpoint(options.checkpoint)
    heads = parse_heads(options.heads)
    made = pruned(checkpoint, heads)
    contents = Contents(
        graph=made.graph,
        weights=made.weights,
        run=made.run,
        state=made.state,
        tokenizers=made.tokenizers,
    )
    folder = save(Path(options.out), contents)
    before, after = (
        {place.path: len(place.kept) for place in attentions(graph)}
        for graph in (checkpoint.graph, made.graph)
    )
    for path in heads:
        print(f"{path}  {before[path]} -> {after[path]} heads")
    sizes = checkpoint.graph.parameters(), made.graph.parameters()
    print(f"parameters  {sizes[0]:,} -> {sizes[1]:,}")
    print(folder)


def parse_heads(texts: Iterable[str]) -> dict[str, set[int]]:
    """Parse `PATH:0,3` texts into sets of head indices by path.

    Raises:
        InputError: a text does not have that form.

    >>> parse_heads(["encoder.0.f:0,3"])
    {'encoder.0.f': {0, 3}}
    """
    found: dict[str, set[int]] = {}
    for text in texts:
        path, colon, numbers = text.partition(":")
        words = [word.strip() for word in numbers.split(",")]
        if not colon or not all(word.isdecimal() and word.isascii() for word in words):
            raise InputError(
                f"'{text}' is not a path with a list of heads",
                place="--heads",
                help="write --heads encoder.0.self_attention.f:0,3",
            )
        found.setdefault(path.strip(), set()).update(map(int, words))
    return found
