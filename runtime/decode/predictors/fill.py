"""Filling in masks: the tokens that a masked language model puts in the positions of a text.

Every position gets the tokens that are most probable given the others' masks; the best texts are
the combinations with the largest sum of log probabilities.

Axes: B rows, T positions, V tokens.

Source: Devlin et al. 2019, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from ....graphs.ir.graph import BlockNode
from ....specs.findings import InputError
from .classify import refuse_axes
from .columns import Encoded, VocabularyColumn
from .predictor import Answer, Context, Predictor, PredictorSettings, Reads, Row, evaluating

if TYPE_CHECKING:
    from torch import Tensor

    from ....graphs.ir.graph import Graph
    from .feeding import Feeding

MASK = 3
"""Id of the mask where neither the predictor nor the objective says it."""


class Fill(PredictorSettings):
    """The most probable tokens in the masked positions of a text."""

    reads: ClassVar[Reads] = "all"

    type: Literal["fill"] = "fill"
    output: str = "logits"
    """Output of the model with a score for each token at each position, [B T V]."""
    written: str = Field(default="[MASK]", min_length=1)
    """What stands in a text for one masked token."""
    mask_id: int | None = Field(default=None, ge=0)
    """Id of the mask; `null` is that of the objective, or 3."""
    nbest: int = Field(default=1, ge=1, le=1000)
    """Texts that are returned, best first."""

    def make(self, context: Context) -> Predictor:
        """Return the predictor."""
        from .feeding import Feeding
        from .forward import check_output

        column = context.column(context.answers)
        if not isinstance(column, VocabularyColumn):
            raise InputError(
                f"the column '{context.answers}' has no text whose masks could be filled in",
                help="set 'answers' to the column of the text",
            )
        check_output(context, self.output, self.type)
        mask = _mask_of(context.objective) if self.mask_id is None else self.mask_id
        if mask >= column.vocabulary.vocab_size:
            raise InputError(
                f"'mask_id' is {mask}, but there are only {column.vocabulary.vocab_size} tokens",
                help="set it to the id that the model was trained with",
            )
        masked = _MaskedColumn(column.column, self.written, mask)
        context = replace(context, columns={**context.columns, context.answers: masked})
        return FillPredictor(context, Feeding.of(context), self, masked)


def _mask_of(objective: Graph | None) -> int:
    """Return the id with which the noise of an objective masks tokens."""
    nodes = () if objective is None else objective.root.nodes
    params = (node.part.params for node in nodes if isinstance(node, BlockNode))
    ids = (getattr(settings, "mask_id", None) for settings in params)
    return next((mask for mask in ids if isinstance(mask, int)), MASK)


@dataclass(frozen=True, slots=True)
class _MaskedColumn(VocabularyColumn):
    """A column of texts in which a word stands for a masked token."""

    written: str
    mask: int

    def encode(self, value: Any) -> Encoded:
        """Return the ids of a text; each part between masks is encoded by itself."""
        if not isinstance(value, str) or self.written not in value:
            return VocabularyColumn.encode(self, value)
        parts = [VocabularyColumn.encode(self, part.strip()) for part in value.split(self.written)]
        ids = [parts[0].arrays[""]]
        for part in parts[1:]:
            ids += [np.array([self.mask], dtype=ids[0].dtype), part.arrays[""]]
        joined = np.concatenate(ids)
        special = parts[0].length - len(parts[0].arrays[""])
        return Encoded({**parts[0].arrays, "": joined}, len(joined) + special)


@dataclass(frozen=True, slots=True)
class FillPredictor:
    """Fills in the masks of texts."""

    context: Context
    feeding: Feeding
    settings: Fill
    column: _MaskedColumn

    def predict(self, rows: Sequence[Row]) -> list[str]:
        """Return the text of each row without masks."""
        return [answer.value for answer in self.answers(rows)]

    def answers(self, rows: Sequence[Row]) -> list[Answer]:
        """Return the text of each row without masks.

        The score is the sum of the log probabilities of its new tokens, 0 for a text without masks;
        `probabilities` has those of the tokens in the first masked position.
        """
        from .forward import passes

        results: list[Answer] = [Answer("")] * len(rows)
        with evaluating(self.context.models):
            for passed in passes(self.context, self.feeding, rows):
                log_p_BTV = passed.probabilities(self.settings.output).log().cpu()
                refuse_axes(log_p_BTV.ndim, 3, self.settings.output)
                ids_BT = passed.tensors[self.context.answers].cpu()
                for at, ids_T, log_p_TV in zip(passed.rows, ids_BT, log_p_BTV, strict=True):
                    results[at] = self._answer(ids_T, log_p_TV)
        return results

    def _answer(self, ids_T: Tensor, log_p_TV: Tensor) -> Answer:
        """Return the texts of one row, best first."""
        # The begin token may have the id of the mask.
        begun = len(getattr(self.column.column, "before", ()))
        positions = (ids_T[begun:] == self.column.mask).nonzero().flatten() + begun
        vocabulary, count = self.column.vocabulary, self.settings.nbest
        special = [vocabulary.pad, vocabulary.bos, vocabulary.eos, vocabulary.unk, self.column.mask]
        log_p_TV[:, special] = -np.inf
        # Fillings of the first positions, best first; the best ones of all positions continue them.
        fillings: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
        probabilities: Mapping[str, float] = {}
        for position in positions.tolist():
            best = log_p_TV[position].topk(min(count, log_p_TV.size(-1) - len({*special})))
            tokens = [*zip(best.values.tolist(), best.indices.tolist(), strict=True)]
            probabilities = probabilities or _named(vocabulary.pieces, tokens)
            longer = [
                (score + log_p, (*filling, token))
                for score, filling in fillings
                for log_p, token in tokens
            ]
            fillings = sorted(longer, key=lambda filling: -filling[0])[:count]
        answers = [
            Answer(self._text(ids_T, positions.tolist(), tokens), score, probabilities)
            for score, tokens in fillings
        ]
        return replace(answers[0], others=tuple(answers[1:]))

    def _text(self, ids_T: Tensor, positions: Sequence[int], tokens: Sequence[int]) -> str:
        """Return the text with tokens in its masked positions."""
        ids = ids_T.tolist()
        for position, token in zip(positions, tokens, strict=True):
            ids[position] = token
        text: str = self.column.decode(ids)
        return text


def _named(pieces: Any, tokens: Sequence[tuple[float, int]]) -> Mapping[str, float]:
    """Return the probabilities of tokens by their pieces."""
    names = pieces([token for _, token in tokens])
    return dict(zip(names, np.exp([log_p for log_p, _ in tokens]).tolist(), strict=True))
