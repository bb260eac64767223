"""Chart parsing: an encoder scores every label of every span, and CKY finds the tree.

A spec for this task needs the inputs of `words.py` and the outputs `score` (score) for every
span [B S S labels] and `tags` for every word [B S tags].  A span without a label has score 0.
The probability of a labeled tree is exp of the sum of its scores, normalized over all trees
and labels; the loss is its negative log.

Axes: B sentences, S words, N labeled spans of a batch.

Source: Stern et al. 2017, section 3.1; Kitaev & Klein 2018, section 2; as a random field:
Zhang et al. 2020, section 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....blocks.kernels.losses.tree_crf import SpanWeights
from ....graphs.ir.graph import Graph
from ....specs.findings import InputError
from ...data.batches import Batch
from ...data.symbols import Vocabulary
from ...data.treebank.charts import Chart, Labels, chart_of
from ...decode.parsing.chart_parser import ChartParser
from ...decode.parsing.parse import Parser
from ...decode.settings import SearchSettings
from ...train.checks.needs import CHART
from ...train.loss import LossSums
from .word_task import WordParsing


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartParsing(WordParsing):
    """Chart parsing task."""

    labels: Labels = field(init=False)

    def __post_init__(self) -> None:
        """Derive the labels and words from the vocabularies."""
        WordParsing.__post_init__(self)
        object.__setattr__(self, "labels", labels_of_symbols(self.target))

    @staticmethod
    def sizes(source: Vocabulary, target: Vocabulary) -> dict[str, int]:
        """Return the params of a spec that are determined by the vocabularies."""
        labels = labels_of_symbols(target)
        sizes = {"labels": len(labels.chains), "tags": len(labels.tags)}
        return {"vocab": source.vocab_size, **sizes}

    def check(self, graph: Graph) -> None:
        """Check that a graph has the inputs, outputs and sizes of this task.

        Raises:
            InputError: an input or output is missing or has the wrong kind or size.
        """
        sizes = {"score": len(self.labels.chains), "tags": len(self.labels.tags)}
        self.check_sizes(graph, CHART, sizes)
        if graph.outputs["score"].kind != "score":
            raise InputError(
                f"'score' has kind {graph.outputs['score'].kind}, not score",
                place=f"{graph.source}#/outputs/score",
                help="compute it with a span_score@1 block",
            )

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the loss of a batch, summed over its trees and tags.

        Sentences with a label or tag outside the vocabulary are ignored.
        """
        outputs = model(**self.words(batch.source))
        charts = [self._chart(ids) for ids in batch.target.tolist()]
        gold = _gold(charts, self.labels, outputs["score"].size(1), batch.target.device)
        weigh = SpanWeights(outputs["score"], gold.lengths)
        right_N = weigh.score_BNNL[gold.spans]
        tree_B = (weigh.log_all() - gold.binary).index_add(0, gold.spans[0], -right_N)
        nll = tree_B.masked_fill(~gold.known, 0.0).sum()
        nll = nll + F.cross_entropy(
            outputs["tags"].float().flatten(0, 1),
            gold.tags.flatten(),
            ignore_index=-1,
            reduction="sum",
        )
        return self.lost(nll, batch, outputs)

    def _chart(self, ids: Sequence[int]) -> Chart | None:
        """Return the chart of target ids, or None if they contain an unknown symbol."""
        symbols = self.target.decode(ids).split(" ")
        try:
            return chart_of(symbols)
        except ValueError:
            return None

    def parser(
        self,
        model: nn.Module,
        search: SearchSettings,  # noqa: ARG002
        *,
        half: bool = False,
        others: tuple[nn.Module, ...] = (),
    ) -> Parser:
        """Return a parser that averages the probabilities of the model and `others`."""
        return ChartParser((model, *others), self.source, self.words, half, self.labels)


def labels_of_symbols(target: Vocabulary) -> Labels:
    """Return the labels and tags among the symbols of a vocabulary."""
    return Labels.among(target.pieces(range(target.vocab_size)))


class _Gold(NamedTuple):
    """Gold charts of a batch as tensors."""

    lengths: Tensor
    """Words of each sentence, [B]."""
    known: Tensor
    """Whether the gold tree is in the vocabulary, [B]; other sentences are ignored."""
    binary: Tensor
    """Log of the number of binary trees that reduce to the tree, [B]."""
    spans: tuple[Tensor, ...]
    """Sentence, first word, last word and label of each labeled span, each [N]."""
    tags: Tensor
    """Tag of each word, [B S]; -1 for padding and ignored sentences."""


def _gold(
    charts: Sequence[Chart | None], labels: Labels, longest: int, device: torch.device
) -> _Gold:
    """Convert charts to tensors."""
    known = [False] * len(charts)
    lengths, binary = [1] * len(charts), [0.0] * len(charts)
    spans: list[tuple[int, int, int, int]] = []
    tags_BS = torch.full((len(charts), longest), -1)
    for row, chart in enumerate(charts):
        if chart is None or len(chart.tags) > longest or not labels.know(chart):
            continue
        known[row], lengths[row], binary[row] = True, len(chart.tags), chart.binary
        tags_BS[row, : len(chart.tags)] = torch.tensor([labels.tag_number[t] for t in chart.tags])
        spans += [
            (row, first, last, labels.chain_number[chain])
            for (first, last), chain in chart.spans.items()
        ]
    return _Gold(
        torch.tensor(lengths, device=device),
        torch.tensor(known, device=device),
        torch.tensor(binary, device=device),
        torch.tensor(spans, dtype=torch.int64, device=device).view(-1, 4).unbind(1),
        tags_BS.to(device),
    )
