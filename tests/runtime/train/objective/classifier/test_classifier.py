"""A classifier from the check of its run to its answers."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime import api
from weft.runtime.cli.main import main
from weft.runtime.model.opening import ensemble
from weft.runtime.train.plan import load_run, plan_run
from weft.specs.findings import InputError, SpecError

from .conftest import RUN, WORDS

Make = Callable[..., Path]
FAULTS: list[tuple[dict[str, Any], str, str, str]] = [
    ({"data.columns.label": ..., "predict": ..., "answers": ..., "evaluate": ...},
     "R06", "/inputs/label", "add a column"),
    ({"data.columns.label": {"type": "number"}, "predict": ..., "answers": ..., "evaluate": ...},
     "R06", "/inputs/label", "change the type"),
    ({"objective": "clasify.json"}, "R02", "/objective", "did you mean"),
    ({"objective": "mine.json"}, "R02", "/objective", "name a file"),
    ({"params": {"model": {"checkpoint": "no"}}}, "R02", "/params/model/checkpoint", "outputs"),
    ({"freeze": ["encodr.*"]}, "R03", "/freeze/0", ""),
    ({"data.train": {"jsonl": {"files": ["trian.jsonl"]}}},
     "R02", "/data/train/jsonl/files/0", "train"),
    ({"auxiliary": 0.5}, "R01", "/auxiliary", "remove"),
    ({"evaluate.patience": 3}, "R01", "/evaluate/patience", "lower 'patience'"),
    ({"evaluate.metrics": ["f1:labl"], "evaluate.best": "loss"},
     "R04", "/evaluate/metrics/0/column", "label"),
    ({"checkpoint.keep": 1}, "R01", "/checkpoint/keep", "lower 'average'"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "code", "at", "help_"), FAULTS)
def test_a_mistake_is_a_finding_with_a_place_and_a_fix(
    make_run: Make, changes: dict[str, Any], code: str, at: str, help_: str
) -> None:
    """Each is reported before any data is read."""
    run, source = load_run(make_run(changes))

    found = plan_run(run, source).findings

    assert [(one.code, one.at) for one in found] == [(code, at)]
    assert help_ in found[0].help


def test_a_correct_run_has_no_findings(make_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    """`weft check` names the model, the objective and its losses."""
    path = make_run()

    assert main(["check", str(path)]) == 0
    assert "trains classifier with 'classify' (loss;" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"predict": ...}, "#/evaluate"),
        ({"predict": "argmx"}, "#/predict"),
        ({"answers": "labl"}, "#/answers"),
        ({"evaluate.metrics": ["acuracy"]}, "#/evaluate/metrics/0"),
        ({"optimizer": {"momentum": 0.5}}, "#/optimizer/momentum"),
    ],
)
def test_settings_that_do_not_fit_each_other_or_are_unknown_are_refused(
    make_run: Make, changes: dict[str, Any], at: str
) -> None:
    """The place is the setting."""
    with pytest.raises(SpecError) as caught:
        load_run(make_run(changes))

    [finding] = caught.value.findings
    assert f"#{finding.at}".startswith(at)


def test_images_need_a_number_of_rows(make_run: Make) -> None:
    """Without a time axis, no number of tokens limits a batch."""
    columns = {"text": {"type": "number"}, "label": {"type": "class"}}
    run, source = load_run(make_run({"data.columns": columns, "tokenizers": {}}))

    assert ("R04", "/batch") in [(one.code, one.at) for one in plan_run(run, source).findings]


def test_a_loss_over_logits_of_another_vocabulary_is_a_finding(make_run: Make) -> None:
    """The model has 7 classes and the labels 2: the mistake is the param, not each wire."""
    path = make_run({"data.columns.label": {"type": "class", "classes": ["de", "en"]}})
    value = json.loads((path.parent / "classify.json").read_text())
    value["params"]["model"]["params"] = {"classes": 7}
    (path.parent / "classify.json").write_text(json.dumps(value))

    found = plan_run(*load_run(path)).findings

    assert [one.at for one in found] == ["/params/model/params/classes"]


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ('{"text": "the dog", "label": "fr"}', "fr"),
        ('{"text": "the dog"}', "label"),
        ('{"text": 3, "label": "en"}', "text"),
    ],
)
def test_a_wrong_row_names_its_line(
    make_run: Make, row: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A class that training never saw, a column that the file lacks, a value of another type."""
    path = make_run()
    with (path.parent / "valid.jsonl").open("a") as file:
        file.write(f"{row}\n")

    assert main(["prepare", str(path), "--out", str(path.parent / "out")]) == 1

    error = capsys.readouterr().err
    assert says in error
    assert "valid.jsonl" in error
    assert "11" in error


def test_a_predictor_that_does_not_fit_is_refused(make_run: Make) -> None:
    """Beam search needs a model that writes a text."""
    path = make_run({"predict": "beam"})

    with pytest.raises(InputError):
        api.train(path, out=path.parent / "out")


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


@pytest.mark.integration
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


