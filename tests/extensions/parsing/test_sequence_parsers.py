"""Parsers that write trees as sequences: from a treebank to a checkpoint, with resuming."""

from __future__ import annotations

import functools
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.extensions.parsing.metrics.metric import measure
from weft.extensions.parsing.predictor import TreeBeam
from weft.extensions.parsing.trees.columns.encodings import symbols_of
from weft.extensions.parsing.trees.linearization import LINEARIZATIONS
from weft.extensions.parsing.trees.trees import Leaf
from weft.graphs.ir.graph import BlockNode
from weft.graphs.passes.objective import deployed_graph
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.data.prepare import Prepared
from weft.runtime.model.opening import open_model
from weft.runtime.train.context import with_prepared
from weft.runtime.train.plan import load_run, plan_run
from weft.runtime.train.run import Run

from ...runtime.toy_treebank import SMALL, bank, parser_of

pytestmark = pytest.mark.integration

BEAM = {"type": "tree_beam", "beam": 2, "alpha": 0.3, "max_extra": 60}
WATCH = {"every": 9, "best": "nll", "samples": 0}
"""Validations that do not parse."""
FORMS = pytest.mark.parametrize("form", LINEARIZATIONS)


def pair(prepared: Prepared, row: int) -> tuple[list[int], list[int]]:
    """Return the ids of words and symbols of a prepared row, without end tokens."""
    source, target = prepared.train.corpus.pair(row)
    return source.tolist(), target.tolist()


