"""Decode batches of source ids to output ids; text is handled elsewhere.

Axes: N sentences, S positions of the sources.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ...graphs.ir.graph import Graph
from ...specs.findings import InputError
from ..codegen.generated import program_of
from ..compile.decoder import passes_of, steps_of
from ..data.symbols import Vocabulary
from .active_rows import BlockStepper, Cancelled, Stepper
from .inputs import Inputs, UsualInputs, fitting_of, positions_of
from .search.logits_processors import (
    Beginning,
    LogitsProcessor,
    chained,
    no_repeat,
    repetition_penalty,
    winning,
)
from .search.search import PromptTokens, beam_search, sample
from .settings import BeamSearch, Hypothesis, Sampling, TextOf
from .stepper import EnsembleStepper, ModelStepper
from .threads import threads_for

if TYPE_CHECKING:
    from .search.constraints import Avoidance, Inclusion
    from .shortlist.reduced import Reduced


class SpecialTokens(NamedTuple):
    """Ids with a special role in the outputs."""

    begin: int
    end: int
    pad: int
    never: frozenset[int] = frozenset()
    """Further ids that are never written."""
    ends: tuple[int, ...] | None = None
    """The ids that end an output; `end` alone if None."""

    @classmethod
    def of(cls, target: Vocabulary) -> SpecialTokens:
        """Return the special tokens of a vocabulary.

        `unk` is never written if the vocabulary can spell every text.
        """
        never = frozenset({target.unk}) if target.spells_all else frozenset[int]()
        return cls(target.bos, target.eos, target.pad, never)


Constraint = Callable[[Sequence[int]], LogitsProcessor]
"""Takes the maximum number of tokens of each of the N outputs; returns a logits processor."""


@dataclass(frozen=True, slots=True)
class Request:
    """One source to decode, with requirements on its output, in ids."""

    source: Sequence[int]
    """Source ids, with the end token if the model expects one."""
    begin: Sequence[int] = ()
    """Forced prefix: tokens that the output must begin with."""
    include: Sequence[Sequence[int]] = ()
    """Non-empty phrases that the output must contain."""
    capacity: int = 0
    """Minimum length limit, including the end token; overrides smaller limits of the settings."""
    others: Mapping[str, Any] = field(default_factory=dict)
    """Encoded values of further columns, by name, that inputs of the models are made of."""
    other_length: int = 0
    """Tokens of the longest text among them; outputs may be as long as for such a source."""
    location: str = ""
    """What to call the request in errors; `""` for its number in the batch."""
    prompt: Sequence[int] = ()
    """Ids that the model reads before it writes, instead of the begin token; all requests of a
    batch have them, or none. Any id may follow them."""


@torch.inference_mode()
def decode_ids(  # noqa: PLR0913 - all by name but four
    models: Sequence[nn.Module],
    requests: Sequence[Request],
    special_tokens: SpecialTokens,
    search: BeamSearch | Sampling,
    *,
    avoidance: Avoidance | None = None,
    constraint: Constraint | None = None,
    inputs: Inputs | None = None,
    text_of: TextOf | None = None,
    half: bool = False,
    cancelled: Cancelled | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of a batch of sources, with different texts, best first.

    Args:
        models: models with the same inputs and a step axis; their probabilities are averaged.
        requests: sources, each with at least one id, and the requirements on their outputs.
        special_tokens: ids that begin, end and pad outputs; `pad` also fills the sources.
        search: settings of the search.
        avoidance: the banned phrases `search.avoid`, compiled for the vocabulary.
        constraint: makes an additional logits processor, given by the task.
        inputs: what fills the inputs of the models; default: `source`, `source_mask`, `target`.
        text_of: the text of an output; by default, other ids are another text.
        half: whether to run matrix products in bfloat16.
        cancelled: returns the sources whose outputs are not needed; the hypotheses returned for
            them are meaningless.

    Raises:
        InputError: the models have different shortlists, or a source, or what its output must
            contain, is longer than the models have positions.
    """
    device = next(models[0].parameters()).device
    rows = [torch.tensor(request.source, dtype=torch.long, device=device) for request in requests]
    source_NS = pad_sequence(rows, batch_first=True, padding_value=special_tokens.pad)
    lengths_N = torch.tensor([len(request.source) for request in requests], device=device)
    mask_NS = torch.arange(source_NS.size(1), device=device) < lengths_N[:, None]
    before_N = lengths_N.new_tensor([max(0, len(request.prompt) - 1) for request in requests])
    limits_N = _limits(lengths_N, requests, search, positions_of(*models), before_N)
    inputs = inputs or UsualInputs()
    processors = [] if constraint is None else [constraint(limits_N.tolist())]
    if avoidance is not None:
        required = [
            [request.begin, *request.include] for request in requests for _ in range(search.rows)
        ]
        processors.append(avoidance.processor(limits_N.repeat_interleave(search.rows), required))
    reduced = _reduced(models, requests, special_tokens)
    if reduced is not None:
        # From here to the hypotheses, tokens of outputs are places in the reduced vocabulary.
        requests, special_tokens = _placed(requests, special_tokens, reduced)
        processors = [reduced.widened(processor) for processor in processors]
        text_of = None if text_of is None else reduced.text_of(text_of)
    ends = (special_tokens.end,) if special_tokens.ends is None else special_tokens.ends
    include = _inclusion(requests, limits_N, search, ends)
    processor = _processor(requests, search, processors, include)
    prompts = [request.prompt for request in requests if request.prompt]
    bos = PromptTokens.of(prompts, device) if prompts else special_tokens.begin
    ids: dict[str, Any] = {"bos": bos, "eos": ends, "pad": special_tokens.pad}
    never = special_tokens.never
    threads = threads_for(models, len(requests) * search.rows)
    with threads, torch.autocast(device.type, torch.bfloat16, enabled=half):
        fixed = inputs.fixed(source_NS, mask_NS, [request.others for request in requests])
        shape = {
            "beams": search.rows,
            "length": int((limits_N + before_N).max()),
            "moving": inputs.written,
            "sentences": len(requests),
        }
        steppers = [
            _stepper(model, fitting_of(model).fit(fixed), reduced, shape) for model in models
        ]
        reading: BlockStepper = steppers[0] if len(steppers) == 1 else EnsembleStepper(steppers)
        stepper: Stepper = reading
        if isinstance(bos, PromptTokens):
            if bos.start:
                reading.read(bos.rows(search.rows)[0][:, : bos.start])
        elif all(request.begin for request in requests):
            size = int(program_of(models[0]).graph.inputs[inputs.written].size or 0)
            size = size if reduced is None else len(reduced.ids)
            stepper = _forced(reading, requests, special_tokens, search.rows, size, device)
        if isinstance(search, BeamSearch):
            hypotheses = beam_search(
                stepper,
                settings=search,
                max_lengths_N=limits_N,
                processor=processor,
                include=include,
                never=never,
                cancelled=cancelled,
                text_of=text_of,
                **ids,
            )
        else:
            from .search.sampling import Sampler

            among = None if reduced is None else (reduced.ids, reduced.size)
            sources = prompts or [request.source for request in requests]
            hypotheses = sample(
                stepper,
                sampler=Sampler(search, sources, search.rows, among=among),
                settings=search,
                max_lengths_N=limits_N,
                processor=processor,
                never=never,
                cancelled=cancelled,
                text_of=text_of,
                ranked=search.ranked,
                **ids,
            )
    return hypotheses if reduced is None else reduced.hypotheses(hypotheses)


