"""Every shipped run of one text or image column, with tiny models and toy data."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import weft
from weft.graphs.draw.diagram import diagram
from weft.runtime import api
from weft.runtime.checkpoint.checkpoint import open_checkpoint
from weft.runtime.cli.main import main
from weft.runtime.train.context import Result
from weft.runtime.train.objective import Objective
from weft.runtime.train.plan import load_run, plan_run
from weft.specs.findings import InputError, SpecError

pytestmark = pytest.mark.integration

WORDS = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")
LINES = {"train": 200, "val": 20, "valid": 20}
ENCODER = {
    "d_model": 16,
    "heads": 2,
    "layers": 1,
    "max_length": 64,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
T5 = {"d_model": 16, "heads": 2, "d_k": 8, "d_ff": 32, "layers": 1, "dropout": 0.0}
LLAMA = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1}
MAMBA = {"d_model": 16, "heads": 2, "d_state": 8, "chunk": 8, "layers": 1}
GLA = {"d_model": 16, "heads": 2, "d_ff": 32, "layers": 1, "rank": 2}
VIT = {"d_model": 16, "heads": 2, "layers": 1, "patch": 4, "dropout": 0.0}
LSTM = {"d_model": 16, "layers": 1, "dropout": 0.0}

RUNS: dict[str, tuple[str, dict[str, Any], str]] = {
    "language-model-multi30k": ("gpt2", ENCODER, "perplexity"),
    "masked-language-model-multi30k": ("bert", ENCODER, "perplexity"),
    "span-corruption-multi30k": ("t5", T5, "perplexity"),
    "prefix-language-model-multi30k": ("gpt2-prefix", ENCODER, "perplexity"),
    "classification-tatoeba": ("bert-classifier", ENCODER, "accuracy"),
    "tagging-craft": ("lstm-tagger", LSTM, "tag_accuracy"),
    "regression-multi30k": ("bert-regressor", ENCODER, "mae"),
    "image-classification-digits": ("vit", VIT, "accuracy"),
}
"""Shipped run to its model, params that make it tiny, and a metric."""
EVERY = pytest.mark.parametrize("name", RUNS)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with toy data for all runs."""
    return write_texts(tmp_path_factory.mktemp("data"))


def write_texts(folder: Path) -> Path:
    """Write toy data for all runs, under the names of their files; return the folder."""
    rng = random.Random(1)
    arrays = np.random.default_rng(1)
    for split, count in LINES.items():
        rows = []
        for _ in range(count):
            words = rng.choices(WORDS, k=rng.randint(3, 6))
            text = " ".join(words)
            rows.append(
                {
                    "text": f"{text} <to> {' '.join(reversed(words))}" if rng.random() else text,
                    "source": text,
                    "words": len(words),
                    "language": "long" if len(words) > 4 else "short",
                }
            )
        lines = "".join(row["source"] + "\n" for row in rows)
        (folder / f"{split}.en.gz").write_bytes(gzip.compress(lines.encode()))
        dump(folder / f"{split}.jsonl", rows)
        for row in rows:
            tags = " ".join(word[0] for word in str(row["source"]).split())
            row |= {"text": row["source"], "tags": tags}
        dump(folder / f"{split}.tags.jsonl", rows)
        label = arrays.integers(0, 2, count)
        image = arrays.random((count, 1, 8, 8), dtype=np.float32) * 0.1 + label[:, None, None, None]
        np.savez(folder / f"{split}.npz", image=image.astype(np.float32), label=label.astype(str))
    return folder


def dump(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def overrides(name: str, data: Path, **changes: Any) -> dict[str, Any]:
    """Return what makes a shipped run tiny."""
    spec, params, _ = RUNS[name]
    found: dict[str, Any] = {
        "data.root": str(data),
        "params.model": {"spec": spec, "params": params},
        "updates": 20,
        "schedule": {"peak": 0.01},
        "evaluate.every": 10,
        "checkpoint": {"every": 10, "average": 2},
        "threads": 1,
        "precision": "float32",
        "trackers": [],
    }
    if name == "regression-multi30k":
        found |= {"updates": 40, "evaluate.every": 20}
    if name != "image-classification-digits":
        found |= {"tokenizers.text.vocab_size": 48, "batch.tokens": 200}
    if name == "tagging-craft":
        for split in ("train", "valid"):
            found[f"data.{split}.jsonl.files"] = [f"{split}.tags.jsonl"]
        found["data.test"] = {}
    return found | changes


def validations(out: Path) -> list[dict[str, Any]]:
    """Return the results of the validations of a run."""
    lines = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["type"] == "valid"]


def losses(out: Path) -> list[float]:
    """Return the validation losses of a run."""
    return [float(each["loss"]) for each in validations(out)]


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Result]:
    """Return a function that trains a shipped run once."""
    done: dict[str, Result] = {}

    def train(name: str) -> Result:
        if name not in done:
            out = tmp_path_factory.mktemp("run") / "out"
            done[name] = api.train(name, out=out, overrides=overrides(name, data))
        return done[name]

    return train


