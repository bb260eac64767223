"""Prepared trees give the same tensors and losses as trees that the tasks parse in each batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from weft.blocks.losses.tree_crf_module import ChartCrossEntropy
from weft.runtime.data.batches import Batch, pad_rows
from weft.runtime.data.settings import TokenizerSettings
from weft.runtime.data.symbols import Symbols
from weft.runtime.data.tokenizer import Tokenizer, train_tokenizer
from weft.runtime.data.treebank.columns.column import TreeColumn
from weft.runtime.data.treebank.reader import source_text, writer
from weft.runtime.data.treebank.settings import ParsingSettings
from weft.runtime.data.treebank.trees import Leaf, Tree
from weft.runtime.data.treebank.words import MOST_CHARACTERS, MOST_PIECES
from weft.runtime.tasks.parsing.chart_task import ChartParsing, _gold
from weft.runtime.tasks.parsing.tags_task import TagParsing
from weft.runtime.tasks.parsing.word_task import WordParsing
from weft.runtime.train.loss import LossSettings

from ...data.treebank.test_words import Pieces
from ...toy_treebank import bank

TASKS: Mapping[str, type[WordParsing]] = {"chart": ChartParsing, "tags": TagParsing}
LONG = "hot\u00e9" + "dogcat" * MOST_CHARACTERS
"""A word with more pieces and characters than models read."""
ODD = [
    Tree("TOP", (Tree("NP", (Leaf("NN", LONG), Leaf("NN", "dog"))),)),
    Tree("TOP", (Leaf("NN", "one"),)),
    Tree("TOP", (Tree("UNSEEN", (Leaf("DT", "the"), Leaf("NN", "dog"))),)),
    Tree("TOP", (Tree("NP", (Leaf("DT", "the"), Leaf("UNSEEN", "dog"))),)),
    Tree("TOP", (Tree("S", (Tree("VP", (Leaf("VBZ", "sees"), Leaf("NN", "-LRB-"))),)),)),
    Tree("TOP", tuple(Leaf("NN", "dog") for _ in range(40))),
]
"""Long words, unknown labels and tags, no labels, chains, many words."""


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """Return a small tokenizer of the toy treebank's words."""
    text = (source_text(leaf.word for leaf in tree.leaves()) for tree in bank(120, 1))
    path = tmp_path_factory.mktemp("words") / "source.model"
    return train_tokenizer(text, TokenizerSettings(vocab_size=40), path)


@pytest.fixture(params=["chart", "tags"])
def decoder(request: pytest.FixtureRequest) -> str:
    """Return the name of a decoder."""
    return str(request.param)


def column_of(decoder: str, tokenizer: Any, trees: Sequence[Tree] | None = None) -> TreeColumn:
    """Return a column whose symbols are those of trees, by default of the toy treebank."""
    settings = ParsingSettings(decoder=decoder)  # type: ignore[arg-type]
    return TreeColumn.fit(bank(120, 1) if trees is None else trees, tokenizer, settings)


def task_of(column: TreeColumn) -> Any:
    """Return the task with the vocabularies of a column."""
    kind = TASKS[column.settings.decoder]
    return kind(column.source, column.target, LossSettings(), parsing=column.settings)


def batch_of(column: TreeColumn, trees: Sequence[Tree]) -> Batch:
    """Return the batch of ids that the task takes, made as for translation."""
    write = writer(column.settings)
    texts = [source_text(leaf.word for leaf in tree.leaves()) for tree in trees]
    written = [" ".join(write(tree)) for tree in trees]
    sides = (
        (column.source.encode_many(texts), column.source),
        (column.target.encode_many(written), column.target),
    )
    source, target = (pad_rows(ids, side.pad, side.eos) for ids, side in sides)
    return Batch(source, target, np.arange(len(trees)))


def collated(column: TreeColumn, trees: Sequence[Tree]) -> dict[str, Tensor]:
    """Return the batch of trees that were encoded one by one."""
    return column.collate([column.encode(tree) for tree in trees])