@pytest.mark.integration
def test_weights_of_new_classes_are_new(trained: tuple[str, Path], tmp_path: Path) -> None:
    """The others keep theirs, and the log names the new ones."""
    old, new, log = started(trained, tmp_path, ["w", "z", "x", "y"])

    before, after = (one.module.state_dict()[f"{HEAD}.weight"] for one in (old, new))
    assert torch.equal(after[1:], before[[2, 0, 1]])
    assert after[0].abs().sum() > 0
    assert any("3 of 4 follow their names; 'w' is new" in line for line in log)


@pytest.mark.integration
def test_classes_whose_number_is_fixed_are_refused(
    trained: tuple[str, Path], tmp_path: Path
) -> None:
    """Which weights count them is then not known."""
    model = {"spec": CASES[trained[0]][0], "params": {**SMALL, "labels": 3}}

    with pytest.raises(InputError, match="the run fixes their number"):
        started(trained, tmp_path, ["z", "x", "y"], params={"model": model})


@pytest.mark.integration
def test_a_resumed_run_has_the_same_classes(trained: tuple[str, Path], tmp_path: Path) -> None:
    """Classes of the settings are in no file of the checkpoint."""
    started(trained, tmp_path, ["z", "x", "y"])
    run = json.loads((tmp_path / "run.json").read_text())
    run["data"]["columns"][CASES[trained[0]][1]]["classes"] = ["x", "y", "z"]
    (tmp_path / "run.json").write_text(json.dumps({**run, "updates": 2}))

    with pytest.raises(InputError, match="have other numbers than in the checkpoint"):
        weft.train(tmp_path / "run.json", out=tmp_path / "out", resume=True)


@pytest.mark.integration
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


POSITIONS = 24
ROWS = [{"sentence": WORDS["en"]}, {"sentence": WORDS["de"]}, {"sentence": WORDS["en"]}]
Predict = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a classifier with 24 positions, whose texts are in the field `sentence`."""
    folder = tmp_path_factory.mktemp("classifier")
    rows = [
        {"sentence": " ".join(words.split()[at : at + 3]), "text": number, "label": label}
        for number, (label, words) in enumerate(sorted(WORDS.items()) * 20)
        for at in range(3)
    ]
    for name in ("train", "valid"):
        content = "\n\n".join(map(json.dumps, rows))
        (folder / f"{name}.jsonl").write_bytes(content.encode("utf-8-sig"))
    data = {**RUN["data"], "root": str(folder)}
    data["columns"] = {**data["columns"]}
    data["columns"]["text"] = {**data["columns"]["text"], "from": "sentence"}
    small = {"layers": 1, "d_model": 16, "heads": 2, "d_ff": 16, "max_length": POSITIONS}
    model = {"spec": "bert-classifier", "params": small}
    run = {**RUN, "objective": "classification", "params": {"model": model}, "data": data}
    (folder / "run.json").write_text(json.dumps(run))
    weft.train(folder / "run.json", out=folder / "out")
    return folder / "out" / "best"


@pytest.fixture
def predict(checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Predict:
    """Return a function that predicts for the bytes of a file, and returns the answers."""

    def run(content: bytes, *options: str, code: int = 0) -> list[Any]:
        (tmp_path / "rows.jsonl").write_bytes(content)
        assert main(["predict", str(checkpoint), str(tmp_path / "rows.jsonl"), *options]) == code
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return run


def as_lines(*rows: Any) -> bytes:
    """Return rows as JSON lines."""
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@pytest.mark.integration
def test_the_file_of_training_is_answered(checkpoint: Path, predict: Predict) -> None:
    """Byte order mark, empty lines, fields with other names than columns: all as in training."""
    content = (checkpoint.parents[1] / "train.jsonl").read_bytes()
    labels = [json.loads(line)["label"] for line in content.decode("utf-8-sig").split("\n\n")]

    answers = predict(content)

    assert len(answers) == len(labels) == 120
    assert sum(map(str.__eq__, answers, labels)) > 100


@pytest.mark.integration
@pytest.mark.parametrize(
    "encoded",
    [
        gzip.compress,
        lambda content: lzma.compress(content, preset=0),
        lambda content: content.decode().encode("utf-16"),
        lambda content: content.replace(b"\n", b"\r\n \r\n"),
    ],
)
def test_rows_are_answered_alike_from_every_file(
    predict: Predict, encoded: Callable[[bytes], bytes]
) -> None:
    """Compression, encoding, line ends and empty lines do not change the rows."""
    content = as_lines(*ROWS)

    assert predict(encoded(content)) == predict(content)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[1]", "the line is not a JSON object"),
        (b'{"sentence": ', "the line is not JSON"),
        (b'{"sentence": "a \xff"}', "byte 0xff at offset 16 of the line is not UTF-8"),
        (b'{"sentence": 3}', "the value of 'text' is 3, not a text"),
        (b'{"sentense": "a"}', "the row has no value for the column 'text'"),
        (b'{"sentence": "a", "sentence": "b"}', "2 values have the key 'sentence'"),
        (b'{"sentence": "\\ud83d"}', "half of a surrogate pair"),
    ],
)
def test_a_wrong_row_loses_no_answer_of_another(
    predict: Predict, tmp_path: Path, line: bytes, problem: str
) -> None:
    """Its answer is an error with file and line, in its place, and the exit code is 1."""
    content = as_lines(*ROWS)
    good = predict(content)
    first, *others = content.splitlines(keepends=True)

    answers = predict(first + b"\n" + line + b"\n" + b"".join(others), code=1)

    assert [answers[0], *answers[2:]] == good
    assert answers[1].keys() == {"error"}
    assert answers[1]["error"].startswith(f"{tmp_path / 'rows.jsonl'}:3: ")
    assert problem in answers[1]["error"]


@pytest.mark.integration
@pytest.mark.parametrize("buffer", ["1", "2", "1000"])
def test_answers_do_not_depend_on_the_rows_read_ahead(predict: Predict, buffer: str) -> None:
    """A wrong row may be first, last or alone in its batch."""
    content = as_lines(3, ROWS[0], ROWS[1], [], ROWS[2], "x")

    answers = predict(content, "--buffer", buffer, code=1)

    good = predict(as_lines(*ROWS))
    assert [answers[1], answers[2], answers[4]] == good
    assert all("error" in answers[at] for at in (0, 3, 5))


@pytest.mark.integration
def test_a_long_row_is_truncated_with_a_warning(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model reads its first tokens and the end token, as of a text that is no longer."""
    long = {"text": f"{WORDS['de']} " * 9}
    rows = tmp_path / "rows.jsonl"
    rows.write_bytes(as_lines(ROWS[0], long, ROWS[1]))

    options = ["--details", "--precision", "float32"]
    assert main(["predict", str(checkpoint), str(rows), *options]) == 0
    printed = capsys.readouterr()
    answers = [json.loads(line) for line in printed.out.splitlines()]

    model = weft.open(checkpoint)
    column: Any = model.answering.columns["text"]
    ids = column.vocabulary.encode(long["text"])
    tokens = f"{len(ids) + 1} tokens, truncated to {POSITIONS}"
    assert printed.err == f"warning: {rows}:2: 'text' has {tokens}\n"
    cut = [*ids[: POSITIONS - 1], column.vocabulary.eos]
    expected = model.module(**inputs_of(model, cut))["logits"].softmax(-1)[0].tolist()
    assert [*answers[1]["probabilities"].values()] == pytest.approx(expected, abs=1e-5)


