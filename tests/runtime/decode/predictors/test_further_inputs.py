"""A model that writes text may read further columns: `predict` feeds them, lines of text cannot."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from torch import Tensor
from weft.graphs.passes.objective import deployed_graph
from weft.runtime.cli.main import main
from weft.runtime.decode.predictors.predictor import Context
from weft.runtime.decode.predictors.registry import PREDICTORS
from weft.runtime.model.opening import ensemble
from weft.runtime.spec.check import graph_of
from weft.runtime.train.measuring import measured, predicted
from weft.runtime.train.plan import load_run, plan_run
from weft.runtime.train.run import Run
from weft.specs.findings import InputError, SpecError

from ...conftest import SMALL, SPLITS, WORDS
from .conftest import Text

pytestmark = pytest.mark.integration
TEXT = {"type": "text", "tokenizer": "tokenizer"}
LONGEST = 3
"""Tokens of an output."""
ROWS = [
    {"source": "sun moon tree", "draft": "moon sun"},
    {"source": "bird", "draft": "leaf leaf leaf leaf leaf leaf leaf leaf"},
    {"source": "snow fire", "draft": ""},
]
ADDED = {
    "draft_embedding": {
        "use": "embedding@1",
        "in": {"ids": "notes"},
        "params": {"d_model": "=d_model", "scale": "sqrt"},
    },
    "both": {
        "use": "unfold@1",
        "in": {"x": "encoder.x", "memory": "draft_embedding.y", "mask": "notes_mask"},
    },
}
"""The vectors of a draft, added to those of the source position by position."""


def written(
    folder: Path,
    inputs: Mapping[str, str],
    nodes: Mapping[str, Any],
    columns: Mapping[str, str],
    fed: Mapping[str, Any],
    wires: Mapping[str, str],
) -> None:
    """Write the spec of a translation model with further inputs, and its objective.

    Args:
        folder: where to write.
        inputs: types of the model's further inputs.
        nodes: further nodes of the model; `both` has the vectors that the decoder reads.
        columns: types of the objective's further inputs.
        fed: further nodes of the objective.
        wires: what fills the further inputs of the model.
    """
    axes = {"axes.R": "time", **{f"inputs.{name}": type_ for name, type_ in inputs.items()}}
    model = {
        "format": 1,
        "extends": "transformer-tiny",
        "name": "two-readers",
        "patch": [
            {"select": "/", "set": {**axes, **{f"nodes.{n}": v for n, v in nodes.items()}}},
            {"select": "decoder", "set": {"in.memory": "both.y"}},
        ],
    }
    own = {"axes.R": "time", **{f"inputs.{name}": type_ for name, type_ in columns.items()}}
    objective = {
        "format": 1,
        "extends": "translation",
        "name": "two-sources",
        "patch": [
            {"select": "/", "set": {**own, **{f"nodes.{n}": v for n, v in fed.items()}}},
            {"select": "model", "set": {f"in.{port}": value for port, value in wires.items()}},
        ],
    }
    for name, value in (("two-readers", model), ("two-sources", objective)):
        (folder / f"{name}.json").write_text(json.dumps(value))


def run_with(
    run: Run,
    folder: Path,
    column: Mapping[str, Any],
    values: Callable[[str, int], Any],
    **more: Any,
) -> str:
    """Write a run with a further column `draft`, with a value for each split and row; return it.

    Args:
        run: a run of translation.
        folder: folder of the specs.
        column: settings of the column.
        values: the value of a row of a split.
        more: further keys of the run.
    """
    for split, rows in zip(SPLITS, (24, 4, 4), strict=True):
        lines = [
            {"source": source, "target": target, "draft": values(split, number)}
            for number, (source, target) in enumerate(
                zip(
                    (Path(run.data.root) / f"{split}.src").read_text().splitlines(),
                    (Path(run.data.root) / f"{split}.tgt").read_text().splitlines(),
                    strict=True,
                )
            )
            if number < rows
        ]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (Path(run.data.root) / f"{split}.jsonl").write_text(text)
    data = {
        "root": run.data.root,
        "columns": {"source": TEXT, "target": TEXT, "draft": dict(column)},
        **{name: {"jsonl": {"files": [f"{name}.jsonl"]}} for name in ("train", "valid")},
        "test": {"toy": {"jsonl": {"files": ["test.jsonl"]}}},
    }
    value = {
        **run.model_dump(mode="json", by_alias=True, exclude_unset=True),
        "objective": "two-sources",
        "params": {"model": {"spec": "two-readers", "params": dict(SMALL)}},
        "data": data,
        "tokenizers": {"tokenizer": {"type": "symbols"}},
        "updates": 2,
        "evaluate": {"every": 2, "best": "chrf", "metrics": ["chrf"], "samples": 0},
        "checkpoint": {"every": 2, "average": 0},
        **more,
    }
    file = folder / "run.json"
    file.write_text(json.dumps(value))
    return str(file)


def draft_of(split: str, row: int) -> str:
    """Return a text of one to four words."""
    return " ".join(WORDS[(row + n + len(split)) % len(WORDS)] for n in range(1 + row % 4))


@pytest.fixture(scope="module")
def drafts(toy_run_module: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run whose model reads a source and a draft, by names of its own."""
    folder = tmp_path_factory.mktemp("drafts")
    written(
        folder,
        {"notes": "ids:vocab[B R]", "notes_mask": "mask[B R]"},
        ADDED,
        {"draft": "ids:vocab[B R]"},
        {"draft_mask": {"use": "not_padding@1", "in": {"ids": "draft"}}},
        {"notes": "draft", "notes_mask": "draft_mask.y"},
    )
    file = run_with(toy_run_module(), folder, TEXT, draft_of)
    weft.train(file, out=folder / "out")
    return folder