TREES = pytest.mark.parametrize(
    "trees", [bank(20, 3), ODD, [*bank(5, 4), *ODD], ODD[1:2]], ids=["toy", "odd", "both", "one"]
)


@TREES
def test_words_are_those_that_the_task_makes(
    trees: list[Tree], decoder: str, tokenizer: Tokenizer
) -> None:
    """Values, types and shapes, with words that are too long."""
    column = column_of(decoder, tokenizer)
    found = collated(column, trees)

    wanted = task_of(column).words(batch_of(column, trees).source)

    wanted["mask"] = wanted.pop("source_mask")
    assert all(torch.equal(found[name], value) for name, value in wanted.items())
    assert {name: found[name].dtype for name in wanted} == {
        name: value.dtype for name, value in wanted.items()
    }


def test_the_long_word_is_longer_than_both_limits(tokenizer: Tokenizer) -> None:
    """Otherwise the test above would not show that words are cut in the same way."""
    column = column_of("tags", tokenizer)

    found = collated(column, ODD[:1])

    assert len(tokenizer.encode(LONG)) > MOST_PIECES == found["pieces"].size(2)
    assert found["characters"].size(2) == MOST_CHARACTERS


@TREES
def test_charts_are_those_that_the_task_makes(trees: list[Tree], tokenizer: Tokenizer) -> None:
    """Spans in order, tags, and which sentences are known."""
    column = column_of("chart", tokenizer)
    task, batch, found = task_of(column), batch_of(column, trees), collated(column, trees)
    charts = [task._chart(ids) for ids in batch.target.tolist()]

    wanted = _gold(charts, task.labels, found["mask"].size(1), batch.target.device)

    inside = found["label"] >= 0
    rows = torch.arange(len(trees))[:, None].expand_as(inside)
    spans = [each[inside] for each in (rows, found["first"], found["last"], found["label"])]
    assert all(torch.equal(one, other) for one, other in zip(spans, wanted.spans, strict=True))
    assert torch.equal(found["tags"], wanted.tags)
    assert torch.equal(found["binary"], wanted.binary)
    assert torch.equal(found["known"], wanted.known)
    assert torch.equal(found["mask"].sum(1)[wanted.known], wanted.lengths[wanted.known])
    assert torch.equal(found["symbols"], (batch.target != 0).sum(1))


@TREES
def test_tags_are_those_that_the_task_makes(trees: list[Tree], tokenizer: Tokenizer) -> None:
    """Three for each word, in the order of the symbols; -1 where they are unknown."""
    column = column_of("tags", tokenizer)
    task, batch, found = task_of(column), batch_of(column, trees), collated(column, trees)
    longest = found["mask"].size(1)

    number_BL = F.pad(task.numbers[batch.target], (0, 3 * longest), value=-1)[:, : 3 * longest]
    right_BS3 = number_BL.unflatten(1, (longest, 3))

    for place, name in enumerate(("tags", "leaves", "nodes")):
        assert torch.equal(found[name], right_BS3[..., place])
    assert torch.equal(found["symbols"], (batch.target != 0).sum(1))


def test_a_sentence_with_more_tags_than_words_is_as_in_the_task() -> None:
    """A tokenizer may join an unknown word to the one before it; such a chart is not known."""
    trees = [
        Tree("TOP", (Tree("NP", (Leaf("NN", "a"), Leaf("NN", "unseen"), Leaf("NN", "b"))),)),
    ]
    for decoder in TASKS:
        column = column_of(decoder, Pieces(("\u2581a", "\u2581b", "c")), trees)
        task, batch, found = task_of(column), batch_of(column, trees), collated(column, trees)

        assert found["mask"].shape == (1, 2)
        if decoder == "chart":
            charts = [task._chart(batch.target[0].tolist())]
            gold = _gold(charts, task.labels, 2, torch.device("cpu"))
            assert not gold.known[0]
            assert not found["known"][0]
            assert torch.equal(found["tags"], gold.tags)
        else:
            wanted = task.numbers[batch.target][:, :6].unflatten(1, (2, 3))
            tags = [found[name] for name in ("tags", "leaves", "nodes")]
            assert torch.equal(torch.stack(tags, -1), wanted)


