"""Data preparation: done once, atomically, and repeated only after changes."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest
from weft.runtime.data import vocabularies as vocabularies_file
from weft.runtime.data.prepare import Prepared, prepare
from weft.runtime.data.settings import FileTokenizerSettings, PieceSettings
from weft.runtime.data.table_settings import DataSettings, Tokenizers
from weft.specs.findings import InputError

from .pairs import bpe, changed, lines, pairs, texts

NUMBERS = ("one", "two", "three", "four", "five", "six", "seven")
ZAHLEN = ("eins", "zwei", "drei", "vier", "sieben", "acht", "neun")
SMALL = bpe(50)


def write(path: Path, rows: list[str]) -> None:
    """Write lines to a file."""
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8", newline="\n")


@pytest.fixture
def data(tmp_path: Path) -> DataSettings:
    """Return 49 training pairs, 4 validation pairs (one empty, one long), 2 test pairs."""
    root = tmp_path / "text"
    root.mkdir()
    write(root / "train.en", [f"{a} {b}" for a in NUMBERS for b in NUMBERS])
    write(root / "train.de", [f"{a} und {b}" for a in ZAHLEN for b in ZAHLEN])
    write(root / "valid.en", ["one\u0085two", "", "two " * 30, "six"])
    write(root / "valid.de", ["eins", "zwei", "zwei", "sechs"])
    write(root / "test.en", ["one", "two"])
    (root / "test.de.gz").write_bytes(gzip.compress(b"eins\nzwei\n"))
    return pairs(
        root,
        lines(["train.en"], ["train.de"]),
        lines(["valid.en"], ["valid.de"]),
        test={"small": lines(["test.en"], ["test.de.gz"])},
        filter={"max_length": 29},
    )


def first_pair(prepared: Prepared) -> tuple[str, str]:
    """Return the first training pair as text."""
    return texts(prepared, "source")[0], texts(prepared, "target")[0]


def test_text_becomes_corpora_in_its_order(data: DataSettings, tmp_path: Path) -> None:
    """The table has the text in order, as ids of the shared tokenizer."""
    prepared = prepare(data, SMALL, tmp_path / "out")

    assert first_pair(prepared) == ("one one", "eins und eins")
    assert len(prepared.train) == 49
    assert list(prepared.vocabularies) == ["tokenizer"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "prepared.json",
        "tokenizer.model",
        "train",
        "valid",
    ]


def test_sides_may_have_their_own_tokenizers(data: DataSettings, tmp_path: Path) -> None:
    """Each tokenizer is trained only on its side: German has no x, English no z."""
    columns = {side: {"type": "text", "tokenizer": side} for side in ("source", "target")}
    tokenizers: Tokenizers = {side: PieceSettings(vocab_size=40) for side in columns}

    prepared = prepare(changed(data, columns=columns), tokenizers, tmp_path / "out")
    source, target = (prepared.vocabularies[side] for side in columns)

    assert first_pair(prepared) == ("one one", "eins und eins")
    assert source.unk in source.encode("z")
    assert source.unk not in source.encode("x")
    assert target.unk in target.encode("x")
    assert target.unk not in target.encode("z")


def test_the_report_counts_every_line(data: DataSettings, tmp_path: Path) -> None:
    """Validation loses only empty pairs; longer pairs are counted and kept."""
    prepared = prepare(data, SMALL, tmp_path / "out")

    assert prepared.report["valid"] == {
        "read": 4,
        "kept": 3,
        "dropped": {"empty_source": 1},
        "spared": {"too_long": 1},
    }
    assert prepared.report["train"] == {"read": 49, "kept": 49, "dropped": {}, "spared": {}}
    assert prepared.report["vocab_size"] == {"source": 50, "target": 50}
    assert prepared.valid.report == prepared.report["valid"]
    assert len(prepared.valid) == 3


def test_measured_text_is_the_text_of_the_files(data: DataSettings, tmp_path: Path) -> None:
    """Every line is unchanged: references are not normalized or dropped."""
    prepared = prepare(data, SMALL, tmp_path / "out")

    assert [tuple(row.values()) for row in prepared.text("valid")] == [
        ("one\u0085two", "eins"),
        ("", "zwei"),
        ("two " * 30, "zwei"),
        ("six", "sechs"),
    ]


def test_a_second_call_opens_the_prepared_data(
    data: DataSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is trained, tokenized or reported."""
    first = prepare(data, SMALL, tmp_path / "out")
    monkeypatch.setattr(vocabularies_file, "train_tokenizer", None)
    calls: list[str] = []

    again = prepare(data, SMALL, tmp_path / "out", report=lambda stage, *_: calls.append(stage))

    assert calls == []
    assert again.report == first.report
    assert first_pair(again) == first_pair(first)


