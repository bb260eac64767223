"""Chart parsing: an encoder scores every label of every span, and CKY finds the tree.

A spec for this task needs the inputs of `words.py` and the outputs `score` (score) for every
span [B S S labels] and `tags` for every word [B S tags].  A span without a label has score 0.
The probability of a labeled tree is exp of the sum of its scores, normalized over all trees
and labels; the loss is its negative log.  Decoding chooses the tree with the most correct
labeled spans in expectation, where spans less likely than `LEAST` count as wrong.

Axes: B sentences, S words, L labels, N labeled spans of a batch.

Source: Stern et al. 2017, section 3.1; Kitaev & Klein 2018, section 2; as a random field:
Zhang et al. 2020, section 2; choice by expectation: Goodman 1996.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....graphs.ir.graph import Graph
from ....specs.findings import InputError
from ...data.batches import Batch
from ...data.symbols import Vocabulary
from ...data.treebank.charts import Chart, Labels, binary_trees, chart_of, tree_of
from ...data.treebank.linearization import WORD
from ...decode.parsing.cky import best_trees, log_partition, marginals
from ...decode.settings import SearchSettings
from ...train.checks.needs import CHART
from ...train.loss import LossSums
from .parse import Parse, Parser, Sentence, tagged
from .word_task import WordParser, WordParsing

LEAST = 0.45
"""Minimum probability of a labeled span: the optimum is about half of the achievable F1,
Lipton et al. 2014, section 4."""
SCORES = 1 << 23
"""Maximum number of scores of a batch in decoding: 32 MB."""


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
        weigh = Weights(outputs["score"], gold.lengths)
        right_N = weigh.score_BSSL[gold.spans]
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


class Weights:
    """Log weights of spans, summed over labels: exp of each label's score, plus 1 for no label."""

    def __init__(self, score_BSSL: Tensor, length_B: Tensor) -> None:
        """Convert the scores to float32 and sum over labels."""
        self.score_BSSL, self.length_B = score_BSSL.float(), length_B
        self.span_BSS = F.softplus(self.score_BSSL.logsumexp(-1))

    def log_all(self) -> Tensor:
        """Return the log partition function of each sentence over all labeled trees, [B]."""
        return log_partition(self.span_BSS, self.length_B)

    def probabilities(self) -> Tensor:
        """Return the marginal probability of each label of each span, [B S S L]."""
        in_tree_BSS = marginals(self.span_BSS, self.length_B)
        log_BSS = in_tree_BSS.clamp(min=1e-30).log() - self.span_BSS
        return (self.score_BSSL + log_BSS[..., None]).exp()


@dataclass(frozen=True, slots=True)
class ChartParser(WordParser):
    """Parser with models that score spans."""

    labels: Labels

    def capacity(self, longest: int) -> int:
        """Return the maximum batch size for sentences of at most `longest` words."""
        return SCORES // (longest**2 * len(self.labels.chains))

    def parses(self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor]) -> list[Parse]:
        """Return the parses of a batch."""
        length_B = inputs["source_mask"].sum(1)
        scored = [self._scored(model, inputs, length_B) for model in self.models]
        probable_BSSL = torch.stack([weigh.probabilities() for weigh, _ in scored]).mean(0)
        tags_BST = torch.stack([tags for _, tags in scored]).mean(0)
        best_BSS, label_BSS = probable_BSSL.max(-1)
        worth_BSS = (best_BSS - LEAST).clamp(min=0.0)
        trees = best_trees(worth_BSS, length_B)
        # Log probability of the tree, averaged over models: its scores minus the log partition.
        score_BSSL = torch.stack([weigh.score_BSSL for weigh, _ in scored]).mean(0)
        chosen_BSS = score_BSSL.gather(-1, label_BSS[..., None])[..., 0].cpu().numpy()
        all_B = torch.stack([weigh.log_all() for weigh, _ in scored]).mean(0).tolist()
        tag_BS = tags_BST.argmax(-1).tolist()
        worth, label = worth_BSS.cpu().numpy(), label_BSS.cpu().numpy()
        found = []
        for row, sentence in enumerate(sentences):
            kept = [span for span in trees[row] if worth[row][span] > 0]
            spans = {span: self.labels.chains[label[row][span]] for span in kept}
            tags = tuple(self.labels.tags[one] for one in tag_BS[row][: len(sentence)])
            tree = tree_of(spans, tagged(sentence, tags))
            own = float(sum(chosen_BSS[row][span] for span in kept))
            found.append(
                Parse(
                    tree,
                    (*tags, *[WORD] * (len(sentence) - len(tags))),
                    score=float(sum(worth[row][span] for span in kept)),
                    log_probability=own + binary_trees(tree) - all_B[row],
                )
            )
        return found

    def _scored(
        self, model: nn.Module, inputs: Mapping[str, Tensor], length_B: Tensor
    ) -> tuple[Weights, Tensor]:
        """Return the weights of spans, and the probabilities of tags, [B S tags]."""
        outputs = self.outputs(model, inputs)
        return Weights(outputs["score"], length_B), outputs["tags"].float().softmax(-1)