@FORMS
def test_every_tree_is_in_the_corpus(
    form: str, tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """The ids convert back to the trees of the file, in order, with words and tags."""
    prepared = api.prepare_run(plan_run(tree_run(linearization=form), "toy"), tmp_path / "run")
    trees, symbols = bank(120, 1), prepared.vocabularies["target"]

    assert len(prepared.train) == 120
    for row, tree in enumerate(trees):
        source, target = pair(prepared, row)
        leaves = list(tree.leaves())
        assert LINEARIZATIONS[form].read(symbols_of(symbols, target), leaves) == tree
        words = prepared.vocabularies["source"].decode(source).split(" ")
        assert len(words) == len(leaves)
    assert symbols.unk not in {one for row in range(120) for one in pair(prepared, row)[1]}


@pytest.fixture(scope="module")
def barely(
    tree_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Return a function that makes a checkpoint after one update, by linearization."""

    @functools.cache
    def make(form: str) -> Path:
        run = tree_run_module(
            updates=1,
            linearization=form,
            predict={**BEAM, "constrained": form != "vinyals"},
            evaluate=WATCH,
        )
        result = api.train(run, out=tmp_path_factory.mktemp(form) / "run")
        assert result.checkpoint is not None
        return result.checkpoint

    return make


@pytest.mark.parametrize("constrained", [True, False])
@FORMS
def test_an_untrained_model_gives_trees_over_the_words(
    form: str, constrained: bool, barely: Callable[[str], Path]
) -> None:
    """With constraints there are no repairs; without them, repairs give trees."""
    model = open_model(barely(form))
    # the opposite of the setting in its run
    changes = {"constrained": constrained} if constrained is (form == "vinyals") else None
    gold = bank(12, 2)

    found = measure(parser_of(model, changes), gold)

    assert found.scores.all.errors == 0
    for parse, tree in zip(found.parses, gold, strict=True):
        assert parse is not None
        assert list(parse.tree.leaves()) == list(tree.leaves())
    if constrained:
        assert (found.malformed, found.unfinished) == (0, 0)
    else:
        assert found.malformed > 0


def in_pieces(run: Run) -> dict[str, Any]:
    """Return the data of a run with one tokenizer for words and symbols."""
    data = run.data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    for side in ("source", "target"):
        data["columns"][side]["tokenizer"] = "tokenizer"
    for split in (data["train"], data["valid"], *data["test"].values()):
        split["trees"]["pieces"] = True
    return data


@pytest.mark.parametrize("form", ["vinyals", "top_down"])
def test_targets_may_be_pieces_as_the_paper_had_them(
    form: str, tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """One tokenizer for words and symbols: outputs are read back and repaired if necessary."""
    run = tree_run(
        spec="parsing-copy",
        linearization=form,
        objective="sequence-parsing",
        tokenizers={"tokenizer": {"type": "bpe", "vocab_size": 60}},
        data=in_pieces(tree_run(linearization=form)),
        evaluate=WATCH,
        updates=1,
    )
    plan = plan_run(run, "toy")
    prepared = api.prepare_run(plan, tmp_path / "run")
    tree = bank(1, 1)[0]
    symbols = symbols_of(prepared.vocabularies["tokenizer"], pair(prepared, 0)[1])
    read = LINEARIZATIONS[form].read(symbols, list(tree.leaves()))
    assert read == tree

    result = api.train(run, out=tmp_path / "run")
    assert result.checkpoint is not None
    [parse] = open_model(result.checkpoint).parse(["the dog sees ( the cat"])
    assert parse is not None
    assert [leaf.word for leaf in parse.tree.leaves()] == [
        "the",
        "dog",
        "sees",
        "-LRB-",
        "the",
        "cat",
    ]


def test_one_table_may_serve_words_on_both_sides(
    tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """In the top-down form, words have the source ids, so the target's table is sufficient."""
    run = tree_run(spec="parsing-copy", linearization="top_down", updates=1)
    plan = plan_run(run, "toy")
    prepared = api.prepare_run(plan, tmp_path / "run")
    source, target = pair(prepared, 0)

    graph = deployed_graph(with_prepared(plan.required()[1], prepared).graph)

    assert set(source) <= set(target)
    assert graph.params["vocab"] == prepared.vocabularies["target"].vocab_size
    assert prepared.vocabularies["target"].vocab_size > prepared.vocabularies["source"].vocab_size


def test_an_aligned_target_has_the_position_of_its_next_word(
    tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """The count in the spec equals the source position of the next copied piece."""
    run = tree_run(
        spec="parsing-aligned",
        params={**SMALL, "source_vocab": 40},
        linearization="top_down",
        updates=1,
    )
    plan = plan_run(run, "toy")
    prepared = api.prepare_run(plan, tmp_path / "run")
    graph = deployed_graph(with_prepared(plan.required()[1], prepared).graph)
    [node] = [node for node in graph.root.nodes if node.name == "target_position"]
    assert isinstance(node, BlockNode)
    first, below, start = (node.part.arguments[name] for name in ("first", "below", "start"))
    assert below == prepared.vocabularies["source"].vocab_size
    for row in range(len(prepared.train)):
        source, target = pair(prepared, row)
        count = start + 1  # includes the beginning token, which is not a symbol
        for symbol in target:
            if first <= symbol < below:
                assert symbol == source[count]
                count += 1
        assert count == len(source) - source.count(prepared.vocabularies["source"].eos)


def test_every_shipped_run_of_a_parser_is_measured_by_trees() -> None:
    """Each run answers in its column of trees, with the search of the paper."""
    for name in ("parsing-wsj", "parsing-wsj-semi", "parsing-craft", "parsing-gum"):
        run, _ = load_run(name)
        assert run.best == "evalb"
        assert run.answers == "tree"
        assert isinstance(run.predict, TreeBeam)
        assert (run.predict.alpha, run.predict.max_extra) == (0.3, 300)


@pytest.mark.slow
def test_a_run_resumed_is_a_run_undisturbed(tree_run: Callable[..., Run], tmp_path: Path) -> None:
    """The results are bitwise equal, with weights and a mixture of treebanks."""
    data = tree_run().data.model_dump(mode="json", by_alias=True, exclude_unset=True)
    sources = {
        name: {"trees": {"files": [file], "linearization": "vinyals"}}
        for name, file in (("gold", "train.trees.gz"), ("silver", "valid.trees"))
    }
    mixture = [{"weights": {"gold": 0.5, "silver": 2}}]
    changed = {**data, "train": {"sources": sources}, "mixture": mixture}
    watch = {**WATCH, "every": 3}

    def run(updates: int) -> Run:
        return tree_run(data=changed, evaluate=watch, updates=updates)

    api.train(run(6), out=tmp_path / "whole")
    api.train(run(2), out=tmp_path / "parts")
    again = api.train(run(6), out=tmp_path / "parts", resume=True)

    assert again.checkpoint is not None
    weights = [
        open_checkpoint(tmp_path / name / "checkpoints" / "000006").weights
        for name in ("whole", "parts")
    ]
    assert all(torch.equal(weights[0][path], weights[1][path]) for path in weights[0])


def test_a_checkpoint_needs_no_other_file(tree_run: Callable[..., Run], tmp_path: Path) -> None:
    """Symbols are JSON next to the weights; the validation scores are recorded."""
    out = tmp_path / "run"
    api.train(tree_run(updates=3), out=out)
    best = (out / "best").rename(tmp_path / "best")
    (out / "prepared").rename(tmp_path / "gone")

    names = sorted(path.name for path in best.iterdir())
    assert "target.symbols.json" in names
    assert not [name for name in names if name.endswith((".pkl", ".pt"))]
    [tree, nothing, other] = open_model(best).parse(["the dog sees", "", "the ( hears the bird ."])
    assert tree is not None
    assert other is not None
    assert nothing is None
    assert [leaf.word for leaf in other.tree.leaves()] == [
        *("the", "-LRB-", "hears", "the", "bird", ".")
    ]
    assert {leaf.tag for leaf in tree.tree.leaves()} == {"XX"}
    events = [json.loads(line) for line in (best / "metrics.jsonl").read_text().splitlines()]
    [valid] = [event for event in events if event["type"] == "valid"]
    assert {"nll", "loss", "perplexity", "evalb"} <= valid.keys()


def test_a_parse_is_independent_of_the_batch(barely: Callable[[str], Path]) -> None:
    """For complete buffers and single sentences, with long or short neighbors."""
    parser = parser_of(open_model(barely("tensor2tensor")))
    sentences = [[Leaf("", word) for word in line.split()] for line in ("the dog", "", "a " * 9)]

    together = list(parser.parse(sentences))
    alone = [next(iter(parser.parse([sentence]))) for sentence in sentences]
    small = list(parser.parse(sentences, buffer=1))

    trees = [
        [None if one is None else str(one.tree) for one in row] for row in (together, alone, small)
    ]
    assert trees[0] == trees[1] == trees[2]


@pytest.mark.slow
@FORMS
def test_a_toy_grammar_is_learnt(form: str, tree_run: Callable[..., Run], tmp_path: Path) -> None:
    """New sentences of the grammar are parsed with few or no errors."""
    result = api.train(
        tree_run(
            updates=500,
            linearization=form,
            evaluate={**WATCH, "every": 500},
            schedule={"peak": 0.004, "pieces": [{"to": 1, "over": 50}, {"to": 0}]},
            checkpoint={"every": 100, "average": 1},
        ),
        out=tmp_path / "run",
    )
    assert result.averaged is not None
    gold = bank(60, 3)

    found = measure(parser_of(open_model(result.averaged)), gold)

    assert found.f1 > 95
    if form == "tensor2tensor":
        assert found.tags / found.tagged > 0.95  # 0.98 to 1, depending on seed and kernels


@pytest.mark.slow
@FORMS
def test_constrained_search_never_needs_repair(
    form: str, tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """A model with random weights, many sentences of many lengths, a wide beam."""
    run = tree_run(
        updates=1,
        linearization=form,
        predict={"type": "tree_beam", "beam": 5, "max_extra": 30},
        evaluate=WATCH,
    )
    result = api.train(run, out=tmp_path / "run")
    assert result.checkpoint is not None
    draw = random.Random(4)
    words = ("the", "dog", "unseen", "-LRB-", "sees", "\u00e9")
    sentences = [
        [Leaf("", draw.choice(words)) for _ in range(draw.randint(1, 60))] for _ in range(150)
    ]

    parses = list(parser_of(open_model(result.checkpoint)).parse(sentences))

    assert all(p is not None and not p.repairs.any and p.finished for p in parses)


@pytest.mark.slow
@pytest.mark.parametrize("constrained", [True, False])
def test_a_pointer_trains_and_parses(
    constrained: bool, tree_run: Callable[..., Run], tmp_path: Path
) -> None:
    """After a few updates, its trees are over the words; constrained search needs no repair."""
    run = tree_run(
        spec="parsing-pointer",
        updates=20,
        linearization="top_down",
        predict={**BEAM, "constrained": constrained},
        evaluate={**WATCH, "every": 20},
    )
    result = api.train(run, out=tmp_path / "run")
    assert result.checkpoint is not None
    gold = bank(12, 2)

    found = measure(parser_of(open_model(result.checkpoint)), gold)

    assert found.scores.all.errors == 0
    for parse, tree in zip(found.parses, gold, strict=True):
        assert parse is not None
        assert list(parse.tree.leaves()) == list(tree.leaves())
    if constrained:
        assert (found.malformed, found.unfinished) == (0, 0)
