"""Beams: the hypotheses of a batch of sentences, and how a step extends them.

Axes in this file, also used as suffixes of tensor names:

    N  sentences                     R  rows, N * K, the beams of a sentence together
    K  hypotheses of a sentence      C  candidates for K beam positions
    V  vocabulary                    L  steps taken

The model and the search loop are in `search.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..settings import BeamSearch, Hypothesis, Penalty, TextOf, different

if TYPE_CHECKING:
    from .constraints import Inclusion


class Beams:
    """State of a beam search over a batch of sentences, or of one group of its hypotheses.

    Hypotheses are stored as back-pointers, a token and a parent for each step and beam
    position, and are traced back once at the end; only these two lists grow with the length.
    """

    def __init__(
        self,
        max_lengths_N: Tensor,
        settings: BeamSearch,
        *,
        eos: Sequence[int],
        include: Inclusion | None = None,
        text_of: TextOf | None = None,
    ) -> None:
        """Begin with one live hypothesis per sentence, in its first beam position.

        Args:
            max_lengths_N: maximum tokens of each output, including the end token.
            settings: `beam` over `groups` is the number K of beam positions.
            eos: the tokens that end a sentence.
            include: phrases that every output must contain.
            text_of: the text of tokens; of ended hypotheses with the same text only the best stays.
        """
        sentences, device = len(max_lengths_N), max_lengths_N.device
        beam = settings.beam // settings.groups
        self.settings, self.include = settings, include
        self.ends, self._ends_E = tuple(eos), torch.tensor(eos, dtype=torch.long, device=device)
        self.text_of = text_of
        self.nbest = min(settings.nbest, beam)
        self.limit_N = max_lengths_N
        self.ceiling_N = self._penalty(max_lengths_N)
        self.own_place_NK = torch.arange(beam, device=device).expand(sentences, beam)
        self.open_N = torch.ones(sentences, dtype=torch.bool, device=device)
        self.length = 0

        dead_NK = torch.full((sentences, beam), -torch.inf, device=device)
        self.live_NK = dead_NK.clone()
        self.live_NK[:, 0] = 0.0
        self.live_length_N = torch.zeros_like(max_lengths_N)
        self.score_NK, self.log_p_NK = dead_NK.clone(), dead_NK.clone()
        self.ended_at_NK = torch.zeros_like(self.own_place_NK)
        self.ended_from_NK = torch.zeros_like(self.own_place_NK)
        self.texts: list[list[str]] = [[""] * beam for _ in range(sentences)]
        """Texts of the ended hypotheses, if they must differ; meaningless without a score."""
        self.tokens: list[Tensor] = []
        self.parents: list[Tensor] = []

    def _penalty(self, length: Tensor | int) -> Tensor:
        return length_penalty(length, self.settings.alpha, self.settings.penalty)

    def extend(
        self,
        log_p_RV: Tensor,
        taken_NV: Tensor | None = None,
        written_RL: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Take one step in every open sentence.

        Args:
            log_p_RV: log probabilities of the next token of every row.
            taken_NV: how often earlier groups took each token at this step.
            written_RL: tokens that every row has written; used if phrases must be included, or if
                texts must differ.

        Returns:
            For each live beam position its new token and the position that it continues.
        """
        choice_NC, log_p_NC, token_NC, parent_NC = self._candidates(log_p_RV, taken_NV)
        if self.include is not None and written_RL is not None:
            more = self._nearer(log_p_RV, written_RL, self.include)
            log_p_NC, token_NC, parent_NC = (
                torch.cat(tensors, 1)
                for tensors in zip((log_p_NC, token_NC, parent_NC), more, strict=True)
            )
            log_p_NC = _without_copies(log_p_NC, parent_NC * log_p_RV.size(1) + token_NC)
            choice_NC = self._shared_out(
                log_p_NC, token_NC, parent_NC, written_RL, include=self.include
            )
        return self._extend(choice_NC, log_p_NC, token_NC, parent_NC, written_RL)

    def looked_at(self, vocabulary: int) -> int:
        """Return how many of the best continuations of each row can be selected."""
        # The 2 K best of a sentence are among the 2 K best of each of its rows.
        return min(self._looked_at(), vocabulary)

    def _looked_at(self) -> int:
        """Return how many candidates leave K that can be continued: 2 K with one end token."""
        return (1 + len(self.ends)) * self.live_NK.size(1)

    def _ends(self, token_NC: Tensor) -> Tensor:
        """Return which tokens end a hypothesis."""
        return torch.isin(token_NC, self._ends_E)

    def extend_by(
        self, best_RC: Tensor, token_RC: Tensor, written_RL: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Take one step, as `extend` does, given only the best continuations.

        Args:
            best_RC: log probabilities of the best continuations, `looked_at` of them per row.
            token_RC: their tokens.
            written_RL: as for `extend`.
        """
        log_p_NC, token_NC, parent_NC = self._of_sentences(best_RC, token_RC)
        return self._extend(log_p_NC, log_p_NC, token_NC, parent_NC, written_RL)

    def _extend(
        self,
        choice_NC: Tensor,
        log_p_NC: Tensor,
        token_NC: Tensor,
        parent_NC: Tensor,
        written_RL: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """Continue the best candidates by `choice_NC`; ended candidates compete for the results."""
        self.length += 1
        beam = self.live_NK.size(1)
        ends_NC = self._ends(token_NC)
        may_end_NC = ends_NC
        if self.settings.ends == "best":
            may_end_NC = ends_NC & (torch.arange(ends_NC.size(1), device=ends_NC.device) < beam)

        self._finish(log_p_NC.masked_fill(~may_end_NC, -torch.inf), parent_NC, written_RL)
        index_NK = choice_NC.masked_fill(ends_NC, -torch.inf).topk(beam).indices
        live_NK = log_p_NC.masked_fill(ends_NC, -torch.inf).gather(1, index_NK)
        # Where every token is banned, the hypotheses stop before it.
        self.open_N = self.open_N & (live_NK.amax(1) > -torch.inf)
        self.live_NK = live_NK.where(self.open_N[:, None], self.live_NK)
        self.live_length_N = self.live_length_N + self.open_N
        token_NK, parent_NK = token_NC.gather(1, index_NK), parent_NC.gather(1, index_NK)
        self.tokens.append(token_NK)
        self.parents.append(parent_NK)

        reachable_N = self.live_NK.amax(1) / self.ceiling_N
        settled_N = self.score_NK[:, self.nbest - 1] >= reachable_N
        self.open_N = self.open_N & ~settled_N & (self.length < self.limit_N)
        return token_NK, parent_NK

    def _candidates(
        self, log_p_RV: Tensor, taken_NV: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return value, log P, token and parent of the 2 K best continuations, best first.

        The value is log P minus the diversity penalty for tokens that earlier groups took.
        """
        value_RV = log_p_RV
        if taken_NV is not None:
            cost_NV = self.settings.diversity * taken_NV
            value_RV = log_p_RV - cost_NV.repeat_interleave(self.live_NK.size(1), 0)
        best = value_RV.topk(self.looked_at(log_p_RV.size(1)))
        value_NC, token_NC, parent_NC = self._of_sentences(*best)
        if taken_NV is None:
            return value_NC, value_NC, token_NC, parent_NC
        log_p_NC = value_NC + cost_NV.gather(1, token_NC)
        return value_NC, log_p_NC, token_NC, parent_NC

    def _of_sentences(self, best_RC: Tensor, token_RC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return value, token and parent of the 2 K best continuations per sentence, best first."""
        (sentences, beam), candidate_count = self.live_NK.shape, best_RC.size(1)
        total_NKC = self.live_NK[:, :, None] + best_RC.view(sentences, beam, candidate_count)
        value_NC, index_NC = total_NKC.flatten(1).topk(
            min(self._looked_at(), beam * candidate_count)
        )
        token_NC = token_RC.view(sentences, -1).gather(1, index_NC)
        return value_NC, token_NC, index_NC // candidate_count

    def _nearer(
        self, log_p_RV: Tensor, written_RL: Tensor, include: Inclusion
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return log P, token and parent of continuations that add tokens of a required phrase.

        The best continuation of each row is included, so that other rows do not displace it.
        """
        sentences, beam = self.live_NK.shape
        most = include.most + 1
        token_RM = torch.full((len(log_p_RV), most), (*self.ends, 0)[0], device=log_p_RV.device)
        token_RM[:, 0] = log_p_RV.argmax(1)
        for row, tokens in enumerate(written_RL.tolist()):
            following = sorted(include.of(row // beam, tokens).next)
            token_RM[row, 1 : 1 + len(following)] = torch.tensor(following, dtype=torch.long)
        log_p_NM = (self.live_NK.flatten()[:, None] + log_p_RV.gather(1, token_RM)).view(
            sentences, beam * most
        )
        parent_NM = self.own_place_NK.repeat_interleave(most, 1)
        return log_p_NM, token_RM.view(sentences, -1), parent_NM

    def _shared_out(
        self,
        log_p_NC: Tensor,
        token_NC: Tensor,
        parent_NC: Tensor,
        written_RL: Tensor,
        *,
        include: Inclusion,
    ) -> Tensor:
        """Return what candidates are sorted by: their rank among candidates of equal coverage."""
        sentences, beam = self.live_NK.shape
        written = written_RL.view(sentences, beam, -1).tolist()
        met_NC = torch.tensor(
            [
                [
                    include.of(sentence, [*written[sentence][parent], token]).met
                    for token, parent in zip(tokens, parents, strict=True)
                ]
                for sentence, (tokens, parents) in enumerate(
                    zip(token_NC.tolist(), parent_NC.tolist(), strict=True)
                )
            ],
            device=log_p_NC.device,
        )
        open_NC = log_p_NC.masked_fill(self._ends(token_NC), -torch.inf)
        better_NCC = open_NC[:, None, :] > open_NC[:, :, None]
        rank_NC = (better_NCC & (met_NC[:, None, :] == met_NC[:, :, None])).sum(-1)
        # The best candidate of each coverage comes first, then each second best, and so on.
        return (open_NC / (1.0 - open_NC) - rank_NC).where(open_NC > -torch.inf, -torch.inf)

    def _finish(self, log_p_NC: Tensor, parent_NC: Tensor, written_RL: Tensor | None) -> None:
        """Let the candidates that end compete with the hypotheses that ended before.

        A sentence that has stopped keeps its own hypotheses in their order: `topk` may swap
        ties, and a result must not depend on how long other sentences take.
        """
        score_NC = log_p_NC / self._penalty(self.length)
        texts: list[dict[int, str]] = []
        if self.text_of is not None and written_RL is not None:
            score_NC, texts = self._of_new_texts(score_NC, parent_NC, written_RL, self.text_of)
        best_NK, index_NK = torch.cat((self.score_NK, score_NC), 1).topk(self.score_NK.size(1))
        open_N1 = self.open_N[:, None]

        def chosen(old_NK: Tensor, new_NC: Tensor) -> Tensor:
            joined = torch.cat((old_NK, new_NC), 1)
            return joined.gather(1, index_NK).where(open_N1, old_NK)

        self.score_NK = best_NK.where(open_N1, self.score_NK)
        self.log_p_NK = chosen(self.log_p_NK, log_p_NC)
        self.ended_from_NK = chosen(self.ended_from_NK, parent_NC)
        self.ended_at_NK = chosen(self.ended_at_NK, torch.full_like(parent_NC, self.length))
        for sentence, by_place in enumerate(texts):
            if by_place:
                old = dict(enumerate(self.texts[sentence])) | by_place
                self.texts[sentence] = [old.get(at, "") for at in index_NK[sentence].tolist()]

    def _of_new_texts(
        self, score_NC: Tensor, parent_NC: Tensor, written_RL: Tensor, text_of: TextOf
    ) -> tuple[Tensor, list[dict[int, str]]]:
        """Return the scores of candidates that end, minus infinity where their text is not new.

        Where a candidate is better than the ended hypothesis with its text, it replaces that.

        Returns:
            The scores, and for each sentence the texts of the other candidates, by their places
            after the K ended hypotheses.
        """
        beam = self.score_NK.size(1)
        possible_NC = (score_NC > self.score_NK[:, -1:]) & self.open_N[:, None]
        written = written_RL.unflatten(0, (-1, beam))
        score_NC = score_NC.masked_fill(~possible_NC, -torch.inf)
        texts: list[dict[int, str]] = [{} for _ in self.texts]
        for sentence, column in possible_NC.nonzero().tolist():
            text = text_of(written[sentence, parent_NC[sentence, column]].tolist())
            scores = self.score_NK[sentence]
            same = [at for at in range(beam) if self.texts[sentence][at] == text]
            if text in texts[sentence].values() or any(
                scores[at] >= score_NC[sentence, column] for at in same
            ):
                score_NC[sentence, column] = -torch.inf
                continue
            scores[same] = -torch.inf
            texts[sentence][beam + column] = text
        return score_NC, texts

    def results(self) -> list[list[Hypothesis]]:
        """Return the hypotheses, best first: the finished ones, or else the unfinished ones.

        If `ends` is `best`, hypotheses cut off at the maximum length count as finished.
        """
        beam = self.live_NK.size(1)
        links = torch.stack((torch.stack(self.tokens), torch.stack(self.parents))).tolist()
        # `eos`, the last token of finished hypotheses, is not stored in the links.
        ended = (self.score_NK, self.log_p_NK, self.ended_at_NK - 1, self.ended_from_NK)
        live = (
            self.live_NK / self._penalty(self.live_length_N.clamp(min=1))[:, None],
            self.live_NK,
            self.live_length_N[:, None].expand_as(self.live_NK),
            self.own_place_NK,
        )
        ended_NK, live_NK = (
            [
                list(zip(*rows, strict=True))
                for rows in zip(*(x.tolist() for x in parts), strict=True)
            ]
            for parts in (ended, live)
        )
        cut_N = (self.live_length_N >= self.limit_N).tolist()
        nbest_lists = []
        for sentence, (ended_K, live_K) in enumerate(zip(ended_NK, live_NK, strict=True)):
            finished = [(*entry, True) for entry in ended_K if entry[0] > -math.inf]
            possible = sorted(entry for entry in live_K if entry[0] > -math.inf)[::-1] or live_K[:1]
            unfinished = [(*entry, False) for entry in possible]
            if self.settings.ends == "best" and cut_N[sentence]:
                together = sorted((*finished, *unfinished), key=lambda entry: -entry[0])
            else:
                together = finished or unfinished
            hypotheses = [
                Hypothesis(
                    tokens=_spelled(links, sentence, length, beam_index),
                    log_probability=log_p,
                    score=score,
                    finished=ended,
                )
                for score, log_p, length, beam_index, ended in together
            ]
            nbest_lists.append(of_different_texts(hypotheses, self.text_of)[:beam])
        return nbest_lists


def of_different_texts(
    hypotheses: Iterable[Hypothesis], text_of: TextOf | None
) -> list[Hypothesis]:
    """Return the first hypothesis of each text; without texts, of each sequence of tokens."""
    return different(
        hypotheses, lambda hypothesis: text_of(hypothesis.tokens) if text_of else hypothesis.tokens
    )


def _spelled(
    links: list[list[list[list[int]]]], sentence: int, length: int, beam_index: int
) -> tuple[int, ...]:
    """Return the first `length` tokens of the hypothesis that is in `beam_index` after that step.

    Args:
        links: tokens and parents, each [L][N][K].
        sentence: index of the sentence.
        length: number of tokens to trace back.
        beam_index: beam position after `length` steps.
    """
    tokens_LNK, parents_LNK = links
    backwards = []
    for step in reversed(range(length)):
        backwards.append(tokens_LNK[step][sentence][beam_index])
        beam_index = parents_LNK[step][sentence][beam_index]
    return tuple(reversed(backwards))


def _without_copies(log_p_NC: Tensor, key_NC: Tensor) -> Tensor:
    """Return log P with minus infinity where the same candidate occurs further left."""
    same_NCC = key_NC[:, :, None] == key_NC[:, None, :]
    again_NC = torch.tril(same_NCC, -1).any(-1)
    return log_p_NC.masked_fill(again_NC, -torch.inf)


def length_penalty(length: Tensor | int, alpha: float, form: Penalty = "gnmt") -> Tensor:
    """Return the length penalty, which divides log P; `length` counts `eos`.

    `gnmt`: ((5 + length) / 6)^alpha; `length`: length^alpha; `none`: 1.

    Source: Wu et al. 2016, section 7, https://arxiv.org/abs/1609.08144, without the
    coverage penalty.
    """
    lengths = torch.as_tensor(length, dtype=torch.float32)
    if form == "none":
        return torch.ones_like(lengths)
    return (lengths if form == "length" else (5.0 + lengths) / 6.0) ** alpha
