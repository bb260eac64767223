"""Search: from next-word scores to the best sequence, whatever gives the scores.

Two searches over one small protocol, `Stepper`: take the best word each time, or
keep a beam of K hypotheses.  All sentences of a batch move together in tensors; the
host waits for the device once a step, to learn whether to go on.

Axes in this file, also used as suffixes of tensor names:

    N  sentences                     R  rows, N * K, the beams of a sentence together
    K  hypotheses of a sentence      C  candidates, 2 * K, for K places
    V  vocabulary                    L  steps taken

Not here: models (`stepper.py`), text (`translate.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator

if TYPE_CHECKING:
    from torch import Tensor


class Stepper(Protocol):
    """A model in the middle of N sentences, each begun with K equal rows."""

    rows: int
    """Number of sentences N."""

    def step(self, tokens_R: Tensor, position: int, /) -> Tensor:
        """Append one token to every row and return the logits [R, V] of the next.

        Args:
            tokens_R: for each row its last token, sentence by sentence; `bos` first.
            position: how many tokens came before it.
        """

    def reorder(self, rows_R: Tensor, /) -> None:
        """Let each row r go on from what row `rows_R[r]` of its sentence has written."""


class SearchSettings(BaseModel):
    """How outputs are looked for; the defaults are those of the paper.

    Source: Vaswani et al. 2017, section 6.1, https://arxiv.org/abs/1706.03762
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    beam: int = Field(default=4, ge=1)
    """Hypotheses kept for each sentence; 1 takes the best token each time."""
    alpha: float = Field(default=0.6, ge=0)
    """Strength of the length penalty; 0 compares bare log probabilities."""
    max_extra: int = Field(default=50, ge=0)
    """Tokens by which an output may be longer than its input."""
    max_length: int | None = Field(default=None, ge=1)
    """Most tokens of any output, however long its input; null for no such bound."""
    nbest: int = Field(default=1, ge=1)
    """Hypotheses returned for each sentence; at most `beam`."""
    iterations: int = Field(default=10, ge=1)
    """Times that mask-predict writes words; it alone reads this."""
    lengths: int = Field(default=5, ge=1)
    """Lengths of an output that mask-predict tries; it alone reads this."""

    @model_validator(mode="after")
    def _has_room(self) -> SearchSettings:
        if self.nbest > self.beam:
            msg = f"nbest {self.nbest} is more than beam {self.beam} keeps"
            raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """One possible output of a sentence."""

    tokens: tuple[int, ...]
    """Ids, without `bos` and `eos`."""
    log_probability: float
    """Natural logarithm of the probability of the tokens, `eos` among them."""
    score: float
    """`log_probability` over the length penalty; comparable within one sentence."""
    finished: bool
    """Whether it ended by itself, with `eos`, and not at the longest length."""


def length_penalty(length: Tensor | int, alpha: float) -> Tensor:
    """Return ((5 + length) / 6)^alpha; `length` counts `eos`.

    Source: Wu et al. 2016, section 7, https://arxiv.org/abs/1609.08144, without the
    coverage penalty.
    """
    return ((5.0 + torch.as_tensor(length, dtype=torch.float32)) / 6.0) ** alpha