@pytest.fixture(scope="module")
def model(drafts: Path) -> weft.Model:
    """Return the model of the run."""
    return weft.open(drafts / "out/best")


def by_a_full_pass(model: weft.Model, row: Mapping[str, str], output: str) -> float:
    """Return the log probability of an output and its end, by one pass over all positions.

    An output of `LONGEST` tokens has no end.
    """
    words = model.answering.columns["source"].vocabulary
    ids = {name: torch.tensor([[*words.encode(row[name]), words.eos]]) for name in row}
    tokens = [*words.encode(output), words.eos][:LONGEST]
    with torch.no_grad():
        logits = model.module(
            source=ids["source"],
            source_mask=ids["source"] != words.pad,
            notes=ids["draft"],
            notes_mask=ids["draft"] != words.pad,
            target=torch.tensor([[words.bos, *tokens[:-1]]]),
        )["logits"][0]
    return float(logits.log_softmax(-1)[range(len(tokens)), tokens].sum())


@pytest.mark.parametrize("beam", [1, 3])
def test_scores_of_outputs_are_those_of_a_pass_over_all_columns(
    model: weft.Model, beam: int
) -> None:
    """Padding, batches and steps change nothing; an empty draft is a draft."""
    search = {"beam": beam, "nbest": beam, "penalty": "none", "max_length": LONGEST}

    found = model.predictor(search).answers(ROWS)

    for row, best in zip(ROWS, found, strict=True):
        for answer in (best, *best.others):
            assert answer.score == pytest.approx(by_a_full_pass(model, row, answer.value), abs=1e-4)


def test_several_models_read_the_further_columns(model: weft.Model) -> None:
    """Two equal models give what one gives."""
    search = {"beam": 2, "penalty": "none"}
    [alone] = model.predictor(search).answers(ROWS[:1])

    [together] = replace(model, others=(model.module,)).predictor(search).answers(ROWS[:1])

    assert (together.value, together.score) == (alone.value, pytest.approx(alone.score, abs=1e-5))


def test_samples_depend_on_the_row_alone(model: weft.Model) -> None:
    """A row in a batch of others is sampled as it is alone."""
    sample = {"type": "sample", "samples": 2, "seed": 4, "max_extra": 3}

    found = model.predict(ROWS, sample)

    assert found == [model.predict([row], sample)[0] for row in ROWS]


def test_validation_and_evaluation_feed_the_column(drafts: Path, model: weft.Model) -> None:
    """Both measure what `predict` answers."""
    rows = model.answering.rows("valid")
    answers = model.predict(rows)
    [chrf] = model.answering.run.metrics()
    expected = chrf.measure(answers, [row["target"] for row in rows]).value
    history = [json.loads(line) for line in (drafts / "out/metrics.jsonl").read_text().splitlines()]

    scores = measured(model, rows, [chrf], predicted(model, rows))

    assert scores["chrf"].value == pytest.approx(expected)
    assert [one["chrf"] for one in history if "chrf" in one] == [pytest.approx(expected)]


def test_a_row_without_the_column_is_named(model: weft.Model) -> None:
    """Its number and the column."""
    with pytest.raises(InputError, match="the row has no value for the column 'draft'") as caught:
        model.predict([ROWS[0], {"source": "sun"}])

    assert caught.value.location == "row 2"


def test_lines_of_text_are_refused_by_the_names_of_the_columns(model: weft.Model) -> None:
    """Each way out of lines names the command for rows."""
    for use in (
        lambda: model.translate(["sun"]),
        lambda: model.score([("sun", "moon")]),
        lambda: model.decode([[5]]),
        lambda: model.attention(["sun"]),
    ):
        with pytest.raises(InputError, match="reads the columns 'draft', 'source'") as raised:
            use()
        assert "weft predict" in raised.value.help


