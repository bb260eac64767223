"""Tables: columns of several types become aligned tensors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray
from pydantic import TypeAdapter
from weft.runtime.data.columns.column import ColumnContext
from weft.runtime.data.columns.column_settings import NumberSettings
from weft.runtime.data.columns.number import NumberColumn
from weft.runtime.data.plans.planning import DataPosition
from weft.runtime.data.prepare import Prepared, prepare
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.table import batch_of
from weft.runtime.data.table_settings import DataSettings, Tokenizers
from weft.specs.findings import InputError

TEXTS = ("one two", "three", "four five six", "two\ntwo", "six one")
TEXT = {"type": "text", "tokenizer": "text"}
PIECES = {"text": {"type": "bpe", "vocab_size": 30}}


def prepared(
    out: Path, data: dict[str, Any], tokenizers: dict[str, Any] | None = None, **named: Any
) -> Prepared:
    """Prepare data with settings as in a run file."""
    known = TypeAdapter(Tokenizers).validate_python(PIECES if tokenizers is None else tokenizers)
    return prepare(DataSettings.model_validate(data), known, out, **named)


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write records as JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    """Return 50 rows with a text, tags, a class and a number; every tenth text is empty."""
    rows = []
    for number in range(50):
        text = "" if number % 10 == 9 else TEXTS[number % 5]
        tags = " ".join("DN"[len(word) % 2] for word in text.split())
        rows.append({"text": text, "tags": tags, "kind": f"k{number % 3}", "score": number / 2})
    write(tmp_path / "train.jsonl", rows)
    write(tmp_path / "valid.jsonl", rows[:8])
    return {
        "root": str(tmp_path),
        "columns": {
            "kind": {"type": "class"},
            "text": TEXT,
            "tags": {"type": "tags", "of": "text"},
            "value": {"type": "number", "from": "score"},
        },
        "train": {"jsonl": {"files": ["train.jsonl"]}},
        "valid": {"jsonl": {"files": ["valid.jsonl"]}},
    }


def test_columns_of_all_types_stay_aligned(data: dict[str, Any], tmp_path: Path) -> None:
    """Rows with an empty text are dropped from every column."""
    made = prepared(tmp_path / "out", data)
    kept = [number for number in range(50) if number % 10 != 9]

    batch = made.train.batch(np.arange(45))

    assert made.report["train"]["dropped"] == {"empty_text": 5}
    assert batch.inputs["kind"].tolist() == [number % 3 for number in kept]
    assert batch.inputs["value"].tolist() == [number / 2 for number in kept]
    vocabulary = made.vocabularies["text"]
    for row, number in enumerate(kept):
        ids = batch.inputs["text"][row].tolist()
        assert vocabulary.decode(ids) == TEXTS[number % 5].replace("\n", " ")
        tags = [one for one in batch.inputs["tags"][row].tolist() if one >= 0]
        assert tags == [len(word) % 2 for word in TEXTS[number % 5].split()]


def test_a_tag_is_on_the_first_piece_of_its_word(data: dict[str, Any], tmp_path: Path) -> None:
    """All other pieces, the end token and the padding have the label -1."""
    made = prepared(tmp_path / "out", data)

    batch = made.train.batch(np.arange(5))

    pieces = made.vocabularies["text"].pieces
    for ids, labels in zip(batch.inputs["text"], batch.inputs["tags"], strict=True):
        begins = [piece.startswith("\u2581") for piece in pieces(ids.tolist())]
        assert [one >= 0 for one in labels.tolist()] == begins


def test_a_batch_counts_its_positions(data: dict[str, Any], tmp_path: Path) -> None:
    """End tokens count, padding does not; a tag counts where it is a label."""
    made = prepared(tmp_path / "out", data)
    rows = np.arange(5)

    batch = made.train.batch(rows)

    assert batch.tokens == {
        "text": int(made.train.lengths["text"][rows].sum()),
        "tags": sum(len(text.split()) for text in TEXTS),
    }
    assert made.train.tokens(rows) == {"text": batch.tokens["text"]}
    assert list(made.train.lengths) == ["text"]
    assert batch.to("meta").tokens == batch.tokens


def test_the_order_does_not_depend_on_the_reader(data: dict[str, Any], tmp_path: Path) -> None:
    """The same rows as JSON Lines, CSV and aligned lines give the same arrays."""
    rows = [json.loads(line) for line in (tmp_path / "train.jsonl").read_text().splitlines()]
    rows = [{**row, "text": row["text"].replace("\n", " ")} for row in rows]
    write(tmp_path / "train.jsonl", rows)
    fields = list(rows[0])
    table = [fields, *[[str(row[field]) for field in fields] for row in rows]]
    (tmp_path / "t.tsv").write_text("".join("\t".join(row) + "\n" for row in table))
    for number, field in enumerate(fields):
        content = "".join(row[number] + "\n" for row in table[1:])
        (tmp_path / f"t.{field}").write_text(content)
    trains: list[dict[str, Any]] = [
        {"jsonl": {"files": ["train.jsonl"]}},
        {"csv": {"files": ["t.tsv"]}},
        {"lines": {field: [f"t.{field}"] for field in fields}},
    ]

    made = [
        prepared(tmp_path / f"out{number}", {**data, "train": train})
        for number, train in enumerate(trains)
    ]

    assert len({one.digest for one in made}) == 1


def test_raw_values_are_encoded_as_in_the_table(data: dict[str, Any], tmp_path: Path) -> None:
    """A predictor gets the same tensors from raw values as training gets from the table."""
    made = prepared(tmp_path / "out", data)

    raw = batch_of(made.columns, made.text("valid"))

    stored = made.valid.batch(np.arange(8))
    assert raw.tokens == stored.tokens
    assert all(raw.inputs[name].equal(stored.inputs[name]) for name in raw.inputs)


def test_prepared_data_is_opened_again(data: dict[str, Any], tmp_path: Path) -> None:
    """Classes come from the prepared folder; nothing is prepared twice."""
    first = prepared(tmp_path / "out", data)
    calls = list[str]()

    again = prepared(tmp_path / "out", data, report=lambda stage, *_: calls.append(stage))

    assert calls == []
    assert again.columns["kind"].decode(2) == "k2"
    assert set(again.files) == {"text.model", "kind.classes.json", "tags.classes.json"}
    assert again.files == first.files
    assert again.digest == first.digest


class Longest(NumberColumn):
    """Column of an installed package that divides by the largest training value."""

    def __init__(self, name: str, settings: Any, context: ColumnContext) -> None:
        """Read the largest value, if it is known."""
        super().__init__(name, settings, context)
        self.largest = float(context.files.get("largest.txt", b"0"))

    @property
    def fits(self) -> bool:
        """Whether the largest value is unknown."""
        return not self.largest

    def fit(self, values: Iterable[Any]) -> None:
        """Find the largest value."""
        self.largest = max(map(float, values))

    def encode(self, value: Any) -> Mapping[str, NDArray[Any]]:
        """Return a share of the largest value."""
        return {"": super().encode(value)[""] / np.float32(self.largest)}

    def files(self) -> Mapping[str, bytes]:
        """Return the largest value."""
        return {"largest.txt": str(self.largest).encode()}


class LongestSettings(NumberSettings):
    """Settings of this column."""

    module: ClassVar[str] = f"{__name__}:Longest"


def test_an_installed_column_has_the_files_that_it_stored(
    data: dict[str, Any], tmp_path: Path
) -> None:
    """Whatever their names: scores are 0, 0.5, ..., 24.5, and every tenth text is empty."""
    data["columns"]["value"] = LongestSettings.model_validate({"from": "score"})

    made = prepared(tmp_path / "out", data)

    assert made.files["largest.txt"] == b"24.5"
    assert made.train.batch(np.array([2])).inputs["value"].item() == pytest.approx(1 / 24.5)


def test_an_unseen_class_is_refused_with_its_place(data: dict[str, Any], tmp_path: Path) -> None:
    """A typo in validation data must not become a wrong label."""
    write(tmp_path / "valid.jsonl", [{"text": "a", "tags": "N", "kind": "k9", "score": 1}])

    with pytest.raises(InputError, match="'k9' is not among the 3 classes") as caught:
        prepared(tmp_path / "out", data)

    assert caught.value.location == f"{tmp_path / 'valid.jsonl'}:1"


@pytest.mark.parametrize("label", [None, 1.0, float("nan"), "", ["a"]])
def test_a_wrong_class_is_refused_with_its_place(
    data: dict[str, Any], tmp_path: Path, label: Any
) -> None:
    """Classes are collected before any row is encoded."""
    rows = [{"kind": kind, "text": "one"} for kind in ("a", "b", label)]
    write(tmp_path / "train.jsonl", rows)
    del data["columns"]["tags"], data["columns"]["value"]

    with pytest.raises(InputError, match="not a class") as caught:
        prepared(tmp_path / "out", data)

    assert caught.value.location == f"{tmp_path / 'train.jsonl'}:3"


def test_an_unseen_class_can_be_counted(data: dict[str, Any], tmp_path: Path) -> None:
    """It gets the label -1, which no loss counts, and is in the report."""
    write(tmp_path / "valid.jsonl", [{"text": "a", "tags": "N", "kind": "k9", "score": 1}])
    data["columns"]["kind"]["unseen"] = "count"

    made = prepared(tmp_path / "out", data)

    assert made.report["valid"]["unseen"] == {"kind": {"k9": 1}}
    assert made.valid.batch(np.array([0])).inputs["kind"].tolist() == [-1]


def test_tags_of_another_length_are_refused(data: dict[str, Any], tmp_path: Path) -> None:
    """The message names the file and the line."""
    write(tmp_path / "valid.jsonl", [{"text": "a b", "tags": "N", "kind": "k0", "score": 1}])

    with pytest.raises(InputError, match="1 tags in 'tags' for 2 words in 'text'") as caught:
        prepared(tmp_path / "out", data)

    assert caught.value.location == f"{tmp_path / 'valid.jsonl'}:1"


def test_a_column_that_no_field_gives_is_refused(data: dict[str, Any], tmp_path: Path) -> None:
    """The message suggests a field of the file."""
    data["columns"]["text"] = {**TEXT, "from": "txt"}

    with pytest.raises(InputError, match="no field 'txt'") as caught:
        prepared(tmp_path / "out", data)

    assert caught.value.help == "did you mean 'text'?"


def test_rows_without_time_axis_are_batches_of_equal_size(tmp_path: Path) -> None:
    """Batches are limited by their rows; every row comes once in an epoch."""
    write(tmp_path / "a.jsonl", [{"x": number, "y": number % 2} for number in range(10)])
    split = {"jsonl": {"files": ["a.jsonl"]}}
    columns = {"x": {"type": "number"}, "y": {"type": "class"}}
    made = prepared(
        tmp_path / "out",
        {"root": str(tmp_path), "columns": columns, "train": split, "valid": split},
        {},
    )
    settings = BatchSettings(max_sentences=4)

    stream = made.train.stream(settings, 1)
    batches = [next(stream) for _ in range(3)]

    assert [len(batch.rows) for _, batch in batches] == [4, 4, 2]
    assert sorted(x for _, batch in batches for x in batch.inputs["x"].tolist()) == [*range(10)]
    _, again = next(made.train.stream(settings, 1, at=DataPosition(batches=2)))
    assert again.rows.tolist() == batches[2][1].rows.tolist()
    with pytest.raises(InputError, match="no column has a time axis"):
        next(made.train.stream(BatchSettings(), 1))
