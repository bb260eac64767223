"""Search: from next-word scores to the best sequence, whatever gives the scores.

Three ways over one small protocol, `Stepper` (`active.py`): take the best word each time, draw one,
or keep a beam of K hypotheses.  All sentences of a batch move together in tensors; the
host waits for the device once a step, to learn whether to go on.

Axes in this file, also used as suffixes of tensor names:

    N  sentences                     R  rows, N * K, the beams of a sentence together
    K  hypotheses of a sentence      G  groups of hypotheses
    V  vocabulary                    L  steps taken

Not here: models (`stepper.py`), rows that are done (`active.py`), what beams keep
(`beams.py`), what may come next (`candidates.py`, `controls.py`, `phrases.py`), text
(`translate.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from ..active_rows import ActiveRows, Cancelled, Stepper
from ..settings import Hypothesis, Penalty, SearchSettings, length_penalty
from .beams import Beams
from .constraints import Inclusion
from .logits_processors import LogitsProcessor, chained, still
from .sampling import Sampler
from .top_k import BannedTokens


@torch.no_grad()
def greedy(  # noqa: PLR0913 - what a search hangs on
    stepper: Stepper,
    *,
    bos: int,
    eos: int,
    pad: int,
    max_lengths_N: Tensor,
    alpha: float = 0.0,
    penalty: Penalty = "gnmt",
    min_length: int = 0,
    processor: LogitsProcessor | None = None,
    never: Collection[int] = (),
    cancelled: Cancelled | None = None,
) -> list[Hypothesis]:
    """Take the most probable token each time.

    Args:
        stepper: begun with one row a sentence.
        bos: the token that every row begins with; never chosen, unless it is `eos`.
        eos: the token that ends a sentence.
        pad: fed to sentences that have ended; never chosen, unless it is `eos`.
        max_lengths_N: most tokens of each output, `eos` among them; on the stepper's
            device.
        alpha: strength of the length penalty in `score`; changes no choice.
        penalty: its form.
        min_length: fewest tokens of an output, its end aside, where there is room for them.
        processor: what may come next.
        never: other tokens that are never chosen.
        cancelled: sentences that need not go on; what is returned for them means nothing.

    Returns:
        One hypothesis a sentence.
    """
    limit = _longest(stepper, max_lengths_N)
    return _written(
        stepper,
        None,
        _banned((bos, pad, *never), eos, min_length, max_lengths_N),
        pad=pad,
        first=bos,
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
    settings: SearchSettings,
    bos: int,
    eos: int,
    pad: int,
    max_lengths_N: Tensor,
    processor: LogitsProcessor | None = None,
    never: Collection[int] = (),
    cancelled: Cancelled | None = None,
) -> list[list[Hypothesis]]:
    """Draw `beam` outputs of each sentence, and return the `nbest` of best score.

    Args:
        stepper: begun with `settings.beam` rows a sentence.
        sampler: where the draws come from.
        settings: `beam`, `nbest`, `min_length` and the length penalty.
        bos: as in `greedy`, and so are the others.
        eos: ends a sentence.
        pad: fed to sentences that have ended.
        max_lengths_N: most tokens of each output.
        processor: what may come next; its probabilities are scaled up before a draw.
        never: other tokens that are never chosen.
        cancelled: as in `greedy`.
    """
    limit, beam = _longest(stepper, max_lengths_N), settings.beam
    found = _written(
        stepper,
        sampler.choose,
        _banned(
            (bos, pad, *never), eos, settings.min_length, max_lengths_N.repeat_interleave(beam)
        ),
        pad=pad,
        first=bos,
        limit=limit,
        penalty_of=lambda length: length_penalty(length, settings.alpha, settings.penalty),
        processor=processor,
        cancelled=cancelled,
    )
    rows = [found[start : start + beam] for start in range(0, len(found), beam)]
    return [sorted(row, key=lambda one: -one.score)[: settings.nbest] for row in rows]


def _written(  # noqa: PLR0913 - all by name but three
    stepper: Stepper,
    choose: Callable[[Tensor], Tensor] | None,
    banned: BannedTokens,
    *,
    pad: int,
    first: int,
    limit: int,
    penalty_of: Callable[[Tensor], Tensor],
    processor: LogitsProcessor | None,
    cancelled: Cancelled | None,
) -> list[Hypothesis]:
    """Write every row on its own, token by token, until it ends or has no more room.

    Without `choose` the most probable token is taken.
    """
    limits_R = banned.limits
    active, sentences = ActiveRows(stepper, len(limits_R), cancelled), stepper.rows
    token_R = torch.full_like(limits_R, first)
    ended_R = torch.zeros_like(limits_R, dtype=torch.bool)
    open_R = ~ended_R
    log_p_R = torch.zeros_like(limits_R, dtype=torch.float32)
    length_R = torch.zeros_like(limits_R)
    written_RL = limits_R.new_empty((len(limits_R), 0))
    for position in range(limit):
        logits_MV = active.step(token_R, position)
        now = still(processor, position)
        if choose is None and now is None:
            best = banned.best(logits_MV, position, 1, active.rows_M)
            gain_R1, token_R1 = map(active.spread, best)
        else:
            log_p_RV = active.spread(banned.log_probabilities(logits_MV, position, active.rows_M))
            if now is not None:
                log_p_RV = now(log_p_RV, written_RL)
            token_R1 = (log_p_RV.argmax(-1) if choose is None else choose(log_p_RV))[:, None]
            gain_R1 = log_p_RV.gather(1, token_R1)
        token_R = token_R1[:, 0]
        log_p_R = torch.where(open_R, log_p_R + gain_R1[:, 0], log_p_R)
        length_R = length_R + open_R
        ended_R = ended_R | (open_R & (token_R == banned.eos))
        token_R = token_R.masked_fill(~open_R, pad)
        written_RL = torch.cat((written_RL, token_R[:, None]), 1)
        open_NK = (~ended_R & (length_R < limits_R)).view(sentences, -1)
        wanted_N = active.wanted(open_NK.any(1))
        open_R = (open_NK & wanted_N[:, None]).flatten()
        left = int(wanted_N.sum())
        if not left:
            break
        active.narrow(wanted_N, left)
    score_R = log_p_R / penalty_of(length_R)
    return [
        Hypothesis(
            tokens=tuple(tokens[: length - ended]),
            log_probability=log_p,
            score=score,
            finished=ended,
        )
        for tokens, length, ended, log_p, score in zip(
            written_RL.tolist(),
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
    settings: SearchSettings,
    bos: int,
    eos: int,
    pad: int,
    max_lengths_N: Tensor,
    processor: LogitsProcessor | None = None,
    include: Inclusion | None = None,
    never: Collection[int] = (),
    cancelled: Cancelled | None = None,
) -> list[list[Hypothesis]]:
    """Keep the best hypotheses of each sentence until none can become the best.

    Each step looks at the 2 K best continuations of a sentence.  At most K of them
    end, so K that go on are always left; those that end compete for K places by
    score.  A sentence stops when the worst of its `nbest` finished scores is not
    below what its best live hypothesis could still reach, log P over the penalty of
    the longest length: as log P only falls, no result is lost by that.  A beam of
    one is `greedy`, as in tensor2tensor; the rule above would look past the most
    probable token.

    With groups each looks on its own, and a token costs `diversity` for each hypothesis
    of an earlier group that takes it at the same step.

    Args:
        stepper: begun with `settings.beam` rows a sentence.
        settings: how wide to look; `max_extra` and `max_length` are not read here.
        bos: the token that every row begins with; never chosen, unless it is `eos`.
        eos: the token that ends a sentence.
        pad: fed to sentences that have stopped; never chosen, unless it is `eos`.
        max_lengths_N: most tokens of each output, `eos` among them; on the stepper's
            device.
        processor: what may come next.
        include: what every output must hold; its places are shared out accordingly.
        never: other tokens that are never chosen.
        cancelled: sentences that need not go on; what is returned for them means nothing.

    Returns:
        For each sentence at most `nbest` hypotheses, best first: the finished ones,
        or, when nothing has finished at the longest length, the unfinished ones.
        There is always at least one.

    Source: Vaswani et al. 2017, section 6.1; tensor2tensor `beam_search.py`; groups:
    Vijayakumar et al. 2016, section 3; what is included: Post & Vilar 2018, section 3.
    """
    if settings.beam == 1:
        found = greedy(
            stepper,
            bos=bos,
            eos=eos,
            pad=pad,
            max_lengths_N=max_lengths_N,
            alpha=settings.alpha,
            penalty=settings.penalty,
            min_length=settings.min_length,
            processor=_both(processor, include),
            never=never,
            cancelled=cancelled,
        )
        return [[hypothesis] for hypothesis in found]
    limit = _longest(stepper, max_lengths_N)
    processor = _both(processor, include)
    sentences, groups = len(max_lengths_N), settings.groups
    each = settings.beam // groups
    beams = [Beams(max_lengths_N, settings, eos=eos, include=include) for _ in range(groups)]
    own_NK = torch.arange(sentences * settings.beam, device=max_lengths_N.device).view(
        sentences, settings.beam
    )
    banned = _banned(
        (bos, pad, *never), eos, settings.min_length, max_lengths_N.repeat_interleave(settings.beam)
    )
    active = ActiveRows(stepper, own_NK.numel(), cancelled)
    token_R = torch.full_like(own_NK, bos).flatten()
    written_RL = own_NK.new_empty((own_NK.numel(), 0))
    for position in range(limit):
        logits_MV = active.step(token_R, position)
        now = still(processor, position)
        if now is None and groups == 1:
            count = beams[0].looked_at(logits_MV.size(1))
            best = banned.best(logits_MV, position, count, active.rows_M)
            token_NK, place_NK = beams[0].extend_by(*map(active.spread, best))
        else:
            log_p_RV = active.spread(banned.log_probabilities(logits_MV, position, active.rows_M))
            if now is not None:
                log_p_RV = now(log_p_RV, written_RL)
            token_NK, place_NK = _extended(beams, log_p_RV, written_RL)
        # A stopped sentence moves no state, and at first all rows of a sentence are equal.
        for one in beams:
            one.open_N = active.wanted(one.open_N)
        open_NK = torch.stack([one.open_N for one in beams], 1).repeat_interleave(each, 1)
        row_NK = (place_NK + own_NK[:, :1]).where(open_NK, own_NK)
        open_N = open_NK.any(1)
        left, any_moved = torch.stack((open_N.sum(), (row_NK != own_NK).sum())).tolist()
        if not left:
            break
        if any_moved and position > 0:
            active.reorder(row_NK.flatten())
        active.narrow(open_N, left)
        token_R = token_NK.masked_fill(~open_NK, pad).flatten()
        if processor is not None:
            written_RL = torch.cat((written_RL[row_NK.flatten()], token_R[:, None]), 1)
    return _merged([one.results() for one in beams], settings)


def _both(processor: LogitsProcessor | None, include: Inclusion | None) -> LogitsProcessor | None:
    """Return the control that applies both, what must be included last."""
    return chained([one for one in (processor, include) if one is not None])


def _extended(beams: list[Beams], log_p_RV: Tensor, written_RL: Tensor) -> tuple[Tensor, Tensor]:
    """Let every group take a step; return token and place gone on from, of all places."""
    if len(beams) == 1:
        return beams[0].extend(log_p_RV, None, written_RL)
    sentences, vocabulary = len(beams[0].limit_N), log_p_RV.size(1)
    log_p_NGKV = log_p_RV.view(sentences, len(beams), -1, vocabulary)
    written_NGKL = written_RL.view(*log_p_NGKV.shape[:3], -1)
    each = log_p_NGKV.size(2)
    taken_NV = log_p_RV.new_zeros(sentences, vocabulary)
    tokens, places = [], []
    for group, one in enumerate(beams):
        token_NK, place_NK = one.extend(
            log_p_NGKV[:, group].flatten(0, 1), taken_NV, written_NGKL[:, group].flatten(0, 1)
        )
        taken_NV = taken_NV.scatter_add(1, token_NK, torch.ones_like(token_NK, dtype=torch.float32))
        tokens.append(token_NK)
        places.append(place_NK + group * each)
    return torch.cat(tokens, 1), torch.cat(places, 1)


def _merged(
    groups: list[list[list[Hypothesis]]], settings: SearchSettings
) -> list[list[Hypothesis]]:
    """Return the best hypotheses of each sentence, none twice.

    Finished ones alone where there are any, unless cut ones count as finished.
    """
    apart = settings.ends == "any"
    found = []
    for parts in zip(*groups, strict=True):
        together = [one for part in parts for one in part]
        together.sort(key=lambda one: (apart and not one.finished, -one.score))
        once = list({one.tokens: one for one in reversed(together)}.values())[::-1]
        if apart and once[0].finished:
            once = [one for one in once if one.finished]
        found.append(once[: settings.nbest])
    return found


def _longest(stepper: Stepper, max_lengths_N: Tensor) -> int:
    """Return the longest length of all, after checking that there is one a sentence."""
    if max_lengths_N.shape != (stepper.rows,):
        msg = f"{stepper.rows} sentences need as many lengths, not {tuple(max_lengths_N.shape)}"
        raise ValueError(msg)
    shortest, longest = torch.stack(torch.aminmax(max_lengths_N)).tolist()
    if shortest < 1:
        msg = f"an output needs room for one token, not {shortest}"
        raise ValueError(msg)
    return int(longest)


def _banned(never: Collection[int], eos: int, min_length: int, limits_R: Tensor) -> BannedTokens:
    return BannedTokens({*never} - {eos}, eos, min_length, limits_R)
