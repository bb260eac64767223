"""Text columns of tables: the stored bytes, blocks, sub-word sampling, and batches of updates."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter
from weft.runtime.data.batches import pad_rows
from weft.runtime.data.columns.registry import COLUMNS
from weft.runtime.data.plans.planning import stream_plans
from weft.runtime.data.prepare import Prepared, prepare
from weft.runtime.data.readers.registry import READERS
from weft.runtime.data.settings import BatchSettings
from weft.runtime.data.shards import shards
from weft.runtime.data.shards.blocks import joined_texts
from weft.runtime.data.table_settings import DataSettings, Tokenizers, unfit_tokenizers
from weft.runtime.train.distributed.sampler import stream_micro_batches
from weft.specs.findings import InputError

TEXT = {"type": "text", "tokenizer": "tokenizer"}
PAIR = {"source": TEXT, "target": TEXT}
BPE = {"tokenizer": {"type": "bpe", "vocab_size": 40}}


def prepared(
    out: Path, data: dict[str, Any], tokenizers: dict[str, Any] | None = None, **named: Any
) -> Prepared:
    """Prepare data with settings as in a run file."""
    known = TypeAdapter(Tokenizers).validate_python(BPE if tokenizers is None else tokenizers)
    return prepare(DataSettings.model_validate(data), known, out, **named)


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    """Return 120 pairs, of which some are empty, long or repeated."""
    random = np.random.default_rng(2)
    words = [f"{a}{b}" for a in "abcd" for b in "xyz"]
    lines = [" ".join(random.choice(words, random.integers(0, 12))) for _ in range(100)]
    lines += lines[:20]
    (tmp_path / "a").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "b").write_text("".join(f"{line} dx\n" for line in reversed(lines)))
    split = {"lines": {"source": ["a"], "target": ["b"]}}
    return {
        "root": str(tmp_path),
        "columns": PAIR,
        "train": split,
        "valid": split,
        "filter": {"max_length": 20, "duplicates": "drop"},
    }


@pytest.mark.integration
@pytest.mark.parametrize("workers", [1, 2])
def test_stored_bytes_follow_from_the_definition(
    data: dict[str, Any], tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids, order, filter and duplicates, computed here again line by line.

    The format of the files is that of earlier versions, so digests of data stay the same.
    """
    monkeypatch.setattr(shards, "SHARD", 50)
    made = prepared(tmp_path / "out", data, processes=workers)
    tokenizer = made.vocabularies["tokenizer"]
    lines = [(tmp_path / name).read_text().splitlines() for name in ("a", "b")]
    rows = [
        tuple(tuple(tokenizer.encode(text)) for text in row) for row in zip(*lines, strict=True)
    ]
    kept = list(dict.fromkeys(row for row in rows if all(0 < len(ids) <= 20 for ids in row)))

    folder = tmp_path / "out" / "train"
    for side, name in enumerate(("source", "target")):
        ids = np.fromfile(folder / f"{name}.bin", "<u2").tolist()
        offsets = np.fromfile(folder / f"{name}.offsets", "<i8").tolist()
        assert ids == [one for row in kept for one in row[side]]
        assert offsets == [0, *np.cumsum([len(row[side]) for row in kept]).tolist()]
    assert sorted(path.name for path in folder.iterdir()) == [
        "header.json",
        *(f"{name}.{kind}" for name in ("source", "target") for kind in ("bin", "offsets")),
    ]
    header = json.loads((folder / "header.json").read_text())
    assert list(header) == [
        *("format", "pairs", "dtype", "vocab_size", "tokens", "tokenizers", "report")
    ]
    assert 0 < header["pairs"] == len(kept) < 100


def test_batches_follow_from_the_stored_pairs(data: dict[str, Any], tmp_path: Path) -> None:
    """Each side is the stored ids, an end token and padding, in the rows of the plan."""
    table = prepared(tmp_path / "out", data).train
    settings = BatchSettings(tokens=80, pool=2)

    plans = stream_plans(table, settings, 7)
    for (place, rows), (same, batch) in islice(zip(plans, table.stream(settings, 7)), 30):  # noqa: B905 - endless
        assert place == same
        assert rows.tolist() == batch.rows.tolist()
        stored = [table.corpus.pair(int(row)) for row in rows]
        for side, name in enumerate(("source", "target")):
            ids = [pair[side].tolist() for pair in stored]
            assert batch.inputs[name].equal(pad_rows(ids, pad=0, eos=1))
            assert batch.tokens[name] == sum(len(one) + 1 for one in ids)