def _reduced(
    models: Sequence[nn.Module], requests: Sequence[Request], special_tokens: SpecialTokens
) -> Reduced | None:
    """Return the reduced vocabulary of a batch, with the tokens that its search needs."""
    if all(model.training or passes_of(model).shortlist is None for model in models):
        return None
    from .shortlist.reduced import reduced_vocabulary

    forced = [
        [*request.begin, *(token for phrase in request.include for token in phrase)]
        for request in requests
    ]
    always = [*special_tokens[:3], *special_tokens.never]
    return reduced_vocabulary(models, [request.source for request in requests], forced, always)


def _placed(
    requests: Sequence[Request], special_tokens: SpecialTokens, reduced: Reduced
) -> tuple[list[Request], SpecialTokens]:
    """Return requests and special tokens in a reduced vocabulary; sources keep their ids."""
    placed = [
        replace(
            request,
            begin=reduced.places(request.begin),
            include=[reduced.places(phrase) for phrase in request.include],
        )
        for request in requests
    ]
    begin, end, pad = reduced.places(special_tokens[:3])
    never = frozenset(reduced.places(sorted(special_tokens.never)))
    return placed, SpecialTokens(begin, end, pad, never)


def _stepper(
    model: nn.Module,
    fixed: Mapping[str, Tensor],
    reduced: Reduced | None,
    shape: Mapping[str, Any],
) -> BlockStepper:
    """Return the stepper of a model, over the reduced vocabulary if there is one.

    Args:
        model: the model.
        fixed: its inputs without the step axis.
        reduced: the reduced vocabulary.
        shape: settings of the stepper: `beams`, `length` and the input that is `moving`.
    """
    masks = masks_of(program_of(model).graph)
    if reduced is None:
        return stepper_of(model, fixed, masks=masks, **shape)
    from .shortlist.reduced import ReducedStepper

    stepper = stepper_of(model, fixed, masks=masks, candidates=reduced.ids, **shape)
    return ReducedStepper(stepper, reduced, shape["beams"])


def _forced(
    reading: BlockStepper,
    requests: Sequence[Request],
    special_tokens: SpecialTokens,
    beams: int,
    vocabulary: int,
    device: torch.device,
) -> Stepper:
    """Return a stepper that has read the tokens with which all outputs begin, if there are any."""
    from .forced_prefix import ForcedPrefix, common

    impossible = {*special_tokens[:3], *special_tokens.never}
    many = common([request.begin for request in requests], impossible)
    if not many:
        return reading
    first = [[special_tokens.begin, *request.begin[:many]] for request in requests]
    first_NT = torch.tensor(first, device=device)
    return ForcedPrefix(reading, first_NT, beams=beams, vocabulary=vocabulary)


