"""Chart parser: scores of the labels of every span, and the best tree by CKY.

Models have the outputs `score` for every span [B S S labels], where a span without a label has
score 0, and `tags` for every word [B S tags].  Decoding chooses the tree with the most correct
labeled spans in expectation, where spans less likely than `LEAST` count as wrong.

Axes: B sentences, S words, L labels, T tags.

Source: Stern et al. 2017, section 3.1; choice by expectation: Goodman 1996.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ....blocks.kernels.losses.tree_crf import SpanWeights
from ..trees.charts import Labels, binary_trees, tree_of
from ..trees.linearization import WORD
from .cky import best_trees
from .parse import Parse, Sentence, tagged
from .word_parser import WordParser

LEAST = 0.45
"""Minimum probability of a labeled span: the optimum is about half of the achievable F1,
Lipton et al. 2014, section 4."""
SCORES = 1 << 23
"""Maximum number of scores of a batch in decoding: 32 MB."""


@dataclass(frozen=True, slots=True)
class ChartParser(WordParser):
    """Parser with models that score spans."""

    labels: Labels

    def capacity(self, longest: int) -> int:
        """Return the maximum batch size for sentences of at most `longest` words."""
        return SCORES // (longest**2 * len(self.labels.chains))

    def parses(
        self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor], length_B: Tensor
    ) -> list[Parse]:
        """Return the parses of a batch."""
        scored = [self._scored(model, inputs, length_B) for model in self.models]
        probable_BSSL = torch.stack([weigh.probabilities() for weigh, _ in scored]).mean(0)
        tags_BST = torch.stack([tags for _, tags in scored]).mean(0)
        best_BSS, label_BSS = probable_BSSL.max(-1)
        worth_BSS = (best_BSS - LEAST).clamp(min=0.0)
        trees = best_trees(worth_BSS, length_B)
        # Log probability of the tree, averaged over models: its scores minus the log partition.
        score_BSSL = torch.stack([weigh.score_BNNL.float() for weigh, _ in scored]).mean(0)
        chosen_BSS = score_BSSL.gather(-1, label_BSS[..., None])[..., 0].cpu().numpy()
        all_B = torch.stack([weigh.log_all() for weigh, _ in scored]).mean(0).tolist()
        tag_BS = tags_BST.argmax(-1).tolist()
        worth, label = worth_BSS.cpu().numpy(), label_BSS.cpu().numpy()
        results = []
        for row, sentence in enumerate(sentences):
            positive = [span for span in trees[row] if worth[row][span] > 0]
            spans = {span: self.labels.chains[label[row][span]] for span in positive}
            tags = tuple(self.labels.tags[index] for index in tag_BS[row][: len(sentence)])
            tree = tree_of(spans, tagged(sentence, tags))
            tree_score = float(sum(chosen_BSS[row][span] for span in positive))
            results.append(
                Parse(
                    tree,
                    (*tags, *[WORD] * (len(sentence) - len(tags))),
                    score=float(sum(worth[row][span] for span in positive)),
                    log_probability=tree_score + binary_trees(tree) - all_B[row],
                )
            )
        return results

    def _scored(
        self, model: nn.Module, inputs: Mapping[str, Tensor], length_B: Tensor
    ) -> tuple[SpanWeights, Tensor]:
        """Return the weights of spans, and the probabilities of tags, [B S tags]."""
        outputs = self.outputs(model, inputs)
        return SpanWeights(outputs["score"], length_B), outputs["tags"].float().softmax(-1)
