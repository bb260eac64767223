"""Search for the best output sequence, given any model of next-token scores.

Three searches use the small protocol `Stepper` (`active_rows.py`): greedy search, sampling,
and beam search with K hypotheses.  All sentences of a batch advance together in tensors; the
host synchronizes with the device once per step, to decide whether to continue.

Axes in this file, also used as suffixes of tensor names:

    N  sentences                     R  rows, N * K, the beams of a sentence together
    K  hypotheses of a sentence      G  groups of hypotheses
    V  vocabulary                    L  steps taken

Related files: models (`stepper.py`), finished rows (`active_rows.py`), the hypotheses of a
beam (`beams.py`), allowed tokens (`top_k.py`, `logits_processors.py`, `constraints.py`),
text (`translate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..active_rows import ActiveRows, Cancelled, Stepper
from ..settings import BeamSearch, Hypothesis, Penalty, Sampling, TextOf
from .beams import Beams, length_penalty, of_different_texts
from .logits_processors import LogitsProcessor, still
from .top_k import BannedTokens

if TYPE_CHECKING:
    from .constraints import Inclusion
    from .sampling import Sampler


@dataclass(frozen=True, slots=True)
class PromptTokens:
    """Tokens that each sentence reads before it writes, at least one each."""

    tokens: Tensor
    """Ids [N, P]; the end of a shorter prompt is filled."""
    lengths: Tensor
    start: int = 0
    """Tokens before the last one of the shortest prompt, which the stepper has read."""

    @classmethod
    def of(cls, prompts: Sequence[Sequence[int]], device: torch.device) -> PromptTokens:
        """Return prompts of ids, none empty."""
        lengths = [len(prompt) for prompt in prompts]
        filled = [[*prompt, *[0] * (max(lengths) - len(prompt))] for prompt in prompts]
        start = min(lengths) - 1
        return cls(torch.tensor(filled, device=device), torch.tensor(lengths, device=device), start)

    def rows(self, samples: int) -> tuple[Tensor, Tensor]:
        """Return the ids for each row [R, P], and its steps before it writes [R]."""
        wait_N = self.lengths - 1 - self.start
        return self.tokens.repeat_interleave(samples, 0), wait_N.repeat_interleave(samples)


@torch.no_grad()
def greedy(  # noqa: PLR0913 - all by name, and three of them special tokens
    stepper: Stepper,
    *,
    bos: int | PromptTokens,
    eos: Sequence[int],
    pad: int,
    max_lengths_N: Tensor,
    alpha: float = 0.0,
    penalty: Penalty = "gnmt",
    min_length: int = 0,
    processor: LogitsProcessor | None = None,
    never: Collection[int] = (),
    cancelled: Cancelled | None = None,
) -> list[Hypothesis]:
    """Take the most probable token at each step.

    Args:
        stepper: a stepper with one row per sentence.
        bos: the token that every row begins with; never chosen, unless it ends a sentence. Or the
            tokens that each sentence reads first, and then any token may be chosen.
        eos: the tokens that end a sentence.
        pad: fed to sentences that have ended; never chosen after `bos`, unless it ends one.
        max_lengths_N: maximum tokens of each output, end token included; on the stepper's device.
        alpha: strength of the length penalty in `score`; it does not affect the search.
        penalty: form of the length penalty.
        min_length: minimum tokens of an output without its end token; the maximum length takes
            precedence.
        processor: logits processor.
        never: other tokens that are never chosen.
        cancelled: returns the sentences that need not be continued; the hypotheses returned for
            them are meaningless.

    Returns:
        One hypothesis per sentence.
    """
    limit = _longest(stepper, max_lengths_N)
    return _written(
        stepper,
        None,
        _banned(bos, pad, never, eos, min_length, max_lengths_N),
        pad=pad,
        prompts=_prompts(bos, max_lengths_N),
        limit=limit,
        penalty_of=lambda length: length_penalty(length, alpha, penalty),
        processor=processor,
        cancelled=cancelled,
    )


@torch.no_grad()
def sample(  # noqa: PLR0913 - all by name, and four of them special tokens
    stepper: Stepper,
    *,
    sampler: Sampler,
    settings: Sampling,
    bos: int | PromptTokens,
    eos: Sequence[int],
    pad: int,
    max_lengths_N: Tensor,
    processor: LogitsProcessor | None = None,
    never: Collection[int] = (),
    cancelled: Cancelled | None = None,
    text_of: TextOf | None = None,
    ranked: bool = True,
) -> list[list[Hypothesis]]:
    """Sample outputs of each sentence, and return them by their scores, best first.

    They have different texts, so there may be fewer.  Outputs that are not `ranked` are all
    returned, as they were drawn.

    Args:
        stepper: a stepper with `settings.samples` rows per sentence.
        sampler: the random number generators.
        settings: `samples`, `min_length` and the length penalty.
        bos: as in `greedy`, and so are the arguments below.
        eos: end a sentence.
        pad: fed to sentences that have ended.
        max_lengths_N: maximum tokens of each output.
        processor: logits processor; the remaining probabilities are renormalized before a draw.
        never: other tokens that are never chosen.
        cancelled: as in `greedy`.
        text_of: the text of tokens; by default, other tokens are another text.
        ranked: whether to sort them.
    """
    limit, samples = _longest(stepper, max_lengths_N), settings.samples
    hypotheses = _written(
        stepper,
        sampler.choose,
        _banned(
            bos, pad, never, eos, settings.min_length, max_lengths_N.repeat_interleave(samples)
        ),
        pad=pad,
        prompts=_prompts(bos, max_lengths_N),
        limit=limit,
        penalty_of=lambda length: length_penalty(length, settings.alpha, settings.penalty),
        processor=processor,
        cancelled=cancelled,
    )
    rows = [hypotheses[start : start + samples] for start in range(0, len(hypotheses), samples)]
    if not ranked:
        return rows
    return [
        of_different_texts(sorted(row, key=lambda hypothesis: -hypothesis.score), text_of)
        for row in rows
    ]


def _written(  # noqa: PLR0913 - all by name but three
    stepper: Stepper,
    choose: Callable[[Tensor, list[bool] | None], Tensor] | None,
    banned: BannedTokens,
    *,
    pad: int,
    prompts: PromptTokens,
    limit: int,
    penalty_of: Callable[[Tensor], Tensor],
    processor: LogitsProcessor | None,
    cancelled: Cancelled | None,
) -> list[Hypothesis]:
    """Write every row independently, token by token, until it ends or reaches its limit.

    Without `choose` the most probable token is taken.  A row is fed from its prompt while the
    prompt lasts, so rows with longer prompts begin to write later.
    """
    limits_R, start = banned.limits, prompts.start
    active, sentences = ActiveRows(stepper, len(limits_R), cancelled), stepper.rows
    prompt_RP, wait_R = prompts.rows(len(limits_R) // sentences)
    longest_wait, ends_E = prompt_RP.size(1) - 1 - start, limits_R.new_tensor(banned.ends)
    if longest_wait and (processor is not None or banned.min_length):
        msg = "prompts of several lengths have no logits processor and no minimum length"
        raise ValueError(msg)
    token_R, reading_R = prompt_RP[:, start], None
    ended_R = torch.zeros_like(limits_R, dtype=torch.bool)
    stuck_R, open_R = ended_R, ~ended_R
    log_p_R = torch.zeros_like(limits_R, dtype=torch.float32)
    length_R = torch.zeros_like(limits_R)
    written_RL = limits_R.new_empty((len(limits_R), 0))
    for position in range(limit + longest_wait):
        logits_MV = active.step(token_R, start + position)
        now = still(processor, position)
        reading_R = wait_R > position if position < longest_wait else None
        if choose is None and now is None:
            best = banned.best(logits_MV, position, 1, active.rows_M)
            gain_R1, token_R1 = map(active.spread, best)
        else:
            log_p_RV = active.spread(banned.log_probabilities(logits_MV, position, active.rows_M))
            if now is not None:
                log_p_RV = now(log_p_RV, written_RL)
            drawn = None if reading_R is None else (~reading_R).tolist()
            token_R = log_p_RV.argmax(-1) if choose is None else choose(log_p_RV, drawn)
            token_R1 = token_R[:, None]
            gain_R1 = log_p_RV.gather(1, token_R1)
        token_R, writing_R = token_R1[:, 0], open_R
        if reading_R is not None:
            token_R = prompt_RP[:, start + position + 1].where(reading_R, token_R)
            writing_R = open_R & ~reading_R
        # Where every token is banned, the output stops before it.
        stuck_R = stuck_R | (writing_R & (gain_R1[:, 0] == -torch.inf))
        open_R, writing_R = open_R & ~stuck_R, writing_R & ~stuck_R
        log_p_R = torch.where(writing_R, log_p_R + gain_R1[:, 0], log_p_R)
        length_R = length_R + writing_R
        ended_R = ended_R | (writing_R & torch.isin(token_R, ends_E))
        token_R = token_R.masked_fill(~open_R, pad)
        written_RL = torch.cat((written_RL, token_R[:, None]), 1)
        open_NK = (~ended_R & ~stuck_R & (length_R < limits_R)).view(sentences, -1)
        unfinished_N = active.unfinished(open_NK.any(1))
        open_R = (open_NK & unfinished_N[:, None]).flatten()
        remaining = int(unfinished_N.sum())
        if not remaining:
            break
        active.narrow(unfinished_N, remaining)
    score_R = log_p_R / penalty_of(length_R.clamp(min=1))
    return [
        Hypothesis(
            tokens=tuple(tokens[wait : wait + length - ended]),
            log_probability=log_p,
            score=score,
            finished=ended,
        )
        for tokens, wait, length, ended, log_p, score in zip(
            written_RL.tolist(),
            wait_R.tolist(),
            length_R.tolist(),
            ended_R.tolist(),
            log_p_R.tolist(),
            score_R.tolist(),
            strict=True,
        )
    ]


@torch.no_grad()
def beam_search(  # noqa: PLR0913 - all by name, and four of them special tokens
    stepper: Stepper,
    *,
    settings: BeamSearch,
    bos: int | PromptTokens,
    eos: Sequence[int],
    pad: int,
    max_lengths_N: Tensor,
    processor: LogitsProcessor | None = None,
    include: Inclusion | None = None,
    never: Collection[int] = (),
    cancelled: Cancelled | None = None,
    text_of: TextOf | None = None,
) -> list[list[Hypothesis]]:
    """Keep the best hypotheses of each sentence until no other can become the best.

    Each step considers the 2 K best continuations of a sentence.  At most K of them end, so at
    least K can be continued; ended hypotheses compete for K places by score.  A sentence stops
    when the worst of its `nbest` finished scores is at least the best score that a live
    hypothesis can still reach: its log P over the penalty of the maximum length.  Log P only
    decreases, so this loses no result.  A beam of one is `greedy`, as in tensor2tensor; the rule
    above would look past the most probable token.

    With groups, each group searches separately, and a token costs `diversity` for each
    hypothesis of an earlier group that takes it at the same step.

    Args:
        stepper: a stepper with `settings.beam` rows per sentence.
        settings: search settings; `max_extra` and `max_length` are not used here.
        bos: as in `greedy`; prompts have one length.
        eos: the tokens that end a sentence.
        pad: fed to sentences that have stopped.
        max_lengths_N: maximum tokens of each output, end token included; on the stepper's device.
        processor: logits processor, which also applies `include`.
        include: phrases that every output must contain; beam positions are divided accordingly.
        never: other tokens that are never chosen.
        cancelled: returns the sentences that need not be continued; the hypotheses returned for
            them are meaningless.
        text_of: the text of tokens.  Where several hypotheses are wanted, the best one of each text
            counts; the search goes on until there are enough, or the maximum length is reached.

    Returns:
        For each sentence between one and `nbest` hypotheses with different texts, best first: the
        finished ones, or the unfinished ones if none finished within the maximum length, or before
        every token was banned.

    Source: Vaswani et al. 2017, section 6.1; tensor2tensor `beam_search.py`; groups:
    Vijayakumar et al. 2016, section 3; required phrases: Post & Vilar 2018, section 3.
    """
    if settings.beam == 1:
        hypotheses = greedy(
            stepper,
            bos=bos,
            eos=eos,
            pad=pad,
            max_lengths_N=max_lengths_N,
            alpha=settings.alpha,
            penalty=settings.penalty,
            min_length=settings.min_length,
            processor=processor,
            never=never,
            cancelled=cancelled,
        )
        return [[hypothesis] for hypothesis in hypotheses]
    limit = _longest(stepper, max_lengths_N)
    sentences, groups = len(max_lengths_N), settings.groups
    group_size = settings.beam // groups
    text_of = text_of if settings.nbest > 1 else None
    beams = [
        Beams(max_lengths_N, settings, eos=eos, include=include, text_of=text_of)
        for _ in range(groups)
    ]
    own_NK = torch.arange(sentences * settings.beam, device=max_lengths_N.device).view(
        sentences, settings.beam
    )
    banned = _banned(
        bos, pad, never, eos, settings.min_length, max_lengths_N.repeat_interleave(settings.beam)
    )
    prompts = _prompts(bos, max_lengths_N)
    start = prompts.tokens.size(1) - 1
    if start != prompts.start:
        msg = "beams of one batch continue prompts of one length"
        raise ValueError(msg)
    active = ActiveRows(stepper, own_NK.numel(), cancelled)
    token_R = prompts.tokens[:, start].repeat_interleave(settings.beam)
    written_RL = own_NK.new_empty((own_NK.numel(), 0))
    for position in range(limit):
        logits_MV = active.step(token_R, start + position)
        now = still(processor, position)
        if now is None and groups == 1:
            count = beams[0].looked_at(logits_MV.size(1))
            best = banned.best(logits_MV, position, count, active.rows_M)
            best_RC, token_RC = map(active.spread, best)
            token_NK, place_NK = beams[0].extend_by(best_RC, token_RC, written_RL)
        else:
            log_p_RV = active.spread(banned.log_probabilities(logits_MV, position, active.rows_M))
            if now is not None:
                log_p_RV = now(log_p_RV, written_RL)
            token_NK, place_NK = _extended(beams, log_p_RV, written_RL)
        # Stopped sentences do not move, and after the first step all rows of a sentence are equal.
        for group_beams in beams:
            group_beams.open_N = active.unfinished(group_beams.open_N)
        open_NK = torch.stack([group_beams.open_N for group_beams in beams], 1).repeat_interleave(
            group_size, 1
        )
        row_NK = (place_NK + own_NK[:, :1]).where(open_NK, own_NK)
        open_N = open_NK.any(1)
        remaining, any_moved = torch.stack((open_N.sum(), (row_NK != own_NK).sum())).tolist()
        if not remaining:
            break
        if any_moved and position > 0:
            active.reorder(row_NK.flatten())
        active.narrow(open_N, remaining)
        token_R = token_NK.masked_fill(~open_NK, pad).flatten()
        if processor is not None or text_of is not None:
            written_RL = torch.cat((written_RL[row_NK.flatten()], token_R[:, None]), 1)
    return _merged([group_beams.results() for group_beams in beams], settings, text_of)


def _extended(beams: list[Beams], log_p_RV: Tensor, written_RL: Tensor) -> tuple[Tensor, Tensor]:
    """Extend every group; return the new token and parent of every beam position."""
    if len(beams) == 1:
        return beams[0].extend(log_p_RV, None, written_RL)
    sentences, vocabulary = len(beams[0].limit_N), log_p_RV.size(1)
    log_p_NGKV = log_p_RV.view(sentences, len(beams), -1, vocabulary)
    written_NGKL = written_RL.view(*log_p_NGKV.shape[:3], -1)
    vocab_size = log_p_NGKV.size(2)
    taken_NV = log_p_RV.new_zeros(sentences, vocabulary)
    tokens, places = [], []
    for group, group_beams in enumerate(beams):
        open_N1 = group_beams.open_N[:, None]  # a group that is settled takes nothing more
        token_NK, place_NK = group_beams.extend(
            log_p_NGKV[:, group].flatten(0, 1), taken_NV, written_NGKL[:, group].flatten(0, 1)
        )
        taken_NK = (open_N1 & (group_beams.live_NK > -torch.inf)).to(taken_NV)
        taken_NV = taken_NV.scatter_add(1, token_NK, taken_NK)
        tokens.append(token_NK)
        places.append(place_NK + group * vocab_size)
    return torch.cat(tokens, 1), torch.cat(places, 1)


def _merged(
    groups: list[list[list[Hypothesis]]], settings: BeamSearch, text_of: TextOf | None
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, with different texts.

    Only finished hypotheses if there are any, unless truncated ones count as finished.
    """
    apart = settings.ends == "any"
    merged = []
    for parts in zip(*groups, strict=True):
        together = [hypothesis for part in parts for hypothesis in part]
        together.sort(key=lambda hypothesis: (apart and not hypothesis.finished, -hypothesis.score))
        once = of_different_texts(together, text_of)
        if apart and once[0].finished:
            once = [hypothesis for hypothesis in once if hypothesis.finished]
        merged.append(once[: settings.nbest])
    return merged


