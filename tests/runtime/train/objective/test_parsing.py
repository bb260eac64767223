"""Objectives of parsers: training, validation by trees, and settings that do not fit."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from weft.runtime import api
from weft.runtime.train.context import training_context
from weft.runtime.train.device import Place, choose
from weft.runtime.train.distributed.world import World
from weft.runtime.train.plan import plan_run
from weft.runtime.train.run import Run
from weft.runtime.train.trainer import Trainer
from weft.runtime.train.validation import predictors
from weft.specs.findings import InputError

from ...toy_treebank import bank, make_runs

pytestmark = pytest.mark.integration

WORDS = {"d_model": 32, "d_pieces": 16, "d_letters": 8, "d_characters": 8, "layers": 1}
UPDATES = 5


class Kind(NamedTuple):
    """One kind of parser, as a task and as an objective."""

    spec: str
    params: Mapping[str, Any]
    objective: str
    sizes: Mapping[str, Any]
    """Params of the spec that follow the columns."""
    predict: Mapping[str, Any]
    linearization: str = ""


TAGS = {"tags": "=tags", "leaves": "=leaves", "nodes": "=nodes"}
PAIRS = {"d_model": 32, "heads": 2, "d_ff": 64, "layers": 1}
KINDS = {
    "chart": Kind(
        "parsing-span-lstm",
        {**WORDS, "d_hidden": 16, "dropout": 0.1},
        "chart-parsing",
        {"labels": "=labels", "tags": "=tags"},
        {"type": "cky"},
    ),
    "tags": Kind(
        "parsing-tags", {**WORDS, "dropout": 0.1}, "tag-parsing", TAGS, {"type": "tree_tags"}
    ),
    "sequence": Kind(
        "parsing-small",
        {**PAIRS, "dropout": 0.1},
        "sequence-parsing",
        {},
        {"type": "tree_beam", "beam": 2, "alpha": 0.3, "max_extra": 60},
        "vinyals",
    ),
    "copying": Kind(
        "parsing-aligned",
        {**PAIRS, "dropout": 0.1},
        "copy-parsing",
        {"source_vocab": 40},
        {"type": "tree_beam", "beam": 2, "alpha": 0.3, "max_extra": 60},
        "top_down",
    ),
}


def objective_run(root: Path, kind: Kind, decoder: str, **changes: Any) -> Run:
    """Return the run of an objective on the toy treebank; keyword arguments replace keys."""
    own = {"linearization": kind.linearization} if kind.linearization else {}
    trees = {"decoder": decoder, **own}
    symbols: dict[str, Any] = {"type": "symbols"}
    if kind.linearization == "top_down":
        symbols |= {"spelling": "words", "only": "brackets"}
    value: dict[str, Any] = {
        "format": 1,
        "name": "toy",
        "objective": kind.objective,
        "params": {"model": {"spec": kind.spec, "params": {**kind.params, **kind.sizes}}},
        "data": {
            "root": str(root),
            "columns": {
                "source": {"type": "text", "tokenizer": "words"},
                "target": {"type": "text", "tokenizer": "symbols"},
                "tree": {"type": "tree", "decoder": decoder, **own},
            },
            "train": {"trees": {"files": ["train.trees.gz"], **trees}},
            "valid": {"trees": {"files": ["valid.trees"], **trees}},
        },
        "tokenizers": {"words": {"type": "bpe", "vocab_size": 40}, "symbols": symbols},
        "batch": {"tokens": 300},
        "accumulate": 1,
        "updates": 6,
        "schedule": {"peak": 0.003},
        "evaluate": {"every": 3, "metrics": ["evalb"], "best": "evalb"},
        "checkpoint": {"every": 2, "keep": 3, "average": 2},
        "predict": kind.predict,
        "answers": "tree",
        "threads": 1,
        "precision": "float32",
    }
    return Run.model_validate({**value, **changes})


def trainer_of(run: Run, folder: Path) -> Trainer:
    """Return a trainer before its first update."""
    torch.manual_seed(7)
    place: Place = choose(run)
    context = training_context(plan_run(run, run.name), folder, place, World(), api.Silent())
    trainer = Trainer(context, resume=False)
    trainer.history.close()
    return trainer


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_trains_and_parses(name: str, tmp_path: Path) -> None:
    """The loss falls; the predictor gives trees over the words, of trees and of texts."""
    make_runs(tmp_path / "banks")
    decoder = name if name in ("chart", "tags") else "sequence"
    run = objective_run(tmp_path / "banks", KINDS[name], decoder)
    trainer = trainer_of(run, tmp_path / "run")
    stream = trainer._stream_micro_batches()
    losses = [trainer._update(next(stream))[0].item() for _ in range(UPDATES)]
    trees = bank(4, 5)

    model = trainer.model.get_submodule("model").eval()
    graph, columns = trainer.context.graph, trainer.context.corpus.columns
    predictor = predictors(run, graph, columns)(model)
    found = predictor.predict([{"tree": tree} for tree in trees])
    [by_text] = predictor.predict([{"source": "the dog sees the cat ."}])

    assert losses[-1] < losses[0]
    for parse, tree in zip(found, trees, strict=True):
        assert [leaf.word for leaf in parse.tree.leaves()] == [one.word for one in tree.leaves()]
    assert len([*by_text.tree.leaves()]) == 6


def test_the_validation_has_f1_and_a_checkpoint_is_chosen_by_it(tmp_path: Path) -> None:
    """Training to the end, with metrics of trees by name."""
    make_runs(tmp_path / "banks")
    run = objective_run(tmp_path / "banks", KINDS["tags"], "tags", updates=60)
    values: list[Mapping[str, Any]] = []

    class Listener(api.Silent):
        def validated(self, update: int, found: Mapping[str, Any]) -> None:  # noqa: ARG002
            values.append(found)

    api.train(run, out=tmp_path / "run", listener=Listener())

    assert {"tags", "leaves", "nodes", "loss", "evalb"} <= values[-1].keys()
    assert values[-1]["evalb"] > values[0]["evalb"]
    assert values[-1]["loss"] == pytest.approx(
        sum(values[-1][name] for name in ("tags", "leaves", "nodes"))
    )


def test_a_predictor_for_other_trees_is_refused(tmp_path: Path) -> None:
    """Such as CKY for a model that tags words, before training begins."""
    make_runs(tmp_path / "banks")
    run = objective_run(tmp_path / "banks", KINDS["tags"], "tags", predict={"type": "cky"})

    with pytest.raises(InputError, match="'cky' needs trees for the decoder 'chart'"):
        trainer_of(run, tmp_path / "run")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"tree": {"type": "tree", "decoder": "chart"}}, "the reader has the decoder 'tags'"),
        ({"tree": {"type": "tree", "decoder": "tags", "words": "word"}}, "no text column 'word'"),
        (
            {"tree": {"type": "tree", "decoder": "tags", "linearization": "top_down"}},
            "'linearization' has no effect",
        ),
        ({"target": {"type": "text", "tokenizer": "words"}}, "needs whole symbols"),
    ],
    ids=["decoder", "words", "linearization", "pieces"],
)
def test_settings_that_do_not_fit_are_refused(
    change: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    """Before any data is read."""
    good = objective_run(tmp_path, KINDS["tags"], "tags").model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    good["data"]["columns"] |= change
    if "target" in change:
        del good["tokenizers"]["symbols"]

    with pytest.raises(ValueError, match=problem):
        Run.model_validate(good)
