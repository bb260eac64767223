"""Search in a reduced vocabulary: the tokens that the sources of a batch may need.

The model computes the logits of these tokens only, and the search numbers tokens by their places
among them; hypotheses get the ids of the vocabulary again.  Each sentence has a list of its own:
the logits of other tokens, which other sentences of the batch need, are minus infinity for it.  So
an output does not depend on the batch.

Axes: N sentences, R rows, T positions, V vocabulary, C reduced vocabulary, L tokens written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from ....graphs.passes.fuse import head_of
from ....specs.findings import InputError
from ...codegen.generated import program_of
from ...compile.decoder import passes_of
from ..active_rows import rows_of
from ..search.logits_processors import NEVER, LogitsProcessor
from ..settings import Hypothesis, TextOf

if TYPE_CHECKING:
    from ..active_rows import BlockStepper


@dataclass(frozen=True, slots=True)
class Reduced:
    """The reduced vocabulary of a batch."""

    ids: Tensor
    """The tokens, ascending, [C]."""
    listed: Tensor | None
    """Whether each sentence may use each of them, [N, C]; None if each may use all."""
    size: int
    """Number of tokens of the vocabulary."""

    def places(self, tokens: Sequence[int]) -> list[int]:
        """Return the places of tokens, all of which are in the reduced vocabulary."""
        token_tensor = torch.tensor(tokens, dtype=torch.long, device=self.ids.device)
        positions: list[int] = torch.searchsorted(self.ids, token_tensor).tolist()
        return positions

    def widened(self, processor: LogitsProcessor) -> LogitsProcessor:
        """Return a logits processor for places, given one for ids."""

        def narrowed(log_p_RC: Tensor, written_RL: Tensor) -> Tensor:
            log_p_RV = log_p_RC.new_full((len(log_p_RC), self.size), NEVER)
            log_p_RV[:, self.ids] = log_p_RC
            return processor(log_p_RV, self.ids[written_RL])[:, self.ids]

        return narrowed

    def text_of(self, text_of: TextOf) -> TextOf:
        """Return the text of places in the reduced vocabulary, given that of ids."""
        ids: list[int] = self.ids.tolist()
        return lambda places: text_of([ids[index] for index in places])

    def hypotheses(self, nbest_lists: Sequence[Sequence[Hypothesis]]) -> list[list[Hypothesis]]:
        """Return hypotheses with the ids of the vocabulary."""
        ids: list[int] = self.ids.tolist()
        return [
            [
                replace(hypothesis, tokens=tuple(ids[index] for index in hypothesis.tokens))
                for hypothesis in row
            ]
            for row in nbest_lists
        ]


class ReducedStepper:
    """A model that is decoding, over the reduced vocabulary of its batch."""

    def __init__(self, stepper: BlockStepper, reduced: Reduced, beams: int) -> None:
        """Wrap a stepper that computes the logits of `reduced.ids`, before its first step."""
        self.rows = stepper.rows
        self._stepper, self._ids_C, self._beams = stepper, reduced.ids, beams
        own_NC = reduced.listed
        self._other_RC = None if own_NC is None else ~own_NC.repeat_interleave(beams, 0)

    def read(self, tokens_RT: Tensor) -> None:
        """Append the first tokens of every row, without computing logits."""
        self._stepper.read(self._ids_C[tokens_RT])

    def step(self, tokens_R: Tensor, position: int) -> Tensor:
        """Append one token to every row and return the logits [R, C] of the next token."""
        return self.steps(tokens_R[:, None], position)[:, -1]

    def steps(self, tokens_RT: Tensor, position: int) -> Tensor:
        """Append T tokens to every row and return the logits [R, T, C] after each."""
        logits_RTC = self._stepper.steps(self._ids_C[tokens_RT], position)
        if self._other_RC is None:
            return logits_RTC
        return logits_RTC.masked_fill(self._other_RC[:, None], NEVER)

    def reorder(self, rows_R: Tensor) -> None:
        """Make each row continue from another row of its sentence."""
        self._stepper.reorder(rows_R)

    def narrow(self, sentences_N: Tensor) -> None:
        """Keep only these sentences, in this order."""
        self._stepper.narrow(sentences_N)
        if self._other_RC is not None:
            self._other_RC = self._other_RC[rows_of(sentences_N, self._beams)]
        self.rows = self._stepper.rows


def reduced_vocabulary(
    models: Sequence[nn.Module],
    sources: Sequence[Sequence[int]],
    forced: Sequence[Sequence[int]],
    always: Sequence[int],
) -> Reduced | None:
    """Return the reduced vocabulary of a batch; None if its models have no shortlist.

    Args:
        models: the models, with outputs of the same vocabulary.
        sources: ids of each source.
        forced: further tokens that each sentence may use.
        always: further tokens that all sentences may use.

    Raises:
        InputError: the models have different shortlists.
    """
    shortlists = [None if model.training else passes_of(model).shortlist for model in models]
    if any(shortlist != shortlists[0] for shortlist in shortlists):
        raise InputError(
            "the models of the ensemble have different shortlists",
            location="shortlist",
            help="open all of them with the same shortlist, or none with one",
        )
    if shortlists[0] is None:
        return None
    head = models[0].get_submodule(str(head_of(program_of(models[0]).graph, "logits")))
    own_NV = shortlists[0].allowed(sources, cast("int", head.out_features))
    own_NV[:, list(always)] = True
    for row_V, tokens in zip(own_NV, forced, strict=True):
        row_V[torch.tensor(tokens, dtype=torch.long)] = True
    return reduced_to(own_NV)


def reduced_to(own_NV: Tensor) -> Reduced:
    """Return the reduced vocabulary for the lists of the sentences.

    It has further tokens, which no sentence may use, so that its sizes recur: products on the CPU
    are compiled for each size.

    Args:
        own_NV: whether each sentence may use each token.
    """
    size, used_V = own_NV.size(1), own_NV.any(0)
    count = int(used_V.sum())
    more_M = (~used_V).nonzero()[: recurring(count, size) - count, 0]
    ids_C = torch.cat((used_V.nonzero()[:, 0], more_M)).sort().values
    own_NC = own_NV[:, ids_C]
    return Reduced(ids_C, None if bool(own_NC.all()) else own_NC, size)


def recurring(count: int, most: int) -> int:
    """Return the smallest of 1, 2, ..., 8, 10, 12, 14, 16, 20, ..., `most` that is large enough.

    Four sizes in each octave: at most a quarter of the columns is not used.
    """
    unit = 1 << max(0, (count - 1).bit_length() - 3)
    return min(-(-count // unit) * unit, most)
