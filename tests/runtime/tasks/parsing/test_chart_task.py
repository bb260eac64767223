"""Chart parsing: the likelihood, the choice of a tree, and learning a toy grammar."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from weft.runtime import api
from weft.runtime.data.batches import Batch
from weft.runtime.data.symbols import Symbols
from weft.runtime.data.treebank.settings import ParsingSettings
from weft.runtime.data.treebank.trees import Leaf, read_trees
from weft.runtime.decode.parsing.chart_parser import LEAST
from weft.runtime.metrics.parsing import measure
from weft.runtime.model.opening import open_model
from weft.runtime.tasks.parsing.chart_task import ChartParsing
from weft.runtime.train.loss import LossSettings
from weft.runtime.train.run import Run
from weft.specs.findings import InputError

from ....blocks.binary_trees import trees
from ...data.treebank.test_words import WORDS, Pieces
from ...toy_treebank import bank

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


def task() -> ChartParsing:
    """Return the task with a few pieces and symbols."""
    return ChartParsing(Pieces(WORDS), TARGET, LossSettings(), parsing=ParsingSettings())


def fixed(words: int) -> Fixed:
    """Return random scores of one sentence."""
    generator = torch.Generator().manual_seed(1)
    score = torch.randn(1, words, words, 2, generator=generator)
    return Fixed(score, torch.randn(1, words, 2, generator=generator))


def batch(source: list[int], written: str) -> Batch:
    """Return a batch of one sentence with an end token."""
    target = [*TARGET.encode(written), TARGET.eos]
    return Batch(torch.tensor([[*source, 1]]), torch.tensor([target]), torch.arange(1).numpy())


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


def test_the_loss_is_how_improbable_tree_and_tags_are() -> None:
    """Compare with an enumeration of every labeling of every binary tree."""
    model, wanted = fixed(3), {(0, 2): 1, (2, 2): 0}

    sums = task().loss(model, batch([4, 5, 4], "(S→VP =NN =IN (NP =NN ) )"))

    total = sum(weight(spans, model.score) for spans in outcomes(3))
    right = sum(weight(spans, model.score) for spans in outcomes(3) if spans == wanted)
    assert (
        sum(spans == wanted for spans in outcomes(3)) == 2
    )  # S has three parts, with two binarizations
    log_tags = model.tags.log_softmax(-1)[0, range(3), [0, 1, 0]].sum()
    expected = -math.log(right / total) - log_tags.item()
    assert sums.loss.item() == pytest.approx(expected, abs=1e-4)
    assert sums.tokens == 8  # including the end token


def test_a_sentence_with_an_unknown_label_counts_for_nothing() -> None:
    """An unknown tree contributes no gradient; other sentences do."""
    model = fixed(2)

    sums = task().loss(model, batch([4, 5], "(PP =IN =NN )"))
    sums.loss.backward()

    assert sums.loss == 0
    assert model.score.grad is not None
    assert not model.score.grad.any()


def test_the_tree_with_the_most_expected_correct_labels_is_chosen() -> None:
    """Compare with all labelings of all trees; also check its log probability."""
    model = fixed(4)
    model.score.data *= 3
    parser = task().parser(model.eval(), None)  # type: ignore[arg-type]

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


def test_a_spec_without_scores_is_refused(tree_run: Callable[..., Run], tmp_path: Path) -> None:
    """The error names the missing input."""
    with pytest.raises(InputError, match="parsing by charts needs an input 'pieces'"):
        api.train(tree_run(parsing={"decoder": "chart"}, search={}), out=tmp_path / "run")


DECODERS = pytest.mark.parametrize("decoder", ["chart", "tags"])


def word_run(tree_run: Callable[..., Run], decoder: str, **more: Any) -> Run:
    """Return a small run of the shipped spec of a decoder."""
    params = dict(SMALL) if decoder == "chart" else {k: SMALL[k] for k in SMALL if k != "d_hidden"}
    return tree_run(
        spec={"chart": "parsing-span-lstm", "tags": "parsing-tags"}[decoder],
        params=params,
        parsing={"decoder": decoder},
        search={},
        precision="float32",
        **more,
    )


@pytest.mark.parametrize("others", [1, 2])
@DECODERS
def test_an_untrained_model_gives_trees(
    tree_run: Callable[..., Run], tmp_path: Path, decoder: str, others: int
) -> None:
    """Trees are over exactly the words, for one model or several, without repairs."""
    watch = {"every": 9, "best": "nll", "bleu": False}
    result = api.train(word_run(tree_run, decoder, updates=1, evaluate=watch), out=tmp_path / "run")
    assert result.checkpoint is not None
    model = open_model(result.checkpoint)
    gold = [*bank(5, 2), *read_trees("(TOP (NN unseen))", "x")]
    parser = model.task.parser(model.module, model.search, others=(model.module,) * (others - 1))  # type: ignore[union-attr]

    found = measure(parser, gold)

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
        schedule={"type": "cosine", "peak": 0.01, "warmup": 5, "total": 150},
        evaluate={"every": 150, "best": "f1"},
    )
    result = api.train(run, out=tmp_path / "run")
    assert result.checkpoint is not None

    found = measure(open_model(result.checkpoint).parser, bank(30, 5))

    assert found.f1 > 95
    assert found.tags / found.tagged > 0.95