def test_updates_of_tables_are_shared_between_processes(
    data: dict[str, Any], tmp_path: Path
) -> None:
    """The token counts are those of all processes; each batch belongs to one."""
    table = prepared(tmp_path / "out", data).train
    settings = BatchSettings(tokens=80, pool=2)

    def updates(*share: int) -> list[Any]:
        found = stream_micro_batches(table, settings, 3, accumulate=3, share=(share[0], share[1]))
        return list(islice(found, 8))

    alone = updates(0, 1)
    for one, *parts in zip(alone, updates(0, 2), updates(1, 2), strict=True):
        together = sorted((n, b.rows.tolist()) for part in parts for n, b in part.batches)
        assert together == [(n, batch.rows.tolist()) for n, batch in one.batches]
        assert parts[0].tokens == parts[1].tokens == one.tokens
        for name in ("source", "target"):
            assert one.tokens[name] == sum(batch.tokens[name] for _, batch in one.batches)


def test_blocks_cut_the_joined_text(data: dict[str, Any], tmp_path: Path) -> None:
    """All rows together are the texts, each with begin and end token; only the last is shorter."""
    text = {**TEXT, "from": "source", "block": 16, "begin": True}
    made = prepared(tmp_path / "out", {**data, "columns": {"text": text}, "filter": {}})
    tokenizer = made.vocabularies["tokenizer"]
    texts = [tokenizer.encode(line) for line in (tmp_path / "a").read_text().splitlines()]
    joined = [one for ids in texts if ids for one in (3, *ids, 1)]

    table = made.train
    batch = table.batch(np.arange(len(table))).inputs["text"]

    assert batch.shape == (-(-len(joined) // 16), 16)
    assert batch.flatten().tolist()[: len(joined)] == joined
    assert not batch.flatten()[len(joined) :].any()
    assert table.lengths["text"][:].tolist() == [16] * (len(table) - 1) + [len(joined) % 16 or 16]


def test_joined_texts_have_their_special_tokens() -> None:
    """By hand, with an empty text."""
    found = joined_texts(np.array([5, 6, 7]), np.array([2, 0, 1]), [3], [1])

    assert found.tolist() == [3, 5, 6, 1, 3, 1, 3, 7, 1]


def test_sampled_text_differs_between_epochs_only(data: dict[str, Any], tmp_path: Path) -> None:
    """Ids follow from seed, epoch and row, whatever the batch; evaluation does not sample."""
    columns = {"source": {**TEXT, "sampling": {"drop": 0.4}}, "target": TEXT}
    table = prepared(tmp_path / "out", {**data, "columns": columns}).train
    rows = np.arange(40)

    first, again, later = (table.collate(rows, noise=(1, epoch))["source"] for epoch in (0, 0, 1))
    alone = table.collate(rows[7:8], noise=(1, 0))["source"][0]

    assert first.equal(again)
    assert first.tolist() != later.tolist()
    assert first[7][: len(alone)].equal(alone)
    assert table.collate(rows, noise=(1, 0))["target"].equal(table.collate(rows)["target"])
    decode = table.columns["source"].decode
    plain = table.collate(rows)["source"]
    assert [decode(row.tolist()) for row in first] == [decode(row.tolist()) for row in plain]


def test_sampled_words_keep_their_tags(tmp_path: Path) -> None:
    """Tags are put on the first pieces of whatever split a text has."""
    (tmp_path / "t").write_text("abc bcd cab\nbca dab\n" * 20)
    (tmp_path / "y").write_text("A B C\nB D\n" * 20)
    split = {"lines": {"text": ["t"], "tags": ["y"]}}
    columns = {
        "text": {**TEXT, "sampling": {"drop": 0.5}},
        "tags": {"type": "tags", "of": "text"},
    }
    data = {"root": str(tmp_path), "columns": columns, "train": split, "valid": split}
    table = prepared(tmp_path / "out", data, {"tokenizer": {"type": "bpe", "vocab_size": 14}}).train

    for epoch in range(3):
        inputs = table.collate(np.arange(2), noise=(1, epoch))
        labels = [[one for one in row if one >= 0] for row in inputs["tags"].tolist()]
        assert labels == [[0, 1, 2], [1, 3]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"columns": {"x": {"type": "tags", "of": "y"}}}, "no text column 'y'"),
        ({"columns": {**PAIR, "x": {**TEXT, "block": 4}}}, "'block' cannot be combined"),
        ({"columns": {"x": {"type": "number"}}}, "'duplicates' has no effect|'max_length' has no"),
        ({"columns": {"x": {**TEXT, "block": 4, "max_length": 3}}}, "cannot be combined"),
        ({"train": {"lines": {"a": ["1"], "b": ["1", "2"]}}}, "1 a files for 2 b files"),
        ({"train": {}}, "needs exactly one reader, but has none"),
        ({"train": {"jsonl": {"files": ["a"]}, "csv": {"files": ["a"]}}}, "'jsonl' and 'csv'"),
        ({"mixture": ({"weights": {"a": 2}},)}, "no named sources"),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    data: dict[str, Any], change: dict[str, Any], problem: str
) -> None:
    """A setting without an effect is an error."""
    with pytest.raises(ValueError, match=problem):
        DataSettings.model_validate({**data, **change})


