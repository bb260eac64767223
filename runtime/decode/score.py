"""Score given outputs: the probability of each token, given its source.

Axes: B pairs, T target positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from ..codegen.generated import program_of
from ..data.batches import pad_rows
from ..data.symbols import lacking
from .decode import Request, masks_of
from .inputs import fitting_of, refuse_long
from .predictors.predictor import Row
from .predictors.text import TextPredictor, Warn
from .search.beams import length_penalty
from .settings import BUFFER, BeamSearch
from .stepper import mean_log_p

BATCH_ROWS = 32
"""Pairs that are scored in one batch."""


@dataclass(frozen=True, slots=True)
class Scored:
    """The probability of one output, given its source."""

    tokens: tuple[str, ...]
    """Pieces of the output, including the end token."""
    log_probabilities: tuple[float, ...]
    """Natural logarithm of the probability of each token, given the tokens before it."""
    score: float
    """Sum of the log probabilities, divided by the search's length penalty."""

    @property
    def log_probability(self) -> float:
        """Natural logarithm of the probability of the complete output."""
        return sum(self.log_probabilities)


def score_pairs(
    predictor: TextPredictor,
    pairs: Iterable[tuple[Row, str]],
    *,
    buffer: int = BUFFER,
    warn: Warn | None = None,
) -> Iterator[Scored]:
    """Yield the score of each pair of row and output, in order; both may be empty.

    Sources are truncated as the predictor truncates them.

    Args:
        predictor: model, vocabularies and length penalty to score with.
        pairs: rows, as the predictor reads them, and outputs.
        buffer: pairs to read ahead; they are sorted by length.
        warn: called for each pair whose source is truncated, or that has unknown characters.

    Raises:
        InputError: a pair has more tokens than the model has positions.
    """
    stream, start, warn = iter(pairs), 0, warn or _ignore
    while chunk := list(islice(stream, buffer)):
        requests = predictor.requests([row for row, _ in chunk], start, warn)
        targets = predictor.target.encode_many([target for _, target in chunk])
        sources = [request.source for request in requests]
        refuse_long(predictor.context.models, zip(sources, targets, strict=True), start)
        for number, ((_, text), ids) in enumerate(zip(chunk, targets, strict=True), start + 1):
            if problem := lacking(predictor.target, text, ids, "the output"):
                warn(number, problem)
        order = sorted(range(len(chunk)), key=lambda i: (len(targets[i]), len(sources[i])))
        scored: dict[int, Scored] = {}
        for first in range(0, len(order), BATCH_ROWS):
            rows = order[first : first + BATCH_ROWS]
            batch = _scored(predictor, [requests[i] for i in rows], [targets[i] for i in rows])
            scored |= zip(rows, batch, strict=True)
        yield from (scored[index] for index in range(len(chunk)))
        start += len(chunk)


def _ignore(*_: object) -> None:
    """Do nothing."""


@torch.inference_mode()
def _scored(
    predictor: TextPredictor, requests: Sequence[Request], targets: Sequence[Sequence[int]]
) -> Iterator[Scored]:
    """Yield the scores of a batch."""
    models, written = predictor.context.models, predictor.target
    device = next(models[0].parameters()).device
    sources, others = [r.source for r in requests], [r.others for r in requests]
    source = pad_rows(sources, predictor.source.pad, predictor.source.eos).to(device)
    target = pad_rows(targets, written.pad, written.eos).to(device)
    first = torch.full_like(target[:, :1], written.bos)
    inputs = predictor.inputs.fixed(source, source != predictor.source.pad, others)
    inputs[predictor.inputs.written] = torch.cat((first, target[:, :-1]), 1)
    for name in masks_of(program_of(models[0]).graph):
        inputs[name] = target != written.pad
    with torch.autocast(device.type, torch.bfloat16, enabled=predictor.context.half):
        length = target.size(1)
        log_p_BTV = mean_log_p(
            [model(**fitting_of(model).fit(inputs))["logits"][:, :length] for model in models]
        )
    log_p_BT = log_p_BTV.gather(-1, target[..., None])[..., 0].cpu()
    search = predictor.search if isinstance(predictor.search, BeamSearch) else BeamSearch()
    for ids, log_p_T in zip(targets, log_p_BT.tolist(), strict=True):
        log_probs = tuple(log_p_T[: len(ids) + 1])
        penalty = length_penalty(len(log_probs), search.alpha, search.penalty).item()
        pieces = tuple(written.pieces([*ids, written.eos]))
        yield Scored(pieces, log_probs, sum(log_probs) / penalty)
