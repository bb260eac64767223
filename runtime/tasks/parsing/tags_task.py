"""Parsing as sequence labeling: an encoder tags every word, and the tags encode the tree.

A spec for this task needs the inputs of `words.py` and, for every word, the outputs `tags`,
`leaves` and `nodes`: scores of the symbols of `tetra.py`.  Decoding chooses the most
probable sequence of tags that forms a tree.

Axes: B sentences, S words, T tags of a kind; 2 sides, left and right.

Source: Kitaev & Klein 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from ....graphs.ir.graph import Graph
from ...data.batches import Batch
from ...data.symbols import Vocabulary
from ...data.treebank.charts import tree_of
from ...data.treebank.linearization import WORD
from ...data.treebank.tetra import LEAVES, NODES, POS, TagSets, best_sides, spans_of
from ...decode.settings import SearchSettings
from ...train.checks.needs import TAGGING, TAGS
from ...train.loss import LossSums
from .parse import Parse, Parser, Sentence, tagged
from .word_task import WordParser, WordParsing

WORDS = 4096
"""Maximum words of a batch in decoding, including padding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagParsing(WordParsing):
    """Task of parsing as sequence labeling."""

    sets: TagSets = field(init=False)
    numbers: Tensor = field(init=False)
    """Index of each symbol among those of its kind, [V]; -1 for other ids."""

    def __post_init__(self) -> None:
        """Derive the tags and words from the vocabularies."""
        WordParsing.__post_init__(self)
        symbols = self.target.pieces(range(self.target.vocab_size))
        sets = TagSets.among(symbols)
        places = {
            symbol: place
            for kind in (sets.pos, sets.leaves, sets.nodes)
            for place, symbol in enumerate(kind)
        }
        object.__setattr__(self, "sets", sets)
        object.__setattr__(self, "numbers", torch.tensor([places.get(one, -1) for one in symbols]))

    @staticmethod
    def sizes(source: Vocabulary, target: Vocabulary) -> dict[str, int]:
        """Return the params of a spec that are determined by the vocabularies."""
        sets = TagSets.among(target.pieces(range(target.vocab_size)))
        # A treebank of single words has no nodes, but a linear map needs at least one output.
        counts = (len(sets.pos), len(sets.leaves), max(1, len(sets.nodes)))
        return {"vocab": source.vocab_size, **dict(zip(TAGS, counts, strict=True))}

    def check(self, graph: Graph) -> None:
        """Check that a graph has the inputs, outputs and sizes of this task.

        Raises:
            InputError: an input or output is missing or has the wrong kind or size.
        """
        sizes = self.sizes(self.source, self.target)
        self.check_sizes(graph, TAGGING, {name: sizes[name] for name in TAGS})

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the cross-entropy summed over all tags; unknown tags are ignored."""
        outputs = model(**self.words(batch.source))
        longest = outputs["tags"].size(1)
        number_BL = self.numbers.to(batch.target.device)[batch.target]
        number_BL = F.pad(number_BL, (0, 3 * longest), value=-1)[:, : 3 * longest]
        right_BS3 = number_BL.unflatten(1, (longest, 3))
        nll = sum(
            (
                F.cross_entropy(
                    outputs[name].float().flatten(0, 1),
                    right_BS3[..., place].flatten(),
                    ignore_index=-1,
                    reduction="sum",
                )
                for place, name in enumerate(TAGS)
            ),
            torch.zeros((), device=batch.target.device),
        )
        return self.lost(nll, batch, outputs)

    def parser(
        self,
        model: nn.Module,
        search: SearchSettings,  # noqa: ARG002
        *,
        half: bool = False,
        others: tuple[nn.Module, ...] = (),
    ) -> Parser:
        """Return a parser that averages the probabilities of the model and `others`."""
        return TagParser((model, *others), self.source, self.words, half, self.sets)


@dataclass(frozen=True, slots=True)
class TagParser(WordParser):
    """Parser with models that tag words."""

    sets: TagSets

    def capacity(self, longest: int) -> int:
        """Return the maximum batch size for sentences of at most `longest` words."""
        return WORDS // longest

    def parses(self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor]) -> list[Parse]:
        """Return the parses of a batch."""
        by_model = []
        for model in self.models:
            outputs = self.outputs(model, inputs)
            by_model.append([outputs[name].double().softmax(-1) for name in TAGS])
        logs = [
            torch.stack(each).mean(0).log().cpu().numpy() for each in zip(*by_model, strict=True)
        ]
        counts = inputs["source_mask"].sum(1).tolist()
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
            [leaves[side][place] for place, side in enumerate(leaf_sides)],
            [nodes[side][place] for place, side in enumerate(node_sides)],
        )
        log_p = sum(leaf_S2[place, side] for place, side in enumerate(leaf_sides))
        log_p += sum(node_S2[place, side] for place, side in enumerate(node_sides))
        tags = [self.sets.pos[one].removeprefix(POS) for one in pos_ST.argmax(-1)]
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
        known = [place for place, symbol in enumerate(symbols) if symbol.startswith(mark)]
        if not known:
            best.append([mark] * len(log_ST))
            continue
        chosen_S = log_ST[:, known].argmax(-1)
        worth_S2[:, side] = log_ST[np.arange(len(log_ST)), np.array(known)[chosen_S]]
        best.append([symbols[known[one]] for one in chosen_S])
    return worth_S2, best