@EVERY
def test_a_shipped_run_checks_and_draws(name: str, data: Path) -> None:
    """The picture has the model and its loss."""
    run, source = load_run(name, overrides(name, data))

    assert plan_run(run, source).findings == []
    text = diagram(Objective.of(run, source).graph).source
    assert "model" in text
    assert "loss" in text


@EVERY
def test_a_shipped_run_trains_and_leaves_its_model(
    name: str, trained: Callable[[str], Result]
) -> None:
    """The validation loss falls, the metric is measured, and `best` opens as the model."""
    spec, _, metric = RUNS[name]
    result = trained(name)
    assert result.best is not None

    out = result.best.parent
    first, *_, last = losses(out)
    assert last < first
    assert metric in validations(out)[-1]
    best = open_checkpoint(result.best)
    assert best.graph.name == spec
    assert best.weights.keys() == best.graph.weights().keys()


@pytest.mark.parametrize(
    ("spec", "params"), [("llama", LLAMA), ("mamba", MAMBA), ("gla", GLA)], ids=str
)
def test_another_decoder_trains_by_the_same_run(
    spec: str, params: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    """Only the param that holds the model differs."""
    changed = overrides("language-model-multi30k", data)
    changed["params.model"] = {"spec": spec, "params": params}

    api.train("language-model-multi30k", out=tmp_path / "out", overrides=changed)

    first, last = losses(tmp_path / "out")
    assert last < first


def test_a_name_in_place_of_a_spec_keeps_the_number_of_labels(data: Path) -> None:
    """It belongs to the objective, and the columns tell it."""
    run, source = load_run("tagging-craft", overrides("tagging-craft", data))
    for model in ("bert-tagger", {"spec": "bert-tagger", "params": ENCODER}):
        changed = run.model_copy(update={"params": {"model": model, "classes": 7}})
        graph = Objective.of(changed, source).graph
        [(_, inner)] = [*graph.models()]
        assert inner.params["labels"] == 7


def test_a_model_with_other_ports_is_a_finding(data: Path) -> None:
    """A decoder has no mask, and no labels."""
    run, source = load_run("classification-tatoeba", overrides("classification-tatoeba", data))
    changed = run.model_copy(update={"params": {"model": "gpt2"}})

    with pytest.raises(SpecError) as caught:
        Objective.of(changed, source)

    problems = [one.problem for one in caught.value.findings]
    assert any("'labels' is not a param of 'gpt2'" in problem for problem in problems)


def test_a_classifier_starts_from_a_masked_language_model(
    data: Path, trained: Callable[[str], Result], tmp_path: Path
) -> None:
    """Embeddings and layers carry over by their paths; the tokenizer must be that of the model."""
    best = trained("masked-language-model-multi30k").best
    assert best is not None
    name = "classification-tatoeba"
    frozen = overrides(name, data, start=str(best), updates=1)
    with pytest.raises(InputError, match="has another tokenizer"):
        api.train(name, out=tmp_path / "wrong", overrides=frozen)
    shutil.copy(best / "text.model", data / "text.model")
    frozen.pop("tokenizers.text.vocab_size")
    frozen["tokenizers"] = {"text": {"type": "file", "path": "text.model"}}
    frozen["schedule"] = {"peak": 1e-12}

    result = api.train(name, out=tmp_path / "out", overrides=frozen)

    assert result.best is not None
    old, new = open_checkpoint(best).weights, open_checkpoint(result.best).weights
    kept = [path for path in new if path in old and new[path].shape == old[path].shape]
    assert len(kept) == len(new) - 4
    for path in kept:
        torch.testing.assert_close(new[path], old[path])


def test_a_metric_of_a_run_without_answers_names_its_column(
    trained: Callable[[str], Result], capsys: pytest.CaptureFixture[str]
) -> None:
    """A language model has one column, in which `generate` answers."""
    folder = trained("language-model-multi30k").best
    given = ["evaluate", str(folder), "--test", "valid", "--predictor", "generate", "--metric"]

    assert main([*given, "bleu"]) == 1
    assert "the run has no 'answers'" in capsys.readouterr().err
    assert main([*given, "bleu:text", "--json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert set(report["scores"]) == {"bleu:text", "nll", "loss"}


def test_a_language_model_is_searched_by_predict(
    trained: Callable[[str], Result], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two outputs of a beam for each row, which continue its text."""
    folder, rows = trained("language-model-multi30k").best, tmp_path / "rows.jsonl"
    texts = [str(row["text"]) for row in weft.open(str(folder)).answering.rows("valid")[:2]]
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = ["prefix=text", "nbest=2", "max_extra=5"]
    options = [part for one in settings for part in ("--set", one)]

    assert (
        main(["predict", str(folder), str(rows), "--predictor", "beam", "--details", *options]) == 0
    )

    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(answers) == 2
    for text, answer in zip(texts, answers, strict=True):
        assert len(answer["others"]) == 1
        assert all(one["answer"].startswith(text) for one in (answer, *answer["others"]))


def test_a_missing_checkpoint_to_start_from_is_found_before_training(data: Path) -> None:
    """With the setting that names it."""
    changed = overrides("classification-tatoeba", data, start="nowhere")
    run, source = load_run("classification-tatoeba", changed)

    [found] = plan_run(run, source).findings

    assert (found.code, found.at) == ("R02", "/start")
