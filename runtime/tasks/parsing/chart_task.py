"""Parsing by charts: an encoder scores every label of every span, and CKY finds the tree.

A spec serves this task when it has the inputs that `words.py` gives, and the outputs
`score` (score), of every span [B S S labels], and `tags`, of every word [B S tags].  A span
without a label has the score 0.  How probable a tree is: exp of the sum of its scores, over
that sum for all trees and labels; it is learnt by its log.  Of a sentence the tree is
chosen that has the most labelled spans right in expectation, those counted as wrong that
are less likely than `LEAST`.

Axes: B sentences, S words, L labels, N labelled spans of a batch.

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
from ...train.loss import LossSums
from .parse import Parse, Parser, Sentence, tagged
from .word_task import WordParser, WordParsing

LEAST = 0.45
"""Probability above which a labelled span is better kept: about half of the F1 that is to be
had, Lipton et al. 2014, section 4."""
SCORES = 1 << 23
"""Scores of a batch that is parsed: 32 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartParsing(WordParsing):
    """The task, as the training loop sees it."""

    labels: Labels = field(init=False)

    def __post_init__(self) -> None:
        """Learn what the vocabularies hold."""
        WordParsing.__post_init__(self)
        object.__setattr__(self, "labels", labels_of_symbols(self.target))

    @staticmethod
    def sizes(source: Vocabulary, target: Vocabulary) -> dict[str, int]:
        """Return the params of a spec that follow from the vocabularies."""
        labels = labels_of_symbols(target)
        sizes = {"labels": len(labels.chains), "tags": len(labels.tags)}
        return {"vocab": source.vocab_size, **sizes}

    def check(self, graph: Graph) -> None:
        """Refuse a graph that does not serve this task with these vocabularies.

        Raises:
            InputError: an input or output is missing, of another kind, or of another size.
        """
        sizes = {"score": len(self.labels.chains), "tags": len(self.labels.tags)}
        self.check_sizes(graph, "charts", sizes)
        if graph.outputs["score"].kind != "score":
            raise InputError(
                f"'score' is of kind {graph.outputs['score'].kind}, not score",
                place=f"{graph.source}#/outputs/score",
                help="read it from a span_score@1",
            )

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the summed loss of a batch: of its trees and of its tags.

        A sentence that holds a label or tag which the vocabulary lacks counts for nothing.
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
        """Return what symbols say; None where the vocabulary lacks one of them."""
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
        """Return the model as a parser; with others their probabilities are averaged."""
        return ChartParser((model, *others), self.source, self.words, half, self.labels)


def labels_of_symbols(target: Vocabulary) -> Labels:
    """Return the labels and tags among the symbols of a vocabulary."""
    return Labels.among(target.pieces(range(target.vocab_size)))


class _Gold(NamedTuple):
    """What is right, of a batch."""

    lengths: Tensor
    """Words of each sentence, [B]."""
    known: Tensor
    """Whether the tree is known, [B]; of others nothing else counts."""
    binary: Tensor
    """Log of how many binary trees are the tree, [B]."""
    spans: tuple[Tensor, ...]
    """Sentence, first word, last word and label of each labelled span, each [N]."""
    tags: Tensor
    """[B S]; -1 where there is no word, or no tree is known."""


def _gold(
    charts: Sequence[Chart | None], labels: Labels, longest: int, device: torch.device
) -> _Gold:
    """Return charts as tensors."""
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
    """What spans weigh, whatever their label: exp of each label's score, and 1 for none."""

    def __init__(self, score_BSSL: Tensor, length_B: Tensor) -> None:
        """Work in float32, whatever the scores are in."""
        self.score_BSSL, self.length_B = score_BSSL.float(), length_B
        self.span_BSS = F.softplus(self.score_BSSL.logsumexp(-1))

    def log_all(self) -> Tensor:
        """Return the log of what all labelled trees of each sentence weigh, [B]."""
        return log_partition(self.span_BSS, self.length_B)

    def probabilities(self) -> Tensor:
        """Return how probable each label of each span is, [B S S L]."""
        in_tree_BSS = marginals(self.span_BSS, self.length_B)
        log_BSS = in_tree_BSS.clamp(min=1e-30).log() - self.span_BSS
        return (self.score_BSSL + log_BSS[..., None]).exp()


@dataclass(frozen=True, slots=True)
class ChartParser(WordParser):
    """Models that score spans."""

    labels: Labels

    def room(self, longest: int) -> int:
        """Return how many sentences a batch has room for, if the longest has so many words."""
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
        # The mean over models of the log of how probable a tree is: labels' scores, less all.
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
        """Return what spans weigh, and how probable tags are, [B S tags]."""
        outputs = self.outputs(model, inputs)
        return Weights(outputs["score"], length_B), outputs["tags"].float().softmax(-1)