@pytest.mark.parametrize(
    ("columns", "tokenizers", "problem"),
    [
        ({"x": {**TEXT, "tokenizer": "text"}}, BPE, "there is no tokenizer 'text'"),
        ({"x": TEXT}, {**BPE, "other": BPE["tokenizer"]}, "no column uses the tokenizer 'other'"),
        ({"x": {**TEXT, "sampling": {"alpha": 0.1}}}, BPE, "'alpha' has no effect"),
        (
            {"x": {**TEXT, "sampling": {"drop": 0.1}}},
            {"tokenizer": {"type": "symbols"}},
            "of type 'symbols' cannot sample",
        ),
        ({"x": TEXT}, {"tokenizer": {"type": "symbols", "spelling": "y"}}, "not a tokenizer of"),
    ],
)
def test_tokenizers_and_columns_name_each_other(
    data: dict[str, Any], columns: dict[str, Any], tokenizers: dict[str, Any], problem: str
) -> None:
    """Neither an unknown tokenizer nor one that is not used is accepted."""
    table = DataSettings.model_validate({**data, "columns": columns})
    known = TypeAdapter(Tokenizers).validate_python(tokenizers)

    [error] = unfit_tokenizers(table, known)

    assert problem in str(error)


def test_settings_have_a_json_schema() -> None:
    """Editors need it; columns and tokenizers are selected by their type."""
    schema = DataSettings.model_json_schema()
    [columns] = schema["properties"]["columns"]["patternProperties"].values()

    types = [way["properties"]["type"]["const"] for way in columns["anyOf"][1:]]
    assert types == COLUMNS.names()
    assert [*schema["$defs"]["Split"]["properties"]] == [*READERS.names(), "sources"]


def test_an_existing_tokenizer_can_be_used(data: dict[str, Any], tmp_path: Path) -> None:
    """Its file is copied into the prepared data; a file that is not a tokenizer is refused."""
    first = prepared(tmp_path / "first", data)
    (tmp_path / "own.model").write_bytes(first.files["tokenizer.model"])
    file = {"tokenizer": {"type": "file", "path": "own.model"}}

    made = prepared(tmp_path / "out", data, file)

    assert made.files == first.files
    assert made.digest == first.digest
    (tmp_path / "own.model").write_bytes(b"nonsense")
    with pytest.raises(InputError, match="not a SentencePiece model"):
        prepared(tmp_path / "other", data, file)


def test_a_hugging_face_tokenizer_can_be_used(data: dict[str, Any], tmp_path: Path) -> None:
    """Special tokens are found by their names; the padding id must be 0."""
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "ax": 4, "bx": 5}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(tmp_path / "tokenizer.json"))
    file = {
        "type": "file",
        "path": "tokenizer.json",
        "special": ["[PAD]", "[SEP]", "[UNK]", "[CLS]"],
    }

    made = prepared(tmp_path / "out", data, {"tokenizer": file}, processes=2)

    assert made.columns["source"].encode("bx ax zz")[""].tolist() == [5, 4, 1]
    last = made.train.batch(np.array([0])).inputs["source"][0, -1]
    assert last == 3
    with pytest.raises(InputError, match="no token '<pad>'"):
        prepared(tmp_path / "other", data, {"tokenizer": {**file, "special": None}})