def test_sizes_are_those_of_the_task(decoder: str, tokenizer: Tokenizer) -> None:
    """They are params of the spec, so labels keep their numbers and order."""
    column = column_of(decoder, tokenizer)

    assert column.sizes == TASKS[decoder].sizes(column.source, column.target)


class Fixed(nn.Module):
    """Model whose outputs are parameters."""

    def __init__(self, **outputs: Tensor) -> None:
        """Store the outputs."""
        super().__init__()
        self.outputs = nn.ParameterDict(outputs)

    def forward(self, **_: Tensor) -> dict[str, Tensor]:
        """Return the outputs."""
        return dict(self.outputs)


@TREES
def test_the_chart_loss_is_bitwise_that_of_the_task(
    trees: list[Tree], tokenizer: Tokenizer
) -> None:
    """Loss, gradient and weight, for a batch with unknown labels."""
    column = column_of("chart", tokenizer)
    task, given = task_of(column), collated(column, trees)
    rows, longest = given["mask"].shape
    labels, tags = column.sizes["labels"], column.sizes["tags"]
    generator = torch.Generator().manual_seed(1)
    score = torch.randn(rows, longest, longest, labels, generator=generator)
    model = Fixed(score=score, tags=torch.randn(rows, longest, tags, generator=generator))
    sums = task.loss(model, batch_of(column, trees))
    sums.loss.backward()
    wanted = model.outputs["score"].grad
    again = score.clone().requires_grad_()
    block = ChartCrossEntropy()

    ports = ("first", "last", "label", "binary", "known", "mask", "symbols")
    loss, nll = block(again, **{name: given[name] for name in ports})
    loss.backward()

    of_tags = F.cross_entropy(
        model.outputs["tags"].detach().flatten(0, 1),
        given["tags"].flatten(),
        ignore_index=-1,
        reduction="sum",
    )
    assert torch.equal(loss.detach() + of_tags, sums.nll)
    assert torch.equal(nll, loss.detach())
    assert wanted is not None
    assert again.grad is not None
    assert torch.equal(again.grad, wanted)
    assert block.weight(given["known"], given["symbols"]) == sums.tokens


@TREES
def test_three_cross_entropies_are_the_tag_loss(trees: list[Tree], tokenizer: Tokenizer) -> None:
    """Each label field is padded with -1, which cross-entropy ignores."""
    column = column_of("tags", tokenizer)
    given = collated(column, trees)
    generator = torch.Generator().manual_seed(1)
    names = ("tags", "leaves", "nodes")
    shape = given["mask"].shape
    outputs = {n: torch.randn(*shape, column.sizes[n], generator=generator) for n in names}

    sums = task_of(column).loss(Fixed(**outputs), batch_of(column, trees))

    each = [
        F.cross_entropy(
            outputs[n].flatten(0, 1), given[n].flatten(), ignore_index=-1, reduction="sum"
        )
        for n in names
    ]
    assert torch.equal(sum(each, torch.zeros(())), sums.nll)
    assert given["symbols"].sum() == sums.tokens


def test_symbols_are_those_of_prepared_data(decoder: str, tokenizer: Tokenizer) -> None:
    """By frequency, then by name: the ids in checkpoints stay the same."""
    column = column_of(decoder, tokenizer)
    counts: dict[str, int] = {}
    for tree in bank(120, 1):
        for symbol in writer(column.settings)(tree):
            counts[symbol] = counts.get(symbol, 0) + 1

    assert isinstance(column.target, Symbols)
    assert list(column.target.symbols) == sorted(counts, key=lambda one: (-counts[one], one))