def test_the_commands_answer_rows_and_refuse_lines(
    drafts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`predict` and `evaluate` read the column; `translate` and `serve` say what to use."""
    folder, rows = str(drafts / "out/best"), drafts / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))

    assert main(["predict", folder, str(rows)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(ROWS)
    assert main(["evaluate", folder, "--test", "toy"]) == 0
    capsys.readouterr()
    for arguments in (["translate", folder, str(rows)], ["serve", folder, "--port", "0"]):
        assert main(arguments) == 1
        assert "the model reads the columns 'draft', 'source'" in capsys.readouterr().err


class Pictures:
    """Column of images that are tensors already."""

    def encode(self, value: Tensor) -> Tensor:
        """Return the value."""
        return value

    def collate(self, values: Sequence[Tensor]) -> dict[str, Tensor]:
        """Return a batch."""
        return {"draft": torch.stack([*values])}

    def decode(self, prediction: Any) -> Any:
        """Return the prediction."""
        return prediction


@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_an_image_is_a_further_column(tmp_path: Path, way: str) -> None:
    """Its pixels are read with each source, in any batch."""
    image = {
        "use": "patch_embedding@1",
        "in": {"image": "picture"},
        "params": {"d_model": "=d_model", "patch": 2, "height": 4, "width": 4, "channels": 1},
    }
    written(
        tmp_path,
        {"picture": "f[B 1 4 4]"},
        {
            "patches": image,
            "both": {"use": "unfold@1", "in": {"x": "encoder.x", "memory": "patches.y"}},
        },
        {"draft": "f[B 1 4 4]"},
        {},
        {"picture": "draft"},
    )
    sizes = {"source_vocab": 8, "vocab": 8}
    params = {"model": {"spec": "two-readers", "params": SMALL}}
    loaded = weft.load(tmp_path / "two-sources.json", **sizes, **params)
    objective = graph_of(loaded)
    module = weft.build(deployed_graph(objective)).eval()
    columns = {"source": Text("source"), "target": Text("target"), "draft": Pictures()}
    predictor = PREDICTORS.parse(way, "").make(Context((module,), columns, "target", objective))
    rows = [{"source": "a b", "draft": torch.full((1, 4, 4), 5.0 * sign)} for sign in (-1, 1)]

    found = [answer.score for answer in predictor.answers(rows)]

    assert found[0] != pytest.approx(found[1], abs=1e-3)
    assert [answer.score for answer in predictor.answers(rows[::-1])] == pytest.approx(found[::-1])


def test_a_text_of_the_positions_that_are_written_is_refused(
    toy_run_module: Callable[..., Run], tmp_path: Path
) -> None:
    """The finding names that input alone, not the one that is written."""
    written(
        tmp_path,
        {"tags": "ids:vocab[B T]"},
        {
            "tag_embedding": {
                "use": "embedding@1",
                "in": {"ids": "tags"},
                "params": {"d_model": "=d_model"},
            },
            "tagged": {
                "use": "elementwise@1",
                "in": {"x": "decoder.x", "z": "tag_embedding.y"},
                "params": {"y": "x + z"},
            },
            "both": {
                "use": "elementwise@1",
                "in": {"x": "encoder.x"},
                "params": {"y": "detach(x)"},
            },
        },
        {"draft": "ids:vocab[B T]"},
        {},
        {"tags": "draft"},
    )
    model = json.loads((tmp_path / "two-readers.json").read_text())
    model["patch"].append({"select": "head", "set": {"in.x": "tagged.y"}})
    (tmp_path / "two-readers.json").write_text(json.dumps(model))

    run, source = load_run(run_with(toy_run_module(), tmp_path, TEXT, draft_of))

    [finding] = plan_run(run, source).findings
    assert finding.at == "/predict"
    assert "cannot fill the input 'tags' of 'two-readers'" in finding.problem


def test_models_with_other_inputs_are_not_averaged(model: weft.Model, toy_checkpoint: Path) -> None:
    """The inputs that only one of them has are named."""
    with pytest.raises(InputError, match="first model: 'notes', 'notes_mask'"):
        ensemble(model, [weft.open(toy_checkpoint)])


def test_an_input_that_only_training_has_is_refused_before_training(
    toy_run_module: Callable[..., Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Weights of the objective are gone when its model predicts."""
    written(
        tmp_path,
        {"codes": "f[B R d_model]"},
        {"both": {"use": "unfold@1", "in": {"x": "encoder.x", "memory": "codes"}}},
        {"draft": "ids:vocab[B R]"},
        {"codes": {"use": "embedding@1", "in": {"ids": "draft"}, "params": {"d_model": 16}}},
        {"codes": "codes.y"},
    )
    file = run_with(toy_run_module(), tmp_path, TEXT, draft_of)

    with pytest.raises(SpecError) as raised:
        weft.train(file, out=tmp_path / "out")

    [finding] = raised.value.findings
    assert (finding.code, finding.at) == ("R04", "/predict")
    assert "cannot feed the input 'codes'" in finding.problem
    assert "'codes' has weights" in finding.problem
    assert not (tmp_path / "out/checkpoints").exists()
    assert main(["check", file]) == 1
    assert "cannot feed the input 'codes'" in capsys.readouterr().err
