"""Drafts: inputs that models write themselves before they write the answer.

Axes: N sentences, S positions of the sources, R positions of the drafts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from ....blocks.registry import registry
from ....graphs.passes.writing import written_before
from ....specs.findings import InputError
from ...codegen.build import build_sharing
from ..decode import Request, SpecialTokens, decode_ids
from .predictor import Context, PreparedText, owner

if TYPE_CHECKING:
    from ....graphs.ir.graph import Graph
    from ...data.symbols import Vocabulary
    from ..settings import BeamSearch, DraftSettings


@dataclass(frozen=True)
class Draft:
    """Writes one input of models, of which the answer is then made."""

    context: Context
    graph: Graph
    """The part of each model that writes the input."""
    search: BeamSearch
    special_tokens: SpecialTokens
    written: str
    """The input of ids."""
    masks: tuple[str, ...]
    """Masks of these ids."""

    @cached_property
    def models(self) -> tuple[nn.Module, ...]:
        """The parts of the models that write, with their weights."""
        models = self.context.models
        return tuple(build_sharing(self.graph, model, part=True).eval() for model in models)

    def write(
        self,
        inputs: Mapping[str, Tensor],
        source_NS: Tensor,
        mask_NS: Tensor,
        lengths: Sequence[int],
    ) -> dict[str, Tensor]:
        """Return the input with the best draft of each sentence, after the begin token.

        Args:
            inputs: the inputs that do not depend on what is written.
            source_NS: ids of the sources, which limit the lengths of drafts.
            mask_NS: which of them are not padding.
            lengths: for each sentence the tokens of its longest further text.
        """
        sources = [row[mask].tolist() for row, mask in zip(source_NS, mask_NS, strict=True)]
        hypotheses = decode_ids(
            self.models,
            [
                Request(source, other_length=length)
                for source, length in zip(sources, lengths, strict=True)
            ],
            self.special_tokens,
            self.search,
            inputs=_Fixed(
                self.written,
                self.masks,
                {name: value for name, value in inputs.items() if name in self.graph.inputs},
            ),
            half=self.context.half,
        )
        begin, pad = self.special_tokens.begin, self.special_tokens.pad
        rows = [torch.tensor([begin, *best.tokens]) for best, *_ in hypotheses]
        ids_NR = pad_sequence(rows, batch_first=True, padding_value=pad).to(source_NS.device)
        lengths_N1 = torch.tensor([[len(row)] for row in rows], device=source_NS.device)
        mask_NR = torch.arange(ids_NR.size(1), device=source_NS.device) < lengths_N1
        return {self.written: ids_NR, **dict.fromkeys(self.masks, mask_NR)}


@dataclass(frozen=True, slots=True)
class _Fixed:
    """Inputs that were computed before."""

    written: str
    written_masks: tuple[str, ...]
    inputs: dict[str, Tensor]

    def fixed(
        self, source_NS: Tensor, mask_NS: Tensor, others: Sequence[Mapping[str, Any]]
    ) -> dict[str, Tensor]:
        """Return the inputs; see `Inputs`."""
        del source_NS, mask_NS, others
        return self.inputs


def drafts_of(context: Context, drafts: Sequence[DraftSettings]) -> tuple[Draft, ...]:
    """Return what writes inputs of models, in order.

    Raises:
        InputError: one cannot be written, or the column of its vocabulary has more ids.
    """
    if not drafts:
        return ()
    model = context.graph
    ports = [(draft.input, draft.output) for draft in drafts]
    parts = written_before(model, ports, registry(model.blocks))
    written = []
    for settings, (port, part) in zip(drafts, parts.items(), strict=True):
        words = SpecialTokens.of(_vocabulary(context, port))
        written.append(Draft(context, part.graph, settings.search(), words, port, part.masks))
    return tuple(written)


def _vocabulary(context: Context, port: str) -> Vocabulary:
    """Return the vocabulary of a draft: that of the column that fills it, or of the answers.

    Raises:
        InputError: it has more ids than the input.
    """
    column = owner(context.filled.get(port, ""), context.columns)
    if column is None or not isinstance(context.columns[column], PreparedText):
        column = context.answers
    model, vocabulary = context.graph, context.vocabulary(column)
    size = int(model.inputs[port].size or 0)
    if vocabulary.vocab_size > size:
        raise InputError(
            f"'{port}' has {size} ids, but the vocabulary of '{column}', in which the draft is"
            f" written, has {vocabulary.vocab_size}",
            location=f"{model.source}#/inputs",
            help=f"give '{port}' the size of the vocabulary of '{column}'",
        )
    return vocabulary
