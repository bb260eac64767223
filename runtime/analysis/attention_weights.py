"""Record the attention weights of a model.

A forward pass does not keep these weights, and fused kernels never materialize them.  While
recording, each attention therefore computes its weights again from its inputs with the plain
formula; its outputs are unchanged.

Axes: B sequences, H heads, T query positions, S key positions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import owned_parts
from ...graphs.passes.merge import merged
from ...specs.findings import InputError
from ..data.batches import pad_rows
from ..data.symbols import Vocabulary
from ..decode.inputs import fitting_of, refuse_long


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMaps:
    """Attention weights of a model for one pair of sentences."""

    source: tuple[str, ...]
    """Pieces of the source, including the end token."""
    target: tuple[str, ...]
    """Pieces of the decoder's input, including the begin token; each position predicts the next."""
    weights: Mapping[str, Tensor]
    """Path of an attention, such as `decoder.0.cross_attention.f`, to its weights [H, T, S]."""


@contextmanager
def recording(model: nn.Module, only: Collection[str] | None = None) -> Iterator[dict[str, Tensor]]:
    """Record the weights of every attention whose `forward` runs inside the `with`.

    Compiled layers run uncompiled meanwhile.  Step-by-step decoding is not recorded: pass its
    output as a target instead.

    Args:
        model: the result of `build`, or the module of an opened checkpoint.
        only: paths of the attentions to record; default: all.

    Yields:
        Path of each attention, as in the state_dict, to its weights [B, H, T, S]. Repeated runs
        (layers that share weights, a second call) get the path with ` (2)` appended, and so on.
    """
    maps: dict[str, Tensor] = {}

    def hook_of(path: str) -> Any:
        def hook(module: nn.Module, values: tuple[Any, ...], wires: dict[str, Any], _: Any) -> None:
            name, number = path, 2
            while name in maps:
                name, number = f"{path} ({number})", number + 1
            with torch.no_grad():
                maps[name] = module.attention_weights(*values, **wires)  # type: ignore[operator]

        return hook

    hooks = [
        module.register_forward_hook(hook_of(path), with_kwargs=True)
        for path, module in model.named_modules()
        if hasattr(type(module), "attention_weights") and (only is None or path in only)
    ]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield maps
    finally:
        for hook in hooks:
            hook.remove()


def what_reads_what(graph: Graph) -> dict[str, tuple[str, str]]:
    """Return the query and key sequence of each node whose axes belong to sentences.

    Returns:
        Path of a node, as in the state_dict, to the names of both sequences: `source` or `target`.
    """
    names = {
        str(graph.inputs[name].axes[-1]): name
        for name in ("source", "target")
        if name in graph.inputs
    }
    sequences = {}
    for path, _, part in owned_parts(merged(graph).root):
        reads = names.get(str(part.axes.get("t")))
        read = names.get(str(part.axes.get("s", part.axes.get("t"))))
        if reads is not None and read is not None:
            sequences[path] = reads, read
    return sequences


def maps_of(
    model: nn.Module,
    tokenizers: tuple[Vocabulary, Vocabulary],
    sources: Sequence[str],
    targets: Sequence[str],
) -> list[AttentionMaps]:
    """Return the attention weights of a translation model for each pair, one pair at a time.

    Args:
        model: a model with the inputs `source`, `source_mask` and `target`; its mode is restored.
        tokenizers: of the source and of the target.
        sources: sentences, none empty.
        targets: the decoder's input for each; may be empty.

    Raises:
        InputError: the lists differ in length, or a source is empty.
    """
    refuse_other_length(sources, targets)
    reads, writes = tokenizers
    pairs = list(zip(reads.encode_many(sources), writes.encode_many(targets), strict=True))
    for number, (ids, _) in enumerate(pairs, 1):
        if not ids:
            raise InputError(f"source {number} is empty", help="remove it")
    return [maps_of_ids(model, tokenizers, *pair) for pair in pairs]


def refuse_other_length(sources: Sequence[str], targets: Sequence[str]) -> None:
    """Raise if the lists differ in length.

    Raises:
        InputError: the lists differ in length.
    """
    if len(sources) != len(targets):
        raise InputError(
            f"{len(sources)} sources for {len(targets)} targets",
            help="give one target per source, or none to use the model's translations",
        )


def maps_of_ids(
    model: nn.Module,
    tokenizers: tuple[Vocabulary, Vocabulary],
    source: Sequence[int],
    target: Sequence[int],
) -> AttentionMaps:
    """Return the attention weights of a translation model for one pair.

    Args:
        model: as in `maps_of`.
        tokenizers: as in `maps_of`; they name the pieces.
        source: ids, at least one, without the end token.
        target: ids, without begin and end tokens.
    """
    reads, writes = tokenizers
    with recording(model) as maps:
        forced(model, tokenizers, [(source, target)])
    return AttentionMaps(
        source=tuple(reads.pieces([*source, reads.eos])),
        target=tuple(writes.pieces([writes.bos, *target])),
        weights={path: weights[0].float().cpu() for path, weights in maps.items()},
    )


@torch.no_grad()
def forced(
    model: nn.Module,
    tokenizers: tuple[Vocabulary, Vocabulary],
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> None:
    """Run a translation model on pairs of ids, in one batch; its mode is restored.

    Raises:
        InputError: a pair has more tokens than the model has positions.
    """
    refuse_long((model,), pairs)
    reads, writes = tokenizers
    device, training = next(model.parameters()).device, model.training
    source = pad_rows([ids for ids, _ in pairs], reads.pad, reads.eos).to(device)
    prefixes = [torch.tensor([writes.bos, *ids]) for _, ids in pairs]
    target = pad_sequence(prefixes, batch_first=True, padding_value=writes.pad).to(device)
    model.eval()
    try:
        inputs = {"source": source, "source_mask": source != reads.pad, "target": target}
        model(**fitting_of(model).fit(inputs))
    finally:
        model.train(training)
