"""From a run to its use, for every shipped objective: train, reopen in a new process, and answer.

Two updates of a tiny model are enough: what is tested is that a checkpoint means the same to the
process that wrote it, to one that opens it, and to every command.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import weft
from weft.graphs.ir.canonical import canonical
from weft.runtime.model.model import ready
from weft.runtime.spec.check import graph_of
from weft.runtime.train.measuring import losses_of
from weft.runtime.train.plan import load_run
from weft.runtime.train.run import Run
from weft.specs.load import loaded
from weft.specs.reader import shipped_names

from .toy_treebank import make_runs
from .train.objective.test_models import KINDS, objective_run
from .train.objective.test_sequence_objectives import CASES, PAIR, run_of, write_pairs
from .train.objective.test_text_objectives import RUNS, overrides, write_texts

pytestmark = pytest.mark.slow
SHORT = {
    "updates": 2,
    "schedule": {"peak": 0.003},
    "checkpoint": {"every": 2, "average": 0},
    "trackers": [],
    "threads": 1,
    "precision": "float32",
    "compile": "eager",
}
BEAM = {"type": "beam", "beam": 2, "max_extra": 2}
ANSWERS: dict[str, tuple[dict[str, Any], str, str]] = {
    **dict.fromkeys(
        (
            "translation",
            "r-drop-translation",
            "word-dropout-translation",
            "small-data-translation",
            "distillation",
            "multi-task",
        ),
        (BEAM, "target", "chrf"),
    ),
    "mask-predict": ({"type": "mask_predict", "iterations": 2}, "target", "chrf"),
    "ctc": ({"type": "ctc", "mask": "mask"}, "text", "wer"),
    "ctc-attention": ({"type": "ctc", "mask": "mask"}, "text", "wer"),
}
"""Objective to its predictor, the column of the answers and a metric, where no shipped run that
becomes tiny has them."""
TEXTS = {name.rpartition("-multi30k")[0]: name for name in RUNS if name.endswith("-multi30k")} | {
    "classification": "classification-tatoeba",
    "tagging": "tagging-craft",
    "image-classification": "image-classification-digits",
}
"""Objective to the shipped run that trains it."""
TREES = {kind.objective: name for name, kind in KINDS.items()}
HERE = sorted(
    name
    for name in shipped_names("objectives")
    if find_spec("soundfile") or not name.startswith("ctc")
)
"""The objectives whose data can be read with the installed packages."""
OBJECTIVES = pytest.mark.parametrize("name", HERE)
NOISY = {
    "mask-predict",
    "masked-language-model",
    "replaced-token-detection",
    "small-data-translation",
    "span-corruption",
    "word-dropout-translation",
}
"""Objectives that draw noise for their losses."""
PROGRAM = """
import contextlib, io, json, sys, traceback
import weft
from weft.runtime.cli.main import main
from weft.runtime.model.answering import as_json

def command(*arguments):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([*arguments])
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}

for folder in sys.argv[1:]:
    found = {}
    try:
        model = weft.open(folder)
        rows = model.answering.rows("valid")[:4]
        if model.answering.run.predict is not None:
            found["answers"] = [as_json(one) for one in model.predict(rows)]
        found["evaluate"] = command(
            "evaluate", folder, "--test", "valid", "--precision", "float32", "--json"
        )
        found["eject"] = command("eject", folder, "-o", folder + "-ejected.py")
        for engine in ("onnx", "ctranslate2", "huggingface"):
            found[engine] = command("export", folder, "--to", engine, "-o", f"{folder}-{engine}")
        if "source" in rows[0] and model.answering.run.answers == "target":
            lines = [row["source"] for row in rows]
            found["translate"] = model.translate(lines)
    except BaseException:
        found["failed"] = traceback.format_exc()
    print(json.dumps(found), flush=True)
"""
"""Opens each checkpoint, and prints one line of what it answers and what the commands do."""


def tiny_run(objective: str, texts: Path, pairs: Path, trees: Path) -> Run:
    """Return a run of a shipped objective that trains within a second.

    Args:
        objective: its name.
        texts: folder of `write_texts`.
        pairs: folder of `write_pairs`.
        trees: folder of `make_runs`.
    """
    if objective in TEXTS:
        name = TEXTS[objective]
        run, _ = load_run(name, overrides(name, texts))
        evaluate = run.evaluate.model_dump(mode="json", exclude_unset=True)
        return changed(run, evaluate={**evaluate, "every": 2})
    if objective in TREES:
        decoder = TREES[objective] if TREES[objective] in ("chart", "tags") else "sequence"
        run = objective_run(trees, KINDS[TREES[objective]], decoder)
        return changed(run, evaluate={"every": 2, "metrics": ["evalb"], "best": "loss"})
    CASES.setdefault("translation", ("both", {"model": PAIR}, []))
    run = run_of(objective, pairs)
    evaluate = {"every": 2, "best": "loss"}
    if objective not in ANSWERS:
        return changed(run, evaluate=evaluate)
    predict, answers, metric = ANSWERS[objective]
    return changed(
        run, evaluate={**evaluate, "metrics": [metric]}, predict=predict, answers=answers
    )


def changed(run: Run, **changes: Any) -> Run:
    """Return a short run with other keys."""
    return Run.model_validate(
        {**run.model_dump(mode="json", by_alias=True, exclude_unset=True), **SHORT, **changes}
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return the folder of a run of each objective after two updates."""
    base = tmp_path_factory.mktemp("objectives")
    texts, pairs, trees = base / "texts", base / "pairs", base / "trees"
    texts.mkdir()
    pairs.mkdir()
    write_texts(texts)
    write_pairs(pairs)
    make_runs(trees)
    for name in HERE:
        weft.train(tiny_run(name, texts, pairs, trees), out=base / name)
    return {name: base / name for name in HERE}


