"""Tag parser: the most probable sequence of tags that forms a tree.

Models have, for every word, the outputs `tags`, `leaves` and `nodes`: scores of the symbols of
`data/treebank/tetra.py`.

Axes: S words, T tags of a kind; 2 sides, left and right.

Source: Kitaev & Klein 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..trees.charts import tree_of
from ..trees.linearization import WORD
from ..trees.tetra import LEAVES, NODES, POS, TAGS, TagSets, best_sides, spans_of
from .parse import Parse, Sentence, tagged
from .word_parser import WordParser

WORDS = 4096
"""Maximum words of a batch in decoding, including padding."""


@dataclass(frozen=True, slots=True)
class TagParser(WordParser):
    """Parser with models that tag words."""

    sets: TagSets

    def capacity(self, longest: int) -> int:
        """Return the maximum batch size for sentences of at most `longest` words."""
        return WORDS // longest

    def parses(
        self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor], length_B: Tensor
    ) -> list[Parse]:
        """Return the parses of a batch."""
        by_model = []
        for model in self.models:
            outputs = self.outputs(model, inputs)
            by_model.append([outputs[name].double().softmax(-1) for name in TAGS])
        logs = [
            torch.stack(probabilities).mean(0).log().cpu().numpy()
            for probabilities in zip(*by_model, strict=True)
        ]
        counts = length_B.tolist()
        return [
            self._parse(sentence, *(log[row, : counts[row]] for log in logs))
            for row, sentence in enumerate(sentences)
        ]

    def _parse(
        self,
        sentence: Sentence,
        pos_ST: NDArray[np.float64],
        leaf_ST: NDArray[np.float64],
        node_ST: NDArray[np.float64],
    ) -> Parse:
        """Return the most probable tree of a sentence, given log-probabilities of its tags."""
        leaf_S2, leaves = _by_side(leaf_ST, self.sets.leaves, LEAVES)
        node_S2, nodes = _by_side(node_ST, self.sets.nodes, NODES)
        sides = best_sides(leaf_S2, node_S2)
        leaf_sides, node_sides = sides[::2], sides[1::2]
        spans = spans_of(
            [leaves[side][index] for index, side in enumerate(leaf_sides)],
            [nodes[side][index] for index, side in enumerate(node_sides)],
        )
        log_p = sum(leaf_S2[index, side] for index, side in enumerate(leaf_sides))
        log_p += sum(node_S2[index, side] for index, side in enumerate(node_sides))
        tags = [self.sets.pos[tag].removeprefix(POS) for tag in pos_ST.argmax(-1)]
        tags += [WORD] * (len(sentence) - len(tags))
        tree = tree_of(spans, tagged(sentence, tags))
        return Parse(tree, tuple(tags), score=float(log_p), log_probability=float(log_p))


def _by_side(
    log_ST: NDArray[np.float64], symbols: Sequence[str], marks: tuple[str, str]
) -> tuple[NDArray[np.float64], list[list[str]]]:
    """Return the log-probability of the best symbol of each side, [S 2], and the symbols.

    A side without a symbol in the vocabulary gets an unlabeled symbol with a very low score.
    """
    worth_S2 = np.full((len(log_ST), 2), -1e9)
    best = []
    for side, mark in enumerate(marks):
        columns = [index for index, symbol in enumerate(symbols) if symbol.startswith(mark)]
        if not columns:
            best.append([mark] * len(log_ST))
            continue
        chosen_S = log_ST[:, columns].argmax(-1)
        worth_S2[:, side] = log_ST[np.arange(len(log_ST)), np.array(columns)[chosen_S]]
        best.append([symbols[columns[column]] for column in chosen_S])
    return worth_S2, best