def inputs_of(model: Any, ids: list[int]) -> dict[str, Any]:
    """Return the inputs of a model of one text: ids, and a mask of positions that are not padding.

    Args:
        model: the model.
        ids: the ids of the text.
    """
    ids_BT = torch.tensor([ids])
    kinds = {name: type_.kind for name, type_ in model.graph.inputs.items()}
    return {name: ids_BT if kind == "ids" else ids_BT != 0 for name, kind in kinds.items()}


Capture = pytest.CaptureFixture[str]


@pytest.mark.integration
def test_a_classifier_from_the_run_to_its_answers(
    make_run: Callable[..., Path], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both kinds of checkpoints answer alike, and a resumed run finds its classes again."""
    path = make_run({"updates": 10, "evaluate.every": 10})
    out = path.parent / "out"
    weft.train(path, out=out)
    result = weft.train(path, out=out, overrides={"updates": 20}, resume=True)
    rows = [{"text": "the dog runs"}, {"text": "der hund rennt"}]

    assert result.checkpoint is not None
    whole, best = weft.open(result.checkpoint), weft.open(out / "best")

    assert {whole.graph.name, best.graph.name} == {"classifier"}
    assert whole.predict(rows) == ["en", "de"]
    assert best.predict(rows, "argmax", answers="label") == ["en", "de"]
    with pytest.raises(weft.InputError, match="has no value for the column 'text'") as caught:
        best.predict([rows[0], {"txt": "the dog"}])
    assert caught.value.location == "row 2"

    capsys.readouterr()
    assert main(["evaluate", str(out / "best"), "--json"]) == 0
    [report] = json.loads(capsys.readouterr().out)
    assert (report["test"], report["rows"]) == ("held-out", 10)
    assert report["scores"]["accuracy"] == 100.0
    # The loss of a model that is right in every case with a probability above one half.
    assert 0 < report["scores"]["loss"] < math.log(2)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b'{"text": "eine katze"}\n')))
    assert main(["predict", str(out / "best"), "--details"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["answer"] == "de"
    assert math.isclose(sum(answer["probabilities"].values()), 1.0, abs_tol=1e-5)

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[1]\n")))
    assert main(["predict", str(out / "best")]) == 1
    assert "--> standard input:1" in capsys.readouterr().err
    assert main(["evaluate", str(out / "best"), "--beam", "2"]) == 1
    assert "the predictor 'argmax' has no setting 'beam'" in capsys.readouterr().err
    assert main(["show", str(out / "best")]) == 0
    assert "classifier" in capsys.readouterr().out