@pytest.fixture(scope="module")
def used(trained: dict[str, Path]) -> dict[str, dict[str, Any]]:
    """Return what one new process does with the best checkpoint of each run."""
    folders = [str(folder / "best") for folder in trained.values()]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *folders], capture_output=True, text=True, check=True
    )
    lines = map(json.loads, done.stdout.splitlines())
    return dict(zip(trained, lines, strict=True))


@OBJECTIVES
def test_a_new_process_measures_what_the_training_measured(
    name: str, trained: dict[str, Path], used: dict[str, dict[str, Any]]
) -> None:
    """Losses and metrics of the validation data, as far as the deployed model has their weights."""
    found = used[name]
    history = (trained[name] / "metrics.jsonl").read_text().splitlines()
    [valid] = [line for line in map(json.loads, history) if line["type"] == "valid"]

    assert "failed" not in found, found["failed"]
    assert found["evaluate"]["code"] == 0, found["evaluate"]["err"]
    [report] = json.loads(found["evaluate"]["out"])
    scores = report["scores"] if "scores" in report else {"evalb": report["all"]["f1"]}
    same = scores.keys() & valid.keys()
    if name in NOISY:  # noise depends on the shapes of batches, in evaluation too
        same &= {"chrf"}
    assert {key: scores[key] for key in same} == {
        key: pytest.approx(valid[key], rel=1e-4, abs=1e-5) for key in same
    }
    assert same or name in {*NOISY, "contrastive", "replaced-token-detection"}


@OBJECTIVES
def test_a_new_process_answers_as_this_one(
    name: str, trained: dict[str, Path], used: dict[str, dict[str, Any]]
) -> None:
    """From the checkpoint that can be resumed, and from the one of the model alone."""
    model = weft.open(trained[name] / "checkpoints" / "000002")
    if model.answering.run.predict is None:
        assert "answers" not in used[name]
        return
    rows = model.answering.rows("valid")[:4]
    answers = model.predict(rows)

    assert used[name]["answers"] == json.loads(json.dumps(list(map(plain, answers))))
    if "translate" in used[name]:
        assert used[name]["translate"] == used[name]["answers"]
    assert len(answers) == len(rows)


def plain(answer: Any) -> Any:
    """Return an answer as JSON has it: trees as text."""
    tree = getattr(answer, "tree", None)
    return answer if tree is None else str(tree)


@pytest.mark.parametrize("way", ["eject", "onnx", "ctranslate2", "huggingface"])
@OBJECTIVES
def test_an_export_is_written_or_refused_with_a_reason(
    name: str, way: str, used: dict[str, dict[str, Any]]
) -> None:
    """The model of every objective is ejected; an engine names what it cannot express."""
    done = used[name][way]
    if way == "eject":
        assert done["code"] == 0, done["err"]
    else:
        assert done["code"] == 0 or "\nerror" in f"\n{done['err']}"


@OBJECTIVES
def test_names_of_the_inputs_of_a_model_mean_nothing(name: str, trained: dict[str, Path]) -> None:
    """With other names on both sides of the wires, the answers and the losses are the same."""
    model = weft.open(trained[name] / "best")
    other = renamed(model)
    rows = model.answering.rows("valid")[:4]

    assert set(other.graph.inputs).isdisjoint(model.graph.inputs)
    losses = losses_of(model, rows)
    assert losses_of(other, rows) == pytest.approx(losses)
    if model.answering.run.predict is not None:
        answers = list(map(plain, model.predict(rows)))
        assert list(map(plain, other.predict(rows))) == answers
        if (
            isinstance(answers[0], str)
            and "source" in rows[0]
            and model.strategy.command != "parse"
        ):
            lines = [row["source"] for row in rows]
            assert other.translate(lines) == model.translate(lines)
    elif model.graph.step_axis is not None and len(model.graph.inputs) == 1:
        prompts = ["sun moon", "tree"]
        assert other.generate_text(prompts, max_new=3) == model.generate_text(prompts, max_new=3)


def renamed(model: weft.Model) -> weft.Model:
    """Return a model whose inputs have other names, with the same weights and columns."""
    checkpoint = model.checkpoint
    objective = checkpoint.objective
    assert objective is not None
    names = {name: f"in_{number}_of_it" for number, name in enumerate(sorted(model.graph.inputs))}
    value = canonical(objective)
    held = value["nodes"][objective.deploy]["use"].removeprefix("=")
    value["params"][held]["spec"] = with_names(value["params"][held]["spec"], names)
    for node in value["nodes"].values():
        if node.get("use") == f"={held}" or node.get("share") == objective.deploy:
            node["in"] = {names[port]: wire for port, wire in node["in"].items()}
    changed = replace(
        checkpoint,
        graph=graph_of(loaded(with_names(canonical(checkpoint.graph), names))),
        objective=graph_of(loaded(value)),
    )
    return ready(changed, "cpu", half=model.half, strategy=model.strategy)


def with_names(spec: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a canonical spec whose inputs have other names."""
    nodes = {
        name: {**node, "in": {port: names.get(wire, wire) for port, wire in node["in"].items()}}
        for name, node in spec["nodes"].items()
    }
    inputs = {names[name]: type_ for name, type_ in spec["inputs"].items()}
    outputs = {port: names.get(value, value) for port, value in spec["outputs"].items()}
    return {**spec, "inputs": inputs, "nodes": nodes, "outputs": outputs}
