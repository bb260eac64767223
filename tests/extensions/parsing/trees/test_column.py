"""The column of trees: arrays, batches, trees back from predictions, and saving."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from weft.extensions.parsing.trees.columns.column import TreeCodec
from weft.extensions.parsing.trees.parsing_settings import ParsingSettings
from weft.extensions.parsing.trees.reader import writer
from weft.extensions.parsing.trees.trees import Leaf, Tree, read_trees
from weft.graphs.ir.value_type import dtype_of, evaluate
from weft.runtime.data.symbols import Symbols
from weft.specs.findings import InputError

from ....runtime.toy_treebank import bank
from .test_words import WORDS, Pieces

TREE = Tree("TOP", (Tree("S", (Tree("VP", (Leaf("V", "a"), Tree("NP", (Leaf("N", "b"),)))),)),))
"""Two words: VP over both inside S, and NP over the second."""
EVERY = [
    {"decoder": "chart"},
    {"decoder": "tags"},
    {"decoder": "sequence", "linearization": "vinyals"},
    {"decoder": "sequence", "linearization": "tensor2tensor"},
    {"decoder": "sequence", "linearization": "top_down"},
]
SETTINGS = pytest.mark.parametrize("settings", EVERY, ids=[" ".join(s.values()) for s in EVERY])
TOY = ("the", "of", "sees", "hears", "dog", "cat", "bird", "(", "\uff08", "1/2", ".")
"""The words of the toy treebank; a copied bracket is full-width."""


def column(settings: Mapping[str, Any], *trees: Tree, words: tuple[str, ...] = WORDS) -> TreeCodec:
    """Return a column whose symbols are those of the trees."""
    return TreeCodec.fit(trees or [TREE], Pieces(words), ParsingSettings(**settings))


def toy(settings: Mapping[str, Any]) -> TreeCodec:
    """Return a column of the toy treebank, with a piece for each word."""
    return column(settings, *bank(60, 1), words=tuple(f"\u2581{word}" for word in TOY))


def test_a_chart_is_arrays_of_spans_and_tags() -> None:
    """By hand; symbols are numbered by frequency, then by name."""
    made = column({"decoder": "chart"})
    assert isinstance(made.target, Symbols)
    assert made.target.symbols == (")", "(NP", "(S\u2192VP", "=N", "=V")

    found = {name: array.tolist() for name, array in made.encode(TREE).items()}

    assert found["pieces"] == [4, 5]
    assert found["pieces_counts"] == found["characters_counts"] == [1, 1]
    assert found["characters"] == [ord("a") + 1, ord("b") + 1]
    spans = list(zip(found["first"], found["last"], found["label"], strict=True))
    assert sorted(spans) == [(0, 1, 1), (1, 1, 0)]
    assert found["tags"] == [1, 0]
    assert (found["known"], found["binary"]) == ([True], [0.0])
    assert (found["tokens"], found["symbols"]) == ([3], [7])  # with their end tokens


@SETTINGS
def test_the_label_of_a_root_is_kept(settings: Mapping[str, Any]) -> None:
    """With `clean` false, the outer label may be that of a constituent, such as S."""
    bare = TREE.children[0]
    assert isinstance(bare, Tree)
    made = column(settings, bare)

    found = made.decode({n: a.tolist() for n, a in made.encode(bare).items()}, list(bare.leaves()))

    assert str(found) == str(TREE)


def test_tags_are_three_arrays() -> None:
    """By hand; the last word has no node."""
    made = column({"decoder": "tags"})
    assert isinstance(made.target, Symbols)
    assert made.target.symbols == ("=N", "=V", "L:S\u2192VP", "l:", "r:NP")

    found = made.encode(TREE)

    assert [found[name].tolist() for name in ("tags", "leaves", "nodes")] == [
        [1, 0],
        [0, 1],
        [0, -1],
    ]


def test_a_sequence_is_the_ids_of_both_sides() -> None:
    """By hand; end tokens are added to batches."""
    made = column({"decoder": "sequence"})
    assert isinstance(made.target, Symbols)
    assert made.target.symbols == ("XX", "(NP", "(S", "(VP", ")NP", ")S", ")VP")

    found = made.encode(TREE)
    batch = made.collate([found, {"source": np.array([4]), "target": np.array([6])}])

    assert found["source"].tolist() == [4, 5]
    assert found["target"].tolist() == [6, 7, 4, 5, 4, 8, 10, 9]
    assert batch["source"].tolist() == [[4, 5, 1], [4, 1, 0]]
    assert batch["target"].tolist() == [[6, 7, 4, 5, 4, 8, 10, 9, 1], [6, 1, *[0] * 7]]


def test_labels_are_padded_with_minus_one_and_words_are_masked() -> None:
    """A batch of one and of two words."""
    made = column({"decoder": "chart"})
    one = Tree("TOP", (Leaf("N", "b"),))

    batch = made.collate([made.encode(TREE), made.encode(one)])

    assert batch["mask"].tolist() == [[True, True], [True, False]]
    assert batch["label"][1].tolist() == [-1, -1]
    assert batch["tags"].tolist() == [[1, 0], [0, -1]]
    assert batch["pieces"].tolist() == [[[4], [5]], [[5], [0]]]
    assert batch["pieces_mask"].tolist() == [[[True], [True]], [[True], [False]]]


@SETTINGS
def test_batches_have_the_types_of_the_inputs(settings: dict[str, Any]) -> None:
    """Kinds, axes and sizes; every tensor is an input, and every input is a tensor."""
    made = toy(settings)

    batch = made.collate([made.encode(tree) for tree in bank(7, 2)])

    assert batch.keys() == made.inputs.keys()
    axes: dict[str, int] = {}
    for name, type_ in made.inputs.items():
        value = batch[name]
        wanted = [
            axes.setdefault(str(axis), size)
            for axis, size in zip(type_.axes, value.shape, strict=True)
        ]
        assert list(value.shape) == wanted
        dtypes = {torch.bool: "bool", torch.int64: "integer", torch.float32: "float"}
        assert dtypes[value.dtype] == dtype_of(type_.kind)
        if type_.size is not None:
            assert int(value.max()) < evaluate(type_.size, {})


@SETTINGS
def test_a_batch_has_no_more_padding_than_its_longest_row(settings: dict[str, Any]) -> None:
    """Each row alone is the beginning of its row in the batch."""
    made = toy(settings)
    rows = [made.encode(tree) for tree in bank(7, 2)]

    together = made.collate(rows)

    for number, row in enumerate(rows):
        for name, value in made.collate([row]).items():
            inside = together[name][number][tuple(slice(size) for size in value.shape[1:])]
            assert torch.equal(inside, value[0])


@SETTINGS
def test_the_arrays_of_a_tree_give_the_tree(settings: dict[str, Any]) -> None:
    """Predictions have the form of the arrays; tags are predicted where the form has them."""
    made = toy(settings)
    has_tags = settings["decoder"] != "sequence" or settings["linearization"] == "tensor2tensor"

    for tree in bank(20, 3):
        leaves = [Leaf("" if has_tags else leaf.tag, leaf.word) for leaf in tree.leaves()]
        found = {name: array.tolist() for name, array in made.encode(tree).items()}
        assert made.decode(found, leaves) == tree


@SETTINGS
def test_a_prediction_that_is_not_a_tree_is_refused(settings: dict[str, Any]) -> None:
    """With too few tags, numbers that are not symbols, or symbols in the wrong order."""
    made = toy(settings)
    found = {name: array.tolist() for name, array in made.encode(bank(1, 3)[0]).items()}
    leaves = [Leaf("", "dog")] * (len(list(bank(1, 3)[0].leaves())) + 1)

    with pytest.raises(ValueError, match=r"fewer|symbol"):
        made.decode(found, leaves)
    wrong = {name: [-1 for _ in row] for name, row in found.items() if name != "target"}
    wrong["target"] = found.get("target", [])[1:]
    if settings["decoder"] != "chart":  # where a label of -1 is padding
        with pytest.raises(ValueError, match=r"not|fewer|never"):
            made.decode(wrong, leaves[:-1])
    else:
        with pytest.raises(ValueError, match="-1 is not the number of one of"):
            made.decode(wrong, leaves[:-1])


@SETTINGS
def test_a_column_is_the_same_after_saving(settings: dict[str, Any]) -> None:
    """It is JSON; the tokenizer is stored elsewhere."""
    made = toy(settings)

    again = TreeCodec.from_json(json.loads(json.dumps(made.as_json())), made.source)

    assert again.settings == made.settings
    assert again.sizes == made.sizes
    for tree in bank(5, 2):
        one, other = made.encode(tree), again.encode(tree)
        assert {n: a.tolist() for n, a in one.items()} == {n: a.tolist() for n, a in other.items()}


def test_every_array_has_one_axis_and_lengths_count_tokens() -> None:
    """Any store of ragged rows can hold them; batches are planned by tokens with end tokens."""
    for settings in EVERY:
        made = toy(settings)
        tree = bank(1, 3)[0]
        row = made.encode(tree)
        words = len(list(tree.leaves()))

        assert all(array.ndim == 1 for array in row.values())
        assert {name: array.dtype.str for name, array in row.items()} == dict(made.dtypes)
        lengths = made.lengths(row)
        assert lengths["source"] == words + 1
        assert lengths["target"] == len(made.target.encode(written(made, tree))) + 1


def written(made: TreeCodec, tree: Tree) -> str:
    """Return the symbols of a tree as text."""
    return " ".join(writer(made.settings)(tree))


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"symbols": [1]},
        {"spelled": 0},
        {"parsing": {"decoder": "x"}},
        {"symbols": None},
    ],
)
def test_a_damaged_column_is_refused(change: dict[str, Any]) -> None:
    """The message says what to do."""
    made = column({"decoder": "chart"})

    with pytest.raises(InputError, match="tree column") as caught:
        TreeCodec.from_json({**made.as_json(), **change}, made.source, location="tree.json")

    assert "prepare the data again" in str(caught.value)


def test_charts_need_symbols() -> None:
    """Pieces cannot be labels."""

    class Plain:
        """A vocabulary of pieces."""

        vocab_size = 3

    with pytest.raises(InputError, match="needs a vocabulary of symbols"):
        TreeCodec(Pieces(WORDS), Plain(), ParsingSettings(decoder="chart"))  # type: ignore[arg-type]


def test_unknown_labels_and_tags_are_not_known() -> None:
    """Such a sentence has no spans and no tags; in tag parsing, only the unknown tags are -1."""
    [unseen] = read_trees("(TOP (X (N a) (Z b)))", "x")

    chart = column({"decoder": "chart"}).encode(unseen)
    tags = column({"decoder": "tags"}).encode(unseen)

    assert not chart["known"][0]
    assert chart["first"].tolist() == chart["tags"].tolist() == []
    assert tags["tags"].tolist() == [0, -1]
    assert tags["leaves"].tolist() == [0, -1]
    assert tags["nodes"].tolist() == [-1, -1]
