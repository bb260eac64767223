"""Parsing as sequence labeling: an encoder tags every word, and the tags encode the tree.

A spec for this task needs the inputs of `words.py` and, for every word, the outputs `tags`,
`leaves` and `nodes`: scores of the symbols of `tetra.py`.

Axes: B sentences, S words, L symbols of a batch, V symbols of the vocabulary.

Source: Kitaev & Klein 2020.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ....graphs.ir.graph import Graph
from ...data.batches import Batch
from ...data.symbols import Vocabulary
from ...data.treebank.tetra import TAGS, TagSets
from ...decode.parsing.parse import Parser
from ...decode.parsing.tag_parser import TagParser
from ...decode.settings import SearchSettings
from ...train.checks.needs import TAGGING
from ...train.loss import LossSums
from .word_task import WordParsing


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
