"""`weft predict`: rows are read as in training, and a wrong row loses no answer of another one."""

from __future__ import annotations

import gzip
import json
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import weft
from weft.runtime.cli.main import main

from .conftest import RUN, WORDS

pytestmark = pytest.mark.integration

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


def test_the_file_of_training_is_answered(checkpoint: Path, predict: Predict) -> None:
    """Byte order mark, empty lines, fields with other names than columns: all as in training."""
    content = (checkpoint.parents[1] / "train.jsonl").read_bytes()
    labels = [json.loads(line)["label"] for line in content.decode("utf-8-sig").split("\n\n")]

    answers = predict(content)

    assert len(answers) == len(labels) == 120
    assert sum(map(str.__eq__, answers, labels)) > 100


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


@pytest.mark.parametrize("buffer", ["1", "2", "1000"])
def test_answers_do_not_depend_on_the_rows_read_ahead(predict: Predict, buffer: str) -> None:
    """A wrong row may be first, last or alone in its batch."""
    content = as_lines(3, ROWS[0], ROWS[1], [], ROWS[2], "x")

    answers = predict(content, "--buffer", buffer, code=1)

    good = predict(as_lines(*ROWS))
    assert [answers[1], answers[2], answers[4]] == good
    assert all("error" in answers[at] for at in (0, 3, 5))


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
