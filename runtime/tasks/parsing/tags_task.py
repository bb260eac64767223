"""Parsing as sequence labelling: an encoder tags every word, and the tags are a tree.

A spec serves this task when it has the inputs that `words.py` gives, and, of every word,
the outputs `tags`, `leaves` and `nodes`: scores of the symbols of `tetra.py`.  Of all tags
that make a tree those are chosen which are likeliest together.

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
from ...train.loss import LossSums
from .parse import Parse, Parser, Sentence, tagged
from .word_task import WordParser, WordParsing

OUTPUTS = ("tags", "leaves", "nodes")
"""In the order in which symbols of a word stand."""
WORDS = 4096
"""Words of a batch that is parsed, padding counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TagParsing(WordParsing):
    """The task, as the training loop sees it."""

    sets: TagSets = field(init=False)
    numbers: Tensor = field(init=False)
    """Where each symbol is among those of its kind, [V]; -1 for others."""

    def __post_init__(self) -> None:
        """Learn what the vocabularies hold."""
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
        """Return the params of a spec that follow from the vocabularies."""
        sets = TagSets.among(target.pieces(range(target.vocab_size)))
        # A treebank of single words has no nodes, and a map needs an output.
        counts = (len(sets.pos), len(sets.leaves), max(1, len(sets.nodes)))
        return {"vocab": source.vocab_size, **dict(zip(OUTPUTS, counts, strict=True))}

    def check(self, graph: Graph) -> None:
        """Refuse a graph that does not serve this task with these vocabularies.

        Raises:
            InputError: an input or output is missing, of another kind, or of another size.
        """
        sizes = self.sizes(self.source, self.target)
        self.check_sizes(graph, "tags", {name: sizes[name] for name in OUTPUTS})

    def loss(self, model: nn.Module, batch: Batch) -> LossSums:
        """Return the summed cross-entropy of all tags; one that is unknown counts for nothing."""
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
                for place, name in enumerate(OUTPUTS)
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
        """Return the model as a parser; with others their probabilities are averaged."""
        return TagParser((model, *others), self.source, self.words, half, self.sets)


@dataclass(frozen=True, slots=True)
class TagParser(WordParser):
    """Models that tag words."""

    sets: TagSets

    def room(self, longest: int) -> int:
        """Return how many sentences a batch has room for, if the longest has so many words."""
        return WORDS // longest

    def parses(self, sentences: Sequence[Sentence], inputs: Mapping[str, Tensor]) -> list[Parse]:
        """Return the parses of a batch."""
        given = []
        for model in self.models:
            outputs = self.outputs(model, inputs)
            given.append([outputs[name].double().softmax(-1) for name in OUTPUTS])
        logs = [torch.stack(each).mean(0).log().cpu().numpy() for each in zip(*given, strict=True)]
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
        """Return the likeliest tree of a sentence, given log-probabilities of its tags."""
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
    """Return how likely the likeliest symbol of each side is, [S 2], and which it is.

    A side of which no symbol is known is a bare one, and unlikely.
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
