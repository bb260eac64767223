"""Continue prompts of ids with a decoder-only model: by beams, greedily or by sampling."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from ...graphs.ir.graph import Graph
from ...graphs.ir.traverse import position_limits
from ...specs.findings import InputError
from ..codegen.generated import program_of
from .decode import Request, SpecialTokens, decode_ids, masks_of, refuse_ids
from .inputs import Inputs, NoInputs
from .settings import BeamSearch, GenerateSettings, Hypothesis, Sampling, TextOf

if TYPE_CHECKING:
    from .search.constraints import Avoidance


def generate_ids(
    model: nn.Module,
    prompts: Sequence[Sequence[int]],
    settings: GenerateSettings,
    *,
    eos: Collection[int] = (),
    include: Sequence[Sequence[Sequence[int]]] = (),
    half: bool = False,
) -> list[list[Hypothesis]]:
    """Return the continuations of prompts of ids, as `generate_with` does.

    Args:
        model: in evaluation mode; its only input is ids.
        prompts: ids, at least one each.
        settings: how continuations are generated, and how many for each prompt.
        eos: the tokens that end a row; if empty, rows end after `max_new` tokens.
        include: for each prompt, phrases of ids that its continuations contain; empty for none.
        half: whether to run matrix products in bfloat16.

    Raises:
        InputError: as for `generate_with`, or `avoid` bans texts.
    """
    if settings.avoid:
        raise InputError(
            "'avoid' bans texts, but there is no tokenizer", help="leave it out for token ids"
        )
    phrases = include or [()] * len(prompts)
    requests = [
        Request((), prompt=prompt, include=required)
        for prompt, required in zip(prompts, phrases, strict=True)
    ]
    return generate_with(model, requests, settings, eos=eos, half=half)


def generate_with(
    model: nn.Module,
    requests: Sequence[Request],
    settings: GenerateSettings,
    *,
    eos: Collection[int] = (),
    inputs: Inputs | None = None,
    avoidance: Avoidance | None = None,
    text_of: TextOf | None = None,
    half: bool = False,
) -> list[list[Hypothesis]]:
    """Return the continuations of each prompt: `samples` of them, or the best of its beams.

    A continuation depends only on its own prompt and the seed.  It ends where the model has no more
    positions.  Prompts of different lengths are continued together where a row needs nothing but
    its own tokens, and otherwise those of one length.

    Args:
        model: in evaluation mode; its step axis belongs to one input of ids and, optionally, to
            masks.
        requests: prompts, at least one id each, and what their continuations contain; all are
            decoded in one batch.
        settings: how continuations are generated, and how many for each prompt.
        eos: the tokens that end a row; if empty, rows end after `max_new` tokens.
        inputs: what fills the inputs without the step axis; None if there are none.
        avoidance: the banned phrases of the settings, compiled for the vocabulary.
        text_of: the text of an output; by default, other ids are another text.
        half: whether to run matrix products in bfloat16.

    Raises:
        InputError: the model does not support this, or a prompt is empty, has an id outside the
            vocabulary, or has more tokens than the model has positions.
    """
    graph = program_of(model).graph
    moving = check_generates(graph, graph.inputs if inputs is not None else ())
    prompts = [request.prompt for request in requests]
    refuse_ids("prompt", prompts, int(graph.inputs[moving].size or 0))
    positions = min(position_limits(graph), default=None)
    longest = max(map(len, prompts), default=0)
    if positions is not None and longest > positions:
        raise InputError(
            f"the prompt has {longest} tokens, but the model has {positions} positions",
            location="prompt",
            help="shorten it",
        )
    search, ends = settings.search(), tuple(sorted(eos))
    numbered = [
        replace(request, location=f"prompt {number}") for number, request in enumerate(requests, 1)
    ]
    hypotheses: dict[int, list[Hypothesis]] = {}
    for rows in _batches(requests, search):
        decoded = decode_ids(
            [model],
            [numbered[row] for row in rows],
            SpecialTokens(0, 0, 0, ends=ends),
            search,
            avoidance=avoidance,
            inputs=inputs or NoInputs(moving, masks_of(graph)),
            text_of=text_of,
            half=half,
        )
        hypotheses |= zip(rows, decoded, strict=True)
    return [hypotheses[row] for row in range(len(requests))]


def _batches(requests: Sequence[Request], search: BeamSearch | Sampling) -> Iterator[list[int]]:
    """Yield the rows that are decoded together."""
    alone = isinstance(search, Sampling) or search.beam == 1
    restricted = search.avoid or search.min_length or search.no_repeat
    restricted = restricted or search.repetition_penalty > 1
    if alone and not restricted and not any(request.include for request in requests):
        if requests:
            yield [*range(len(requests))]
        return
    by_length: dict[int, list[int]] = {}
    for row, request in enumerate(requests):
        by_length.setdefault(len(request.prompt), []).append(row)
    yield from by_length.values()


def check_generates(graph: Graph, fixed: Collection[str] = ()) -> str:
    """Return the input of ids that a decoder-only model writes.

    Args:
        graph: graph of the model.
        fixed: inputs without the step axis for which there are values.

    Raises:
        InputError: it has other inputs, no step axis or no logits.
    """
    moving = {n: t.kind for n, t in graph.inputs.items() if graph.step_axis in t.axes}
    ids = [name for name, kind in moving.items() if kind == "ids"]
    if graph.step_axis is None or len(ids) != 1 or "logits" not in graph.outputs:
        raise InputError(
            "generation needs a spec with a step axis, whose only input is ids, and 'logits'",
            location=graph.source,
            help='declare one input of ids, such as "tokens": "ids:vocab[B T]", and set \'step\'',
        )
    others = [n for n, kind in moving.items() if kind not in {"ids", "mask"}]
    others += [n for n in graph.inputs if n not in moving and n not in fixed]
    if others:
        raise InputError(
            f"generation needs a spec whose only input is ids, but '{graph.name}' also reads"
            f" {', '.join(map(repr, others))}",
            location=graph.source,
            help="use 'weft predict' with rows that have the columns of these inputs",
        )
    return ids[0]
