"""Parsers that read words: charts with CKY, and tags; the choice of a tree, and a toy grammar."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.extensions.parsing.decode.chart_parser import LEAST, ChartParser
from weft.extensions.parsing.metrics.metric import measure
from weft.extensions.parsing.trees.charts import Labels
from weft.extensions.parsing.trees.trees import Leaf, read_trees
from weft.extensions.parsing.trees.words import Words
from weft.runtime import api
from weft.runtime.data.symbols import Symbols
from weft.runtime.model.opening import ensemble, open_model
from weft.runtime.train.run import Run
from weft.specs.findings import SpecError

from ...blocks.binary_trees import trees
from ...runtime.toy_treebank import bank, parser_of
from .trees.test_words import WORDS, Pieces

pytestmark = pytest.mark.integration

TARGET = Symbols(["(NP", "(S→VP", ")", "=NN", "=IN"])
SMALL = {
    "d_model": 32,
    "d_pieces": 16,
    "d_letters": 8,
    "d_characters": 8,
    "d_hidden": 16,
    "layers": 1,
    "dropout": 0.0,
}


class Fixed(nn.Module):
    """Model with constant outputs."""

    def __init__(self, score: Tensor, tags: Tensor) -> None:
        """Store the scores of spans and tags."""
        super().__init__()
        self.score, self.tags = nn.Parameter(score), nn.Parameter(tags)

    def forward(self, source_mask: Tensor, **_: Tensor) -> dict[str, Tensor]:
        """Return the scores for the number of words in the mask."""
        n = source_mask.size(1)
        return {"score": self.score[:, :n, :n], "tags": self.tags[:, :n]}


def fixed(words: int) -> Fixed:
    """Return random scores of one sentence."""
    generator = torch.Generator().manual_seed(1)
    score = torch.randn(1, words, words, 2, generator=generator)
    return Fixed(score, torch.randn(1, words, 2, generator=generator))


def outcomes(words: int) -> Iterator[dict[tuple[int, int], int]]:
    """Yield every choice of a label, or none, for the spans of every binary tree."""
    for tree in trees(0, words - 1):
        for labels in itertools.product((None, 0, 1), repeat=len(tree)):
            yield {
                span: label
                for span, label in zip(sorted(tree), labels, strict=True)
                if label is not None
            }


def weight(spans: Mapping[tuple[int, int], int], score: Tensor) -> float:
    """Return the total weight of labeled spans."""
    return math.exp(sum(score[0, i, j, label].item() for (i, j), label in spans.items()))


def test_the_tree_with_the_most_expected_correct_labels_is_chosen() -> None:
    """Compare with all labelings of all trees; also check its log probability."""
    model = fixed(4)
    model.score.data *= 3
    pieces = Pieces(WORDS)
    labels = Labels.among(TARGET.pieces(range(TARGET.vocab_size)))
    parser = ChartParser((model.eval(),), pieces, Words(pieces), False, dict, labels)

    [found] = parser.parse([[Leaf("", "a"), Leaf("IN", "b"), Leaf("", "a"), Leaf("", "b")]])

    every = [(spans, weight(spans, model.score)) for spans in outcomes(4)]
    total = sum(each for _, each in every)
    likely: dict[Any, float] = {}
    for spans, each in every:
        for one in spans.items():
            likely[one] = likely.get(one, 0.0) + each / total
    best = max(
        (spans for spans, _ in every),
        key=lambda spans: sum(likely[one] - LEAST for one in spans.items()),
    )
    worth = sum(likely[one] - LEAST for one in best.items())
    assert found is not None
    assert best
    assert found.score == pytest.approx(worth, abs=1e-4)
    assert all(likely[one] > LEAST for one in best.items())
    same = sum(each for spans, each in every if spans == best) / total
    assert found.log_probability == pytest.approx(math.log(same), abs=1e-3)
    assert [leaf.word for leaf in found.tree.leaves()] == list("abab")
    assert [leaf.tag for leaf in found.tree.leaves()][1] == "IN"


def test_a_model_without_scores_is_refused(tree_run: Callable[..., Run], tmp_path: Path) -> None:
    """The error names the output that the objective reads."""
    run = word_run(tree_run, "chart")
    params = {"model": {"spec": "parsing-tags", "params": {"tags": "=tags"}}}

    with pytest.raises(SpecError, match="has no output 'score'"):
        api.train(run.model_copy(update={"params": params}), out=tmp_path / "run")


DECODERS = pytest.mark.parametrize("decoder", ["chart", "tags"])


SIZES = {"chart": ("labels", "tags"), "tags": ("tags", "leaves", "nodes")}
"""Params of the model that are sizes of the column of trees."""


def word_run(tree_run: Callable[..., Run], decoder: str, **more: Any) -> Run:
    """Return a small run of the shipped objective and spec of a decoder."""
    own = SMALL if decoder == "chart" else {k: SMALL[k] for k in SMALL if k != "d_hidden"}
    data = tree_run().data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data["columns"]["tree"] = {"type": "tree", "decoder": decoder}
    for split in (data["train"], data["valid"], *data["test"].values()):
        split["trees"] = {"files": split["trees"]["files"], "decoder": decoder}
    return tree_run(
        spec={"chart": "parsing-span-lstm", "tags": "parsing-tags"}[decoder],
        params={**own, **{name: f"={name}" for name in SIZES[decoder]}},
        objective={"chart": "chart-parsing", "tags": "tag-parsing"}[decoder],
        data=data,
        predict={"type": {"chart": "cky", "tags": "tree_tags"}[decoder]},
        **{"evaluate": {"every": 9, "best": "loss", "samples": 0}, **more},
    )


@pytest.mark.parametrize("others", [1, 2])
@DECODERS
def test_an_untrained_model_gives_trees(
    tree_run: Callable[..., Run], tmp_path: Path, decoder: str, others: int
) -> None:
    """Trees are over exactly the words, for one model or several, without repairs."""
    result = api.train(word_run(tree_run, decoder, updates=1), out=tmp_path / "run")
    assert result.checkpoint is not None
    model = open_model(result.checkpoint)
    gold = [*bank(5, 2), *read_trees("(TOP (NN unseen))", "x")]

    found = measure(parser_of(ensemble(model, [model] * (others - 1))), gold)

    assert (found.malformed, found.scores.all.errors) == (0, 0)
    for parse, tree in zip(found.parses, gold, strict=True):
        assert parse is not None
        assert list(parse.tree.leaves()) == list(tree.leaves())
        assert parse.log_probability < 0
    assert model.parse([""]) == [None]


@pytest.mark.slow
@DECODERS
def test_it_learns_the_toy_grammar(
    tree_run: Callable[..., Run], tmp_path: Path, decoder: str
) -> None:
    """After a few dozen updates, nearly all trees and tags are right."""
    run = word_run(
        tree_run,
        decoder,
        updates=150,
        schedule={"peak": 0.01, "pieces": [{"to": 1, "over": 5}, {"shape": "cosine", "to": 0}]},
        evaluate={"every": 150, "best": "evalb", "metrics": ["evalb"]},
    )
    result = api.train(run, out=tmp_path / "run")
    assert result.checkpoint is not None

    found = measure(parser_of(open_model(result.checkpoint)), bank(30, 5))

    assert found.f1 > 95
    assert found.tags / found.tagged > 0.95