def _longest(stepper: Stepper, max_lengths_N: Tensor) -> int:
    """Return the maximum of all lengths, after checking that there is one per sentence."""
    if max_lengths_N.shape != (stepper.rows,):
        msg = (
            f"'max_lengths_N' must have shape ({stepper.rows},), one length per sentence, "
            f"not {tuple(max_lengths_N.shape)}"
        )
        raise ValueError(msg)
    shortest, longest = torch.stack(torch.aminmax(max_lengths_N)).tolist()
    if shortest < 1:
        msg = f"every maximum length must be at least 1, got {shortest}"
        raise ValueError(msg)
    return int(longest)


def _banned(
    bos: int | PromptTokens,
    pad: int,
    never: Collection[int],
    eos: Sequence[int],
    min_length: int,
    limits_R: Tensor,
) -> BannedTokens:
    special = () if isinstance(bos, PromptTokens) else (bos, pad)
    return BannedTokens({*special, *never}.difference(eos), tuple(eos), min_length, limits_R)


def _prompts(bos: int | PromptTokens, lengths_N: Tensor) -> PromptTokens:
    """Return the prompts; those of one token for a token."""
    if isinstance(bos, PromptTokens):
        return bos
    return PromptTokens(torch.full_like(lengths_N, bos)[:, None], torch.ones_like(lengths_N))
