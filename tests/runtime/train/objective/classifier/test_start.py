"""A training that starts from a classifier: the weights of a class follow its name."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.model.opening import ensemble
from weft.specs.findings import InputError

from .conftest import RUN, WORDS

pytestmark = pytest.mark.integration

SMALL = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 16}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classification": ("bert-classifier", "label", {"type": "class"}),
    "tagging": ("bert-tagger", "tags", {"type": "tags", "of": "text"}),
}
"""Model, and name and settings of the column of labels, by objective."""
HEAD = "head"
"""Node with the weights of classes."""
CLASSES = ("x", "y", "z")


class Log:
    """Collects the lines that a training logs."""

    def __init__(self) -> None:
        """Begin without lines."""
        self.lines: list[str] = []

    def log(self, text: str) -> None:
        """Collect a line."""
        self.lines.append(text)

    def progress(self, progress: object) -> None:
        """Ignore the progress."""

    def validated(self, update: int, values: object) -> None:
        """Ignore a validation."""


def write(
    folder: Path, objective: str, classes: Sequence[str] | None = None, **changes: Any
) -> Path:
    """Write a run whose data has three classes, and return it; `classes` is their order.

    Args:
        folder: folder of the run and its data.
        objective: a key of `CASES`.
        classes: classes of the column; None takes those of the data.
        **changes: keys of the run.
    """
    model, name, column = CASES[objective]
    rows = []
    for number in range(45):
        words = WORDS[("en", "de")[number % 2]].split()[number % 3 :][:3]
        label = CLASSES[number % 3]
        tags = " ".join(CLASSES[(number + at) % 3] for at in range(len(words)))
        labels = label if objective == "classification" else tags
        rows.append({"text": " ".join(words), name: labels})
    for split in ("train", "valid"):
        (folder / f"{split}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    label = {**column, **({} if classes is None else {"classes": list(classes)})}
    data = {**RUN["data"], "root": str(folder), "test": {}}
    data["columns"] = {"text": data["columns"]["text"], name: label}
    predict = "argmax" if objective == "classification" else "tags"
    metrics = {"every": 20, "metrics": [], "best": "nll"}
    run = {**RUN, "objective": objective, "params": {"model": {"spec": model, "params": SMALL}}}
    run |= {
        "data": data,
        "answers": name,
        "predict": predict,
        "evaluate": metrics,
        "precision": "float32",
    }
    path = folder / "run.json"
    path.write_text(json.dumps({**run, **changes}))
    return path


@pytest.fixture(scope="module", params=CASES)
def trained(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return an objective, and a model that it trained."""
    folder = tmp_path_factory.mktemp(request.param)
    weft.train(write(folder, request.param), out=folder / "out")
    return request.param, folder / "out" / "averaged"


def started(
    trained: tuple[str, Path], folder: Path, classes: Sequence[str], **changes: Any
) -> tuple[weft.Model, weft.Model, list[str]]:
    """Start a run of one update without effect; return both models, and the lines of its log."""
    objective, checkpoint = trained
    [tokenizer] = checkpoint.glob("*.model")
    shutil.copy(tokenizer, folder / "pieces.model")
    pieces = {"type": "file", "path": "pieces.model"}
    still = {"updates": 1, "schedule": {"peak": 1e-30}}
    still |= {"checkpoint": {"every": 1, "average": 1}, "start": str(checkpoint)}
    path = write(folder, objective, classes, tokenizers={"pieces": pieces}, **still, **changes)
    log = Log()
    result = weft.train(path, out=folder / "out", listener=log)
    assert result.averaged is not None
    return weft.open(checkpoint), weft.open(result.averaged), log.lines


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 0, 2)])
def test_classes_in_another_order_keep_their_weights(
    trained: tuple[str, Path], tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Row n of the head is that of the class n, whatever its number was."""
    old, new, log = started(trained, tmp_path, [CLASSES[number] for number in order])

    for name, weight in old.module.state_dict().items():
        expected = weight[list(order)] if name.startswith(f"{HEAD}.") else weight
        assert torch.equal(new.module.state_dict()[name], expected)
    rows = [{"text": text} for text in WORDS.values()]
    assert new.predict(rows) == old.predict(rows)
    assert any("3 of 3 follow their names" in line for line in log)
    assert any("(100.0 %) carried over" in line for line in log)


def test_weights_of_new_classes_are_new(trained: tuple[str, Path], tmp_path: Path) -> None:
    """The others keep theirs, and the log names the new ones."""
    old, new, log = started(trained, tmp_path, ["w", "z", "x", "y"])

    before, after = (one.module.state_dict()[f"{HEAD}.weight"] for one in (old, new))
    assert torch.equal(after[1:], before[[2, 0, 1]])
    assert after[0].abs().sum() > 0
    assert any("3 of 4 follow their names; 'w' is new" in line for line in log)


def test_classes_whose_number_is_fixed_are_refused(
    trained: tuple[str, Path], tmp_path: Path
) -> None:
    """Which weights count them is then not known."""
    model = {"spec": CASES[trained[0]][0], "params": {**SMALL, "labels": 3}}

    with pytest.raises(InputError, match="the run fixes their number"):
        started(trained, tmp_path, ["z", "x", "y"], params={"model": model})


def test_a_resumed_run_has_the_same_classes(trained: tuple[str, Path], tmp_path: Path) -> None:
    """Classes of the settings are in no file of the checkpoint."""
    started(trained, tmp_path, ["z", "x", "y"])
    run = json.loads((tmp_path / "run.json").read_text())
    run["data"]["columns"][CASES[trained[0]][1]]["classes"] = ["x", "y", "z"]
    (tmp_path / "run.json").write_text(json.dumps({**run, "updates": 2}))

    with pytest.raises(InputError, match="have other numbers than in the checkpoint"):
        weft.train(tmp_path / "run.json", out=tmp_path / "out", resume=True)


def test_models_of_an_ensemble_have_the_same_classes(
    trained: tuple[str, Path], tmp_path: Path
) -> None:
    """The mean of probabilities of different classes means nothing."""
    models = []
    for name, classes in (("one", ["z", "x", "y"]), ("two", ["x", "y", "z"])):
        (tmp_path / name).mkdir()
        models.append(started(trained, tmp_path / name, classes)[1])

    with pytest.raises(InputError, match="other numbers than in the ensemble"):
        ensemble(models[0], models[1:])