@torch.no_grad()
def greedy(
    stepper: Stepper,
    *,
    bos: int,
    eos: int,
    pad: int,
    max_lengths_N: Tensor,
    alpha: float = 0.0,
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

    Returns:
        One hypothesis a sentence.
    """
    limit = _longest(stepper, max_lengths_N)
    token_N = torch.full_like(max_lengths_N, bos)
    ended_N = torch.zeros_like(max_lengths_N, dtype=torch.bool)
    open_N = ~ended_N
    log_p_N = torch.zeros_like(max_lengths_N, dtype=torch.float32)
    length_N = torch.zeros_like(max_lengths_N)
    taken = []
    for position in range(limit):
        log_p_NV = _log_probabilities(stepper.step(token_N, position), bos, eos, pad)
        best_N, token_N = log_p_NV.max(dim=-1)
        log_p_N = torch.where(open_N, log_p_N + best_N, log_p_N)
        length_N = length_N + open_N
        ended_N = ended_N | (open_N & (token_N == eos))
        token_N = token_N.masked_fill(~open_N, pad)
        taken.append(token_N)
        open_N = ~ended_N & (length_N < max_lengths_N)
        if not open_N.any():
            break
    score_N = log_p_N / length_penalty(length_N, alpha)
    tokens_NL = torch.stack(taken, dim=1).tolist()
    return [
        Hypothesis(
            tokens=tuple(tokens[: length - ended]),
            log_probability=log_p,
            score=score,
            finished=ended,
        )
        for tokens, length, ended, log_p, score in zip(
            tokens_NL,
            length_N.tolist(),
            ended_N.tolist(),
            log_p_N.tolist(),
            score_N.tolist(),
            strict=True,
        )
    ]


@torch.no_grad()
def beam_search(
    stepper: Stepper,
    *,
    settings: SearchSettings,
    bos: int,
    eos: int,
    pad: int,
    max_lengths_N: Tensor,
) -> list[list[Hypothesis]]:
    """Keep the best hypotheses of each sentence until none can become the best.

    Each step looks at the 2 K best continuations of a sentence.  At most K of them
    end, so K that go on are always left; those that end compete for K places by
    score.  A sentence stops when the worst of its `nbest` finished scores is not
    below what its best live hypothesis could still reach, log P over the penalty of
    the longest length: as log P only falls, no result is lost by that.  A beam of
    one is `greedy`, as in tensor2tensor; the rule above would look past the most
    probable token.

    Args:
        stepper: begun with `settings.beam` rows a sentence.
        settings: how wide to look; `max_extra` and `max_length` are not read here.
        bos: the token that every row begins with; never chosen, unless it is `eos`.
        eos: the token that ends a sentence.
        pad: fed to sentences that have stopped; never chosen, unless it is `eos`.
        max_lengths_N: most tokens of each output, `eos` among them; on the stepper's
            device.

    Returns:
        For each sentence at most `nbest` hypotheses, best first: the finished ones,
        or, when nothing has finished at the longest length, the unfinished ones.
        There is always at least one.

    Source: Vaswani et al. 2017, section 6.1; tensor2tensor `beam_search.py`.
    """
    alpha = settings.alpha
    if settings.beam == 1:
        found = greedy(stepper, bos=bos, eos=eos, pad=pad, max_lengths_N=max_lengths_N, alpha=alpha)
        return [[hypothesis] for hypothesis in found]
    limit = _longest(stepper, max_lengths_N)
    beams = _Beams(max_lengths_N, settings, eos=eos)
    token_R = torch.full_like(beams.own_row_NK, bos).flatten()
    for position in range(limit):
        log_p_RV = _log_probabilities(stepper.step(token_R, position), bos, eos, pad)
        token_NK, parent_NK = beams.extend(log_p_RV)
        # A stopped sentence moves no state, and at first all rows of a sentence are equal.
        row_NK = (parent_NK + beams.first_row_N1).where(beams.open_N[:, None], beams.own_row_NK)
        moved = (row_NK != beams.own_row_NK).any()
        go_on, any_moved = torch.stack((beams.open_N.any(), moved)).tolist()
        if not go_on:
            break
        if any_moved and position > 0:
            stepper.reorder(row_NK.flatten())
        token_R = token_NK.masked_fill(~beams.open_N[:, None], pad).flatten()
    return beams.results()


class _Beams:
    """What a beam search knows of its sentences.

    Hypotheses are kept as links, a token and a parent for each step and place, and
    spelled out once at the end; so nothing grows with the length but two lists.
    """

    def __init__(self, max_lengths_N: Tensor, settings: SearchSettings, *, eos: int) -> None:
        """Begin with one live hypothesis a sentence, in its first place."""
        sentences, beam, device = len(max_lengths_N), settings.beam, max_lengths_N.device
        self.settings, self.eos = settings, eos
        self.limit_N = max_lengths_N
        self.ceiling_N = length_penalty(max_lengths_N, settings.alpha)
        self.own_row_NK = torch.arange(sentences * beam, device=device).view(sentences, beam)
        self.first_row_N1 = self.own_row_NK[:, :1]
        self.open_N = torch.ones(sentences, dtype=torch.bool, device=device)
        self.length = 0

        dead_NK = torch.full((sentences, beam), -torch.inf, device=device)
        self.live_NK = dead_NK.clone()
        self.live_NK[:, 0] = 0.0
        self.live_length_N = torch.zeros_like(max_lengths_N)
        self.score_NK, self.log_p_NK = dead_NK.clone(), dead_NK.clone()
        self.ended_at_NK = torch.zeros_like(self.own_row_NK)
        self.ended_from_NK = torch.zeros_like(self.own_row_NK)
        self.tokens: list[Tensor] = []
        self.parents: list[Tensor] = []

    def extend(self, log_p_RV: Tensor) -> tuple[Tensor, Tensor]:
        """Take one step in every open sentence.

        Args:
            log_p_RV: log probabilities of the next token of every row.

        Returns:
            For each live place its new token and the place it goes on from.
        """
        self.length += 1
        beam, was_open_N1 = self.live_NK.size(1), self.open_N[:, None]
        log_p_NC, token_NC, parent_NC = self._candidates(log_p_RV)
        ends_NC = token_NC == self.eos

        self._finish(log_p_NC.masked_fill(~ends_NC, -torch.inf), parent_NC)
        live_NK, index_NK = log_p_NC.masked_fill(ends_NC, -torch.inf).topk(beam)
        self.live_NK = live_NK.where(was_open_N1, self.live_NK)
        self.live_length_N = self.live_length_N + self.open_N
        token_NK, parent_NK = token_NC.gather(1, index_NK), parent_NC.gather(1, index_NK)
        self.tokens.append(token_NK)
        self.parents.append(parent_NK)

        reachable_N = self.live_NK[:, 0] / self.ceiling_N
        settled_N = self.score_NK[:, self.settings.nbest - 1] >= reachable_N
        self.open_N = self.open_N & ~settled_N & (self.length < self.limit_N)
        return token_NK, parent_NK

    def _candidates(self, log_p_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return log P, token and parent of the 2 K best continuations, best first."""
        sentences, beam = self.live_NK.shape
        # The 2 K best of a sentence are among the 2 K best of each of its rows.
        each = min(2 * beam, log_p_RV.size(1))
        best_RC, token_RC = log_p_RV.topk(each)
        total_NKC = self.live_NK[:, :, None] + best_RC.view(sentences, beam, each)
        log_p_NC, index_NC = total_NKC.flatten(1).topk(2 * beam)
        return log_p_NC, token_RC.view(sentences, -1).gather(1, index_NC), index_NC // each

    def _finish(self, log_p_NC: Tensor, parent_NC: Tensor) -> None:
        """Let the candidates that end compete with those that ended before.

        A sentence that has stopped keeps its own, in their order: `topk` may swap
        equals, and a result must not hang on how long other sentences take.
        """
        score_NC = log_p_NC / length_penalty(self.length, self.settings.alpha)
        best_NK, index_NK = torch.cat((self.score_NK, score_NC), 1).topk(self.score_NK.size(1))
        open_N1 = self.open_N[:, None]

        def chosen(old_NK: Tensor, new_NC: Tensor) -> Tensor:
            both = torch.cat((old_NK, new_NC), 1)
            return both.gather(1, index_NK).where(open_N1, old_NK)

        self.score_NK = best_NK.where(open_N1, self.score_NK)
        self.log_p_NK = chosen(self.log_p_NK, log_p_NC)
        self.ended_from_NK = chosen(self.ended_from_NK, parent_NC)
        self.ended_at_NK = chosen(self.ended_at_NK, torch.full_like(parent_NC, self.length))

    def results(self) -> list[list[Hypothesis]]:
        """Spell the hypotheses out, best first."""
        nbest, alpha = self.settings.nbest, self.settings.alpha
        links = torch.stack((torch.stack(self.tokens), torch.stack(self.parents))).tolist()
        # The last token of those that ended, `eos`, is not among the links.
        ended = (self.score_NK, self.log_p_NK, self.ended_at_NK - 1, self.ended_from_NK)
        live = (
            self.live_NK / length_penalty(self.live_length_N, alpha)[:, None],
            self.live_NK,
            self.live_length_N[:, None].expand_as(self.live_NK),
            self.own_row_NK - self.first_row_N1,
        )
        ended_NK, live_NK = (
            [
                list(zip(*rows, strict=True))
                for rows in zip(*(x.tolist() for x in parts), strict=True)
            ]
            for parts in (ended, live)
        )
        found = []
        for sentence, (ended_K, live_K) in enumerate(zip(ended_NK, live_NK, strict=True)):
            finished = [one for one in ended_K if one[0] > -math.inf]
            possible = [one for one in live_K if one[0] > -math.inf] or live_K[:1]
            found.append(
                [
                    Hypothesis(
                        tokens=_spelled(links, sentence, length, place),
                        log_probability=log_p,
                        score=score,
                        finished=bool(finished),
                    )
                    for score, log_p, length, place in (finished or possible)[:nbest]
                ]
            )
        return found


def _spelled(
    links: list[list[list[list[int]]]], sentence: int, length: int, place: int
) -> tuple[int, ...]:
    """Return the first `length` tokens of the hypothesis that is then in `place`.

    Args:
        links: tokens and parents, each [L][N][K].
        sentence: which of the N.
        length: tokens to go back over.
        place: which of the K, after `length` steps.
    """
    tokens_LNK, parents_LNK = links
    backwards = []
    for step in reversed(range(length)):
        backwards.append(tokens_LNK[step][sentence][place])
        place = parents_LNK[step][sentence][place]
    return tuple(reversed(backwards))


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


def _log_probabilities(logits_RV: Tensor, bos: int, eos: int, pad: int) -> Tensor:
    """Return log probabilities in float32; those of `bos` and `pad` are minus infinity."""
    log_p_RV = torch.log_softmax(logits_RV, dim=-1, dtype=torch.float32)
    for never in {bos, pad} - {eos}:
        log_p_RV[:, never] = -torch.inf
    return log_p_RV