def stepper_of(model: nn.Module, fixed: Mapping[str, Tensor], **settings: Any) -> ModelStepper:
    """Return the stepper that a model's `Steps` ask for; arguments as of `ModelStepper`."""
    if not steps_of(model).records_batch():
        return ModelStepper(model, fixed, **settings)
    from .graphed import GraphedStepper

    return GraphedStepper(model, fixed, **settings)


def masks_of(graph: Graph) -> tuple[str, ...]:
    """Return the masks of a graph with its step axis."""
    return tuple(
        name
        for name, type_ in graph.inputs.items()
        if type_.kind == "mask" and graph.step_axis in type_.axes
    )


def _limits(
    lengths_N: Tensor,
    requests: Sequence[Request],
    search: BeamSearch | Sampling,
    positions: int | None,
    before_N: Tensor,
) -> Tensor:
    """Return the maximum length of each output; required phrases and prefixes always fit.

    Raises:
        InputError: a source, a further text or what the output must contain has more tokens than
            there are positions.
    """
    longer_N = lengths_N.new_tensor([request.other_length for request in requests])
    needed = [
        max(len(request.begin) + sum(map(len, request.include)) + 1, request.capacity)
        for request in requests
    ]
    limits_N = (lengths_N.maximum(longer_N) * search.max_factor).long() + search.max_extra
    if search.max_length is not None:
        limits_N = limits_N.clamp(max=search.max_length)
    if positions is not None:
        limits_N = limits_N.minimum(positions - before_N)
        for number, (request, least) in enumerate(zip(requests, needed, strict=True), 1):
            for what, tokens in (
                ("source", len(request.source)),
                ("further text", request.other_length),
                ("required output", least + max(0, len(request.prompt) - 1)),
            ):
                if tokens > positions:
                    raise InputError(
                        f"the {what} has {tokens} tokens, end token included, but the model has"
                        f" {positions} positions",
                        location=request.location or f"source {number}",
                        help="shorten it, or leave it out",
                    )
    return limits_N.maximum(torch.tensor(needed, device=limits_N.device))


def _processor(
    requests: Sequence[Request],
    search: BeamSearch | Sampling,
    additional: Sequence[LogitsProcessor],
    include: Inclusion | None,
) -> LogitsProcessor | None:
    """Return one logits processor for settings, requests and the task; None if none is needed."""
    processors = list[LogitsProcessor](additional)
    if search.repetition_penalty > 1:
        processors.append(repetition_penalty(search.repetition_penalty))
    if search.no_repeat:
        processors.append(no_repeat(search.no_repeat, None if include is None else include.next))
    processor = chained(processors)
    if include is not None:
        processor = winning(processor, include)
    if any(request.begin for request in requests):
        processor = winning(
            processor, Beginning([request.begin for request in requests], search.rows)
        )
    return processor


def _inclusion(
    requests: Sequence[Request],
    limits_N: Tensor,
    search: BeamSearch | Sampling,
    ends: Sequence[int],
) -> Inclusion | None:
    if not any(request.include for request in requests):
        return None
    from .search.constraints import Inclusion

    phrases = [request.include for request in requests]
    return Inclusion(phrases, search.rows, limits_N.tolist(), ends, search.no_repeat)


def check_ids(graph: Graph, sources: Sequence[Sequence[int]]) -> None:
    """Raise if a graph or its sources cannot be decoded by `decode_ids`.

    Raises:
        InputError: the graph has other inputs or has no step axis, or a source is empty or has an
            id outside the model's vocabulary.
    """
    kinds = {name: type_.kind for name, type_ in graph.inputs.items()}
    expected = {"source": "ids", "source_mask": "mask", "target": "ids"}
    if kinds != expected or graph.step_axis is None or "logits" not in graph.outputs:
        raise InputError(
            "decoding sources needs an encoder-decoder over ids with a step axis",
            location=f"{graph.source}#/inputs",
            help=f"declare the inputs {', '.join(expected)}, and set 'step' to the axis of"
            " 'target'",
        )
    refuse_ids("source", sources, int(graph.inputs["source"].size or 0))


def refuse_ids(name: str, rows: Sequence[Sequence[int]], size: int) -> None:
    """Raise if a row is empty or has an id outside the vocabulary.

    Args:
        name: what to call a row in messages, such as `source`.
        rows: ids.
        size: size of the vocabulary.

    Raises:
        InputError: a row is empty or has an id outside the vocabulary.
    """
    for number, ids in enumerate(rows, 1):
        outside = [token_id for token_id in ids if not 0 <= token_id < size]
        if outside or not ids:
            problem = f"has the id {outside[0]}" if outside else "is empty"
            help_ = f"give at least one id, each from 0 to {size - 1}"
            raise InputError(f"{name} {number} {problem}", help=help_)
