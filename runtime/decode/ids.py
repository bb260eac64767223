"""Ids: from ids of sources to ids of outputs, without any text.

Axes: N sentences, S positions of the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from ...graphs.graph import Graph
from ...specs.findings import InputError
from .search import Hypothesis, SearchSettings, beam_search, greedy
from .stepper import ModelStepper


class Special(NamedTuple):
    """Ids of an output that are no words."""

    begin: int
    end: int
    pad: int


@torch.inference_mode()
def decode_ids(
    model: nn.Module,
    sources: Sequence[Sequence[int]],
    special: Special,
    search: SearchSettings,
    *,
    half: bool = False,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of a batch of sources, best first.

    Args:
        model: reads `source` and `source_keep`, and is asked for the next of `target`.
        sources: ids of each, its end token too if the model wants one; at least one each.
        special: with which outputs begin and end, and what fills rows on either side.
        search: how outputs are looked for.
        half: whether matrix products run in bfloat16.
    """
    device = next(model.parameters()).device
    rows = [torch.tensor(ids, dtype=torch.long, device=device) for ids in sources]
    source_NS = pad_sequence(rows, batch_first=True, padding_value=special.pad)
    lengths_N = torch.tensor([len(ids) for ids in sources], device=device)
    keep_NS = torch.arange(source_NS.size(1), device=device) < lengths_N[:, None]
    limits_N = lengths_N + search.max_extra
    if search.max_length is not None:
        limits_N = limits_N.clamp(max=search.max_length)
    with torch.autocast(device.type, torch.bfloat16, enabled=half):
        stepper = ModelStepper(
            model,
            {"source": source_NS, "source_keep": keep_NS},
            beams=search.beam,
            length=int(limits_N.max()),
        )
        ids = {"bos": special.begin, "eos": special.end, "pad": special.pad}
        if search.beam == 1:
            best = greedy(stepper, max_lengths_N=limits_N, **ids)
            return [[hypothesis] for hypothesis in best]
        return beam_search(stepper, settings=search, max_lengths_N=limits_N, **ids)


def check_ids(graph: Graph, sources: Sequence[Sequence[int]]) -> None:
    """Refuse a graph or sources that `decode_ids` does not work with.

    Raises:
        InputError: the graph has other inputs, does not step, or a source is empty or has
            an id that is not the model's.
    """
    kinds = {name: type_.kind for name, type_ in graph.inputs.items()}
    wanted = {"source": "ids", "source_keep": "keep", "target": "ids"}
    if kinds != wanted or graph.step_axis is None or "logits" not in graph.outputs:
        raise InputError(
            "only an encoder-decoder of ids decodes sources, step by step",
            place=f"{graph.source}#/inputs",
            help=f"its inputs are {', '.join(wanted)}, and 'step' names the axis of 'target'",
        )
    size = int(graph.inputs["source"].size or 0)
    for index, ids in enumerate(sources):
        outside = [one for one in ids if not 0 <= one < size]
        if outside or not ids:
            problem = f"has the id {outside[0]}" if outside else "is empty"
            help_ = f"give ids from 0 to {size - 1}, one at least"
            raise InputError(f"source {index + 1} {problem}", help=help_)
