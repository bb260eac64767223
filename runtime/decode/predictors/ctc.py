"""CTC: text from scores of tokens or blank at each position, greedily or by prefix beam search.

A path assigns a token or blank to every position; it is read by merging repeats and then removing
blanks.  Prefix beam search sums the probabilities of the paths that read the same.

Axes: B rows, S positions, V tokens.

Source: Graves et al. 2006; prefix beam search: Hannun et al. 2014, without a language model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from pydantic import Field

from ....specs.findings import InputError
from .predictor import (
    Answer,
    Context,
    Predictor,
    PredictorSettings,
    Reads,
    Row,
    best_of,
    evaluating,
)

if TYPE_CHECKING:
    from torch import Tensor

    from .feeding import Feeding
    from .forward import Passed


class LabelPrefix(NamedTuple):
    """A sequence of tokens and its log probability."""

    tokens: tuple[int, ...]
    log_probability: float


def collapse(path: Sequence[int], blank: int) -> tuple[int, ...]:
    """Return the tokens of a path: repeats merged, then blanks removed.

    >>> collapse([0, 5, 5, 0, 5, 7], blank=0)
    (5, 5, 7)
    """
    return tuple(token for token, _ in groupby(path) if token != blank)


def _log_add(first: float, other: float) -> float:
    if first < other:
        first, other = other, first
    return first if other == -math.inf else first + math.log1p(math.exp(other - first))


def prefix_beam_search(
    log_p_SV: Sequence[Sequence[float]], *, blank: int, beam: int
) -> list[LabelPrefix]:
    """Return the most probable sequences, best first.

    The result is exact if `beam` is at least the number of prefixes of each length.

    Args:
        log_p_SV: log probability of each token at each position.
        blank: id of blank.
        beam: prefixes that are continued at each position.
    """
    # Log probabilities of the paths that end with blank, and with the last token.
    alive: dict[tuple[int, ...], tuple[float, float]] = {(): (0.0, -math.inf)}
    for log_p_V in log_p_SV:
        grown: dict[tuple[int, ...], tuple[float, float]] = {}

        def add(prefix: tuple[int, ...], *, blanks: float, tokens: float) -> None:
            old = grown.get(prefix, (-math.inf, -math.inf))  # noqa: B023 - used in this iteration
            grown[prefix] = _log_add(old[0], blanks), _log_add(old[1], tokens)  # noqa: B023

        tokens = sorted(range(len(log_p_V)), key=log_p_V.__getitem__, reverse=True)
        tokens = [token for token in tokens[: beam + 1] if token != blank]
        for prefix, (with_blank, with_token) in alive.items():
            total = _log_add(with_blank, with_token)
            add(prefix, blanks=total + log_p_V[blank], tokens=-math.inf)
            if prefix:
                add(prefix, blanks=-math.inf, tokens=with_token + log_p_V[prefix[-1]])
            for token in tokens:
                before = with_blank if prefix and token == prefix[-1] else total
                if before > -math.inf:
                    add((*prefix, token), blanks=-math.inf, tokens=before + log_p_V[token])
        ranked = sorted(grown.items(), key=lambda item: _log_add(*item[1]), reverse=True)
        alive = dict(ranked[:beam])
    return [LabelPrefix(prefix, _log_add(*log_p)) for prefix, log_p in alive.items()]


class Ctc(PredictorSettings):
    """Text by CTC."""

    reads: ClassVar[Reads] = "all"
    outputs: ClassVar[tuple[str, ...]] = ("output", "mask")

    type: Literal["ctc"] = "ctc"
    output: str = "logits"
    """Output of the model with a score for each token and blank at each position, [B S V]."""
    mask: str | None = None
    """Output of the model with the mask of positions that are not padding, [B S].  Without it, only
    rows of equal length share a batch, so that none is padded."""
    blank: int = Field(default=0, ge=0)
    """Id of blank; 0 is the id of padding."""
    beam: int = Field(default=1, ge=1, le=1000)
    """Prefixes of the beam search; 1 reads the most probable path."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .feeding import Feeding
        from .forward import check_output

        context.column(context.answers)
        check_output(context, self.output, self.type)
        if self.mask is not None:
            check_output(context, self.mask, self.type)
        return CtcPredictor(context, Feeding.of(context), self)


@dataclass(frozen=True, slots=True)
class CtcPredictor:
    """Predicts texts by CTC."""

    context: Context
    feeding: Feeding
    settings: Ctc

    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Return the text for each row."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the text for each row with its log probability.

        Greedily, that of the best path; by beam search, that of all paths that were kept.
        """
        from .forward import passes

        results: list[Answer] = [Answer("")] * len(rows)
        with evaluating(self.context.models):
            equal = self.settings.mask is None
            for passed in passes(self.context, self.feeding, rows, equal=equal):
                log_p_BSV = passed.probabilities(self.settings.output).log().cpu()
                for at, log_p_SV in zip(passed.rows, self._real(passed, log_p_BSV), strict=True):
                    results[at] = self._answer(log_p_SV)
        return results

    def _real(self, passed: Passed, log_p_BSV: Tensor) -> list[Tensor]:
        """Return the positions of each row that are not padding.

        Raises:
            InputError: the output or its mask has the wrong axes, or blank is not a token.
        """
        name, mask = self.settings.output, self.settings.mask
        if log_p_BSV.ndim != 3 or self.settings.blank >= log_p_BSV.size(-1):  # noqa: PLR2004
            raise InputError(
                f"the output '{name}' has no score of blank {self.settings.blank} for positions",
                help="set 'output' to [batch, positions, tokens] and 'blank' to one of the tokens",
            )
        if mask is None:
            return list(log_p_BSV)
        mask_BS = passed.outputs[0][mask].bool().cpu()
        if mask_BS.shape != log_p_BSV.shape[:2]:
            raise InputError(
                f"the output '{mask}' is not a mask of the positions of '{name}'",
                help="set 'mask' to an output [batch, positions]",
            )
        return [row[mask] for row, mask in zip(log_p_BSV, mask_BS, strict=True)]

    def _answer(self, log_p_SV: Tensor) -> Answer:
        """Return the text of one row."""
        decode, blank = self.context.column(self.context.answers).decode, self.settings.blank
        if self.settings.beam == 1:
            best_S, path_S = log_p_SV.max(-1)
            return Answer(decode(collapse(path_S.tolist(), blank)), float(best_S.sum()))
        prefixes = prefix_beam_search(log_p_SV.tolist(), blank=blank, beam=self.settings.beam)
        return best_of(
            [Answer(decode(prefix.tokens), prefix.log_probability) for prefix in prefixes]
        )
