"""Maps: how much each attention of a model reads of each position, on request.

A forward pass does not keep these weights, and fused kernels never hold them.  So while
they are recorded, each attention works them out again, by the plain form, from what it
was given; what it gives itself stays as it is.

Axes: B sequences, H heads, T positions that read, S positions that are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..specs.findings import InputError
from .data.batches import pad_rows
from .data.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMaps:
    """What a model read when one pair of sentences was given."""

    source: tuple[str, ...]
    """Pieces of the source, the end among them."""
    target: tuple[str, ...]
    """Pieces that the decoder read, from the beginning; each position predicts the next."""
    weights: Mapping[str, Tensor]
    """Path of an attention, such as `decoder.0.cross_attention.f`, to [H, T, S]."""


@contextmanager
def recording(model: nn.Module) -> Iterator[dict[str, Tensor]]:
    """Record the weights of every attention whose `forward` runs inside the `with`.

    Compiled layers run as they are written meanwhile.  Decoding by steps is not recorded:
    give what was decoded as a target instead.

    Args:
        model: what `build` returned, or the module of an opened checkpoint.

    Yields:
        Path of each attention, as in the state_dict, to its weights [B, H, T, S].  Where
        one runs again (layers that share weights, a second call), ` (2)` stands behind the
        path, and so on.
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
        if callable(getattr(module, "attention_weights", None))
    ]
    try:
        with torch.compiler.set_stance("force_eager"):
            yield maps
    finally:
        for hook in hooks:
            hook.remove()


@torch.no_grad()
def maps_of(
    model: nn.Module,
    tokenizers: tuple[Tokenizer, Tokenizer],
    sources: Sequence[str],
    targets: Sequence[str],
) -> list[AttentionMaps]:
    """Return what a translation model reads when it is given each pair, one at a time.

    Args:
        model: takes `source`, `source_keep` and `target`; it is left in its mode.
        tokenizers: of the source and of the target.
        sources: sentences, none empty.
        targets: what the decoder reads with each; may be empty.

    Raises:
        InputError: the lists are not of one length, or a source is empty.
    """
    if len(sources) != len(targets):
        raise InputError(
            f"{len(sources)} sources for {len(targets)} targets",
            help="give one target for each source, or none to use translations",
        )
    device, training = next(model.parameters()).device, model.training
    reads, writes = tokenizers
    found = []
    model.eval()
    try:
        for number, (source, target) in enumerate(zip(sources, targets, strict=True), 1):
            ids, given = reads.encode(source), [writes.bos, *writes.encode(target)]
            if not ids:
                raise InputError(f"source {number} is empty", help="leave it out")
            source_ids = pad_rows([ids], reads.pad, reads.eos).to(device)
            target_ids = torch.tensor([given], device=device)
            with recording(model) as maps:
                model(source=source_ids, source_keep=source_ids != reads.pad, target=target_ids)
            found.append(
                AttentionMaps(
                    source=tuple(reads.pieces([*ids, reads.eos])),
                    target=tuple(writes.pieces(given)),
                    weights={path: weights[0].float().cpu() for path, weights in maps.items()},
                )
            )
    finally:
        model.train(training)
    return found