def test_a_change_of_settings_or_files_prepares_anew(data: DataSettings, tmp_path: Path) -> None:
    """Settings and the size and time of files matter; the test sets do not."""
    out = tmp_path / "out"

    def built(data: DataSettings, tokenizers: Tokenizers) -> bool:
        calls: list[str] = []
        prepare(data, tokenizers, out, report=lambda stage, *_: calls.append(stage))
        return bool(calls)

    assert built(data, SMALL)
    assert not built(changed(data, test={}), SMALL)
    assert built(changed(data, filter={"max_length": 40}), SMALL)
    assert built(data, bpe(51))
    assert not built(data, bpe(51))
    path = Path(data.root) / "valid.de"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert built(data, bpe(51))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "text"]


def test_another_tokenizer_file_prepares_anew(data: DataSettings, tmp_path: Path) -> None:
    """The ids of the prepared data are those of the old file."""
    first = prepare(data, SMALL, tmp_path / "first").files["tokenizer.model"]
    other = prepare(data, bpe(40), tmp_path / "other").files["tokenizer.model"]
    path, given = Path(data.root) / "t.model", FileTokenizerSettings(path="t.model")
    path.write_bytes(first)
    prepare(data, {"tokenizer": given}, tmp_path / "out")

    path.write_bytes(other)
    again = prepare(data, {"tokenizer": given}, tmp_path / "out")

    assert again.files["tokenizer.model"] == other
    assert again.vocabularies["tokenizer"].vocab_size == 40


def test_progress_is_reported_with_the_total(data: DataSettings, tmp_path: Path) -> None:
    """Lines are counted first; the last call of each stage is exact."""
    calls: list[tuple[str, int, int | None]] = []

    prepare(data, SMALL, tmp_path / "out", report=lambda *call: calls.append(call))

    assert calls == [
        ("count", 49, 49),
        ("tokenizer", 49, 49),
        ("valid", 4, 4),
        ("train", 49, 49),
    ]


def test_an_error_leaves_the_old_data(data: DataSettings, tmp_path: Path) -> None:
    """The old data stay until the new data are complete."""
    prepare(data, SMALL, tmp_path / "out")
    write(Path(data.root) / "valid.de", ["eins"])

    with pytest.raises(InputError, match="4 source lines but 1 target lines"):
        prepare(data, SMALL, tmp_path / "out")

    assert (tmp_path / "out" / "prepared.json").is_file()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "text"]


def test_bad_test_files_are_found_before_training(data: DataSettings, tmp_path: Path) -> None:
    """A misspelled test file must be reported before training."""
    wrong = changed(data, test={"a": lines(["test.e"], ["test.en"])})

    with pytest.raises(InputError, match=r"no file 'test\.e'"):
        prepare(wrong, SMALL, tmp_path / "out")

    assert not (tmp_path / "out").exists()


def test_empty_files_are_refused_when_duplicates_are_dropped(
    data: DataSettings, tmp_path: Path
) -> None:
    """There are no hashes to sort."""
    for side in ("en", "de"):
        (Path(data.root) / f"train.{side}").write_text("")

    with pytest.raises(InputError):
        prepare(changed(data, filter={"duplicates": "drop"}), SMALL, tmp_path / "out")


def test_a_split_of_which_nothing_is_left_is_refused(data: DataSettings, tmp_path: Path) -> None:
    """The message has the reasons, which show the limit to relax."""
    strict = changed(data, filter={"max_length": 1})

    with pytest.raises(InputError, match="none of the 49 pairs of 'train' is left: 49 too_long"):
        prepare(strict, SMALL, tmp_path / "out")


def test_a_folder_with_other_things_is_not_touched(data: DataSettings, tmp_path: Path) -> None:
    """Preparing into a home folder must not delete it."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis").touch()

    with pytest.raises(InputError, match=r"'out' exists and does not contain prepared\.json"):
        prepare(data, SMALL, out)

    assert list(out.iterdir()) == [out / "thesis"]


@pytest.mark.parametrize("content", ["", "{}", "[]", "3"])
def test_a_damaged_marker_is_refused(data: DataSettings, tmp_path: Path, content: str) -> None:
    """Any damaged content raises an `InputError`."""
    prepare(data, SMALL, tmp_path / "out")
    (tmp_path / "out" / "prepared.json").write_text(content)

    with pytest.raises(InputError, match=r"prepared\.json is damaged"):
        prepare(data, SMALL, tmp_path / "out")


def test_a_corpus_of_another_tokenizer_is_refused(data: DataSettings, tmp_path: Path) -> None:
    """Ids are meaningless without the model that produced them."""
    prepare(data, SMALL, tmp_path / "out")
    prepare(data, bpe(51), tmp_path / "other")
    (tmp_path / "other" / "tokenizer.model").replace(tmp_path / "out" / "tokenizer.model")

    with pytest.raises(InputError, match="made with another tokenizer"):
        prepare(data, SMALL, tmp_path / "out")
