"""Parsing as an objective trains as the task `parsing` does: batches, weights, losses, trees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from weft.runtime import api
from weft.runtime.train.device import Place, choose
from weft.runtime.train.distributed.world import World
from weft.runtime.train.objective.settings import ObjectiveRun
from weft.runtime.train.objective.validation import predictor_of
from weft.runtime.train.run import Run
from weft.runtime.train.trainer import Trainer
from weft.specs.findings import InputError

from ..toy_treebank import bank, make_runs

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


def objective_run(root: Path, kind: Kind, decoder: str, **changes: Any) -> ObjectiveRun:
    """Return the run of an objective on the toy treebank; keyword arguments replace keys."""
    own = {"linearization": kind.linearization} if kind.linearization else {}
    trees = {"decoder": decoder, **own}
    symbols: dict[str, Any] = {"type": "symbols", "spelling": "words"}
    if kind.linearization == "top_down":
        symbols["only"] = "brackets"
    value: dict[str, Any] = {
        "format": 3,
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
        "schedule": {"type": "constant", "rate": 0.003},
        "evaluate": {"every": 3, "metrics": ["evalb"], "best": "evalb"},
        "checkpoint": {"every": 2, "keep": 3, "average": 2},
        "predict": kind.predict,
        "answers": "tree",
        "threads": 1,
        "precision": "float32",
    }
    return ObjectiveRun.model_validate({**value, **changes})


def task_run(make: Callable[..., Run], kind: Kind, decoder: str) -> Run:
    """Return the same run with the task `parsing`."""
    own = {"linearization": kind.linearization} if kind.linearization else {}
    return make(
        spec=kind.spec,
        params=dict(kind.params),
        parsing={"decoder": decoder, **own},
        tokenizer={"type": "bpe", "vocab_size": 40},
    )


def trainer_of(run: Run | ObjectiveRun, folder: Path) -> Trainer:
    """Return a trainer before its first update."""
    torch.manual_seed(7)
    place: Place = choose(run)
    context = api._training_context(run, run.name, folder, place, World(), api.Silent(), None)
    trainer = Trainer(context, resume=False)
    trainer.history.close()
    return trainer


@pytest.fixture(scope="module", params=[*KINDS])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the trainers of a task and of its objective, each after some updates, and a record."""
    kind: Kind = KINDS[request.param]
    decoder = request.param if request.param in ("chart", "tags") else "sequence"
    folder = tmp_path_factory.mktemp(request.param)
    make = make_runs(folder / "banks")
    old = trainer_of(task_run(make, kind, decoder), folder / "old")
    new = trainer_of(objective_run(folder / "banks", kind, decoder), folder / "new")
    record: dict[str, Any] = {"old": [], "new": [], "weights": []}
    state = new.model.state_dict()
    record["weights"] = [
        (name, torch.equal(tensor, state[f"model.{name}"]))
        for name, tensor in old.model.state_dict().items()
    ]
    for name, trainer in (("old", old), ("new", new)):
        stream = trainer._stream_micro_batches()
        for _ in range(UPDATES):
            update = next(stream)
            loss = trainer._update(update)[0].item()
            record[name].append((update.batches[0][1].rows, loss, dict(update.tokens)))
    return old, new, record


def test_batches_weights_and_losses_are_those_of_the_task(pair: Any) -> None:
    """Same rows in the same order, same initial weights, same losses of the first updates."""
    _, _, record = pair

    assert record["weights"]
    assert all(same for _, same in record["weights"])
    for (rows, loss, tokens), (own_rows, own_loss, own_tokens) in zip(
        record["old"], record["new"], strict=True
    ):
        assert np.array_equal(rows, own_rows)
        assert tokens == own_tokens
        assert own_loss == pytest.approx(loss, rel=1e-6)
    assert record["new"][0][1] > record["new"][-1][1]


def test_trees_are_those_of_the_task(pair: Any) -> None:
    """The same weights parse the same sentences to the same trees, with the same scores."""
    old, new, _ = pair
    model = new.model.get_submodule("model")
    model.load_state_dict(old.model.state_dict())
    trees = bank(12, 5)
    search = old.run.search
    wanted = [
        *old.context.task.parser(old.model.eval(), search).parse([[*t.leaves()] for t in trees])
    ]

    run, graph = new.run, new.context.graph
    columns = new.context.corpus.columns
    predictor = predictor_of(run, graph, (model,), columns)
    found = predictor.predict([{"tree": tree} for tree in trees])
    by_text = predictor.predict([{"source": "the dog sees the cat ."}])

    assert [str(parse.tree) for parse in found] == [str(parse.tree) for parse in wanted]
    assert [parse.score for parse in found] == pytest.approx([parse.score for parse in wanted])
    assert len([*by_text[0].tree.leaves()]) == 6


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
            {"tree": {"type": "tree", "decoder": "tags", "linearization": "vinyals"}},
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
        ObjectiveRun.model_validate(good)
