"""Readers: the same rows from every kind of file, and errors that name their places."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from weft.runtime.data.readers import delimited
from weft.runtime.data.readers.delimited import other_delimiter, table_of
from weft.runtime.data.readers.reader import Reader
from weft.runtime.data.readers.registry import READERS
from weft.runtime.data.readers.split import Split, reader_of
from weft.runtime.data.text_files import raw_lines
from weft.runtime.system.plugins import implementation_of
from weft.specs.findings import InputError

REVISION = "0123456789" * 4


def read(root: Path, split: dict[str, Any], *fields: str) -> list[tuple[Any, ...]]:
    """Return the values of fields of all records of a split."""
    reader = reader_of(Split.model_validate(split), str(root))
    parts = [list(reader.records(part, fields)) for part in range(reader.parts())]
    return [tuple(record.values[field] for field in fields) for part in parts for record in part]


@pytest.mark.parametrize("name", READERS.names())
def test_every_key_of_a_split_has_a_reader(name: str) -> None:
    """A key without a reader could be written but not read."""
    settings = READERS.find(name).model_construct()

    assert issubclass(implementation_of(settings, Reader), Reader)


WRONG = {
    "a misspelled reader": ({"jsonll": {"files": ["a"]}}, ("jsonll",), "extra_forbidden"),
    "a misspelled setting": ({"csv": {"fles": ["a"], "files": ["a"]}}, ("csv", "fles"), "extra"),
    "a wrong entry": ({"csv": {"files": ["a", 3]}}, ("csv", "files", 1), "string_type"),
    "a wrong file of a field": ({"lines": {"x": [3]}}, ("lines", "x", 0), "string_type"),
    "no object": ({"csv": 3}, ("csv",), "model_type"),
}


@pytest.mark.parametrize(("split", "place", "kind"), WRONG.values(), ids=WRONG)
def test_a_wrong_setting_has_its_place(
    split: dict[str, Any], place: tuple[str, ...], kind: str
) -> None:
    """Below the key of the reader, as in the file."""
    with pytest.raises(ValidationError) as caught:
        Split.model_validate(split)

    assert place in [error["loc"] for error in caught.value.errors()]
    assert kind in str([error["type"] for error in caught.value.errors()])


@pytest.mark.parametrize("field", ["type", "files", "weights"])
def test_lines_may_have_fields_of_any_name(tmp_path: Path, field: str) -> None:
    """Names that settings of other readers have are no settings of lines."""
    (tmp_path / "a.txt").write_text("one\n")
    split = {"lines": {field: ["a.txt"]}}

    assert read(tmp_path, split, field) == [("one",)]
    assert Split.model_validate(split).model_dump(mode="json") == split


def test_csv_fields_may_contain_line_feeds_and_delimiters(tmp_path: Path) -> None:
    """Quoted fields are as in RFC 4180; the file may be gzip."""
    content = 'text,kind\r\n"a, ""b""\nc",x\r\nd,y\r\n'
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(content.encode("utf-8-sig")))

    found = read(tmp_path, {"csv": {"files": ["a.csv.gz"]}}, "kind", "text")

    assert found == [("x", 'a, "b"\nc'), ("y", "d")]


def test_tsv_files_may_have_no_header_and_no_quotes(tmp_path: Path) -> None:
    """Many published TSV files contain single double quotes."""
    (tmp_path / "a.tsv").write_text('1\t"no end\n')
    csv = {"files": ["a.tsv"], "quoting": False, "names": ["kind", "text"]}

    assert read(tmp_path, {"csv": csv}, "text") == [('"no end',)]


@pytest.mark.parametrize(
    ("content", "problem", "line"),
    [
        ("text,kind\na,b\nc\n", "the row has 1 fields, not 2", ":3"),
        ("kind\na\n", "there is no field 'text'", ":1"),
        ('text,kind\n"a"b,c\n', "a field continues after its closing quote", ":2"),
        ('text,kind\nx,y\n"a,c\nd,e\n', "its quote is never closed", ":3"),
        ("text,kind\nx,y\na\rb,c\n", "a carriage return stands inside a field", ":3"),
        ("text,kind,text\na,b,c\n", "2 fields have the name 'text'", ":1"),
        ("text,kind\na,b\0\n", "byte 0x00 at offset 3 of the line is not text", ":2"),
        ("text,kind\n", "the file has no rows", ""),
        ("", "the file has no rows", ""),
    ],
)
def test_a_bad_csv_row_is_named(tmp_path: Path, content: str, problem: str, line: str) -> None:
    """The place has the line of the file, as an editor counts it."""
    (tmp_path / "a.csv").write_text(content)

    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path, {"csv": {"files": ["a.csv"]}}, "text")

    assert caught.value.location == f"{tmp_path / 'a.csv'}{line}"


@pytest.mark.parametrize(
    ("content", "problem", "line"),
    [
        ("{\n", "the line is not JSON", ":1"),
        ("[1]\n", "not a JSON object", ":1"),
        ("text,kind\n", "not a JSON object", ":1"),
        ('{"text": "a"}\n\n{"kind": 1}\n', "there is no field 'text'", ":3"),
        ('{"text": "a"}\n{"text": "b", "text": "c"}\n', "2 values have the key 'text'", ":2"),
        ('{"text": {"b": 1, "b": 1}}\n', "2 values have the key 'b'", ":1"),
        ('{"text": "a"}\n{"text": "b"} {"text": "c"}\n', "the line is not JSON", ":2"),
        ('{"text": "a"}\n\ufeff{"text": "b"}\n', "the line is not JSON", ":2"),
        ("[" * 100_000, "the line is not JSON", ":1"),
        ("", "the file is empty", ""),
        ("\n \n", "the file is empty", ""),
    ],
)
def test_a_bad_json_line_is_named(tmp_path: Path, content: str, problem: str, line: str) -> None:
    """Empty lines are skipped but counted."""
    (tmp_path / "a.jsonl").write_text(content)

    with pytest.raises(InputError, match=problem) as caught:
        read(tmp_path, {"jsonl": {"files": ["a.jsonl"]}}, "text")

    assert caught.value.location == f"{tmp_path / 'a.jsonl'}{line}"


@pytest.mark.parametrize(("delimiter", "written"), [(";", '";"'), ("\t", r'"\\t"'), ("|", '"|"')])
def test_another_delimiter_is_suggested(tmp_path: Path, delimiter: str, written: str) -> None:
    """Programs write semicolons where a comma separates the digits of a number."""
    (tmp_path / "a.csv").write_text(f"text{delimiter}kind\na{delimiter}b\n")

    for settings in ({}, {"names": ["text", "kind"]}):
        with pytest.raises(InputError, match="1 field separated by") as caught:
            read(tmp_path, {"csv": {"files": ["a.csv"], **settings}}, "text")
        assert f'"delimiter": {written}' in str(caught.value.help).replace("\\", "\\\\")
        assert caught.value.location == f"{tmp_path / 'a.csv'}:1"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "~"])
def test_a_first_line_that_declares_the_delimiter_is_obeyed(tmp_path: Path, delimiter: str) -> None:
    """Spreadsheets write it for each other; locations still count the lines of the file."""
    text = f"sep={delimiter}\r\ntext{delimiter}kind\r\na{delimiter}b\r\n"
    (tmp_path / "a.csv").write_text(text, encoding="utf-8-sig", newline="")
    (tmp_path / "b.csv").write_text(f"{text}c\r\n", newline="")

    assert read(tmp_path, {"csv": {"files": ["a.csv"]}}, "kind", "text") == [("b", "a")]
    assert table_of(tmp_path / "a.csv")[0] == delimiter
    assert other_delimiter(tmp_path / "a.csv") is None
    with pytest.raises(InputError, match="the row has 1 field") as caught:
        read(tmp_path, {"csv": {"files": ["b.csv"]}}, "kind")
    assert caught.value.location == f"{tmp_path / 'b.csv'}:4"


def test_a_table_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also to learn its delimiter: a compressed file is unpacked, a remote one fetched again."""
    (tmp_path / "a.csv").write_text("sep=;\ntext;kind\na;b\n")
    opened = []
    monkeypatch.setattr(delimited, "raw_lines", lambda path: opened.append(path) or raw_lines(path))

    assert read(tmp_path, {"csv": {"files": ["a.csv"]}}, "kind") == [("b",)]

    assert opened == [tmp_path / "a.csv"]


@pytest.mark.parametrize(
    ("header", "other"), [("a,b;c", None), ("a;b|c;d", ";"), ("text", None), ("", None)]
)
def test_the_delimiter_that_separates_most_is_meant(
    tmp_path: Path, header: str, other: str | None
) -> None:
    """Unless the usual one separates, or none does."""
    (tmp_path / "a.csv").write_text(f"{header}\n1\n")

    assert other_delimiter(tmp_path / "a.csv") == other


def test_names_of_a_file_that_has_them_are_refused(tmp_path: Path) -> None:
    """The first row would become data."""
    (tmp_path / "a.csv").write_text("text,kind\na,b\n")

    with pytest.raises(InputError, match="the first row has the names of the fields"):
        read(tmp_path, {"csv": {"files": ["a.csv"], "names": ["text", "kind"]}}, "text")


def test_names_of_fields_are_different() -> None:
    """Of two equal ones, the first would never be read."""
    with pytest.raises(ValidationError, match="the field 'a' is already defined"):
        Split.model_validate({"csv": {"files": ["a.csv"], "names": ["a", "b", "a"]}})


@pytest.mark.parametrize(
    ("ending", "packed"),
    [("gz", gzip.compress), ("bz2", bz2.compress), ("xz", lzma.compress), ("lzma", lzma.compress)],
)
def test_the_name_of_a_compressed_file_tells_the_delimiter(
    tmp_path: Path, ending: str, packed: Callable[[bytes], bytes]
) -> None:
    """`a.tsv.xz` has tabs as `a.tsv` has."""
    (tmp_path / f"a.tsv.{ending}").write_bytes(packed(b"text\tkind\na,b\tc\n"))

    assert read(tmp_path, {"csv": {"files": [f"a.tsv.{ending}"]}}, "text") == [("a,b",)]


def test_the_same_table_is_read_from_every_encoding(tmp_path: Path) -> None:
    """U+2028 and U+0085 are characters, not line ends."""
    rows = [("grün\u2028 \u0085", "a"), ("b\nc", "d")]
    table = 'text,kind\r\ngrün\u2028 \u0085,a\r\n"b\nc",d\r\n'
    objects = [json.dumps({"text": text, "kind": kind}) for text, kind in rows]
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        (tmp_path / "a.csv").write_bytes(table.encode(encoding))
        (tmp_path / "a.jsonl").write_bytes("\r\n\r\n".join(objects).encode(encoding))

        for reader in ("csv", "jsonl"):
            assert read(tmp_path, {reader: {"files": [f"a.{reader}"]}}, "text", "kind") == rows


def test_an_array_with_two_columns_of_a_name_is_refused(tmp_path: Path) -> None:
    """A zip file may have two members of a name, of which one would be read."""
    np.savez(tmp_path / "a.npz", label=np.arange(2))
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("label.npy", archive.read("label.npy"))

    with pytest.raises(InputError, match="2 fields have the name 'label'"):
        read(tmp_path, {"images": {"arrays": ["a.npz"]}}, "label")


def test_lines_of_different_counts_are_refused(tmp_path: Path) -> None:
    """A missing line would shift all following rows."""
    (tmp_path / "a").write_text("1\n2\n3\n")
    (tmp_path / "b").write_text("1\n2\n")

    with pytest.raises(InputError, match="3 text lines but 2 kind lines") as caught:
        read(tmp_path, {"lines": {"text": ["a"], "kind": ["b"]}}, "text", "kind")

    assert "line 3 has no counterpart" in caught.value.help


@pytest.mark.parametrize(
    ("split", "field"),
    [
        ({"lines": {"text": ["../a"]}}, "text"),
        ({"jsonl": {"files": ["../a"]}}, "text"),
        ({"csv": {"files": ["../a"]}}, "text"),
        ({"parquet": {"files": ["../a"]}}, "text"),
        ({"images": {"folders": ["../a"]}}, "image"),
        ({"images": {"arrays": ["../a"]}}, "image"),
        ({"trees": {"files": ["../a"]}}, "tree"),
        ({"audio": {"files": ["../a"]}}, "audio"),
    ],
)
def test_no_path_leaves_the_root(tmp_path: Path, split: dict[str, Any], field: str) -> None:
    """A run file from someone else must not read other files."""
    (tmp_path / "root").mkdir()

    with pytest.raises(InputError, match="outside the data root"):
        read(tmp_path / "root", split, field)


def test_a_sound_file_does_not_leave_the_root(tmp_path: Path) -> None:
    """Paths inside a manifest are checked as those of a run file."""
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "a.csv").write_text("audio\n../a.wav\n")

    with pytest.raises(InputError, match="outside the data root"):
        read(tmp_path / "root", {"audio": {"files": ["a.csv"]}}, "audio")


def test_a_missing_sound_file_is_named_with_its_row(tmp_path: Path) -> None:
    """It is found when the manifest is read, not in the middle of the preparation."""
    (tmp_path / "a.csv").write_text("audio,text\nx.wav,hello\n")

    with pytest.raises(InputError, match=r"no file 'x\.wav'") as caught:
        read(tmp_path, {"audio": {"files": ["a.csv"]}}, "audio")

    assert caught.value.location == f"{tmp_path / 'a.csv'}:2"


def test_images_are_sorted_by_class_and_name(tmp_path: Path) -> None:
    """The order does not depend on the file system."""
    for name in ("dog/2.npy", "cat/b.png", "cat/a.npy", "cat/notes.txt"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()

    found = read(tmp_path, {"images": {"folders": ["images"]}}, "image", "class")

    names = [(path.name, kind) for path, kind in found]
    assert names == [("a.npy", "cat"), ("b.png", "cat"), ("2.npy", "dog")]


def test_an_empty_folder_of_images_is_refused(tmp_path: Path) -> None:
    """A wrong folder must not be an empty data set."""
    (tmp_path / "images").mkdir()

    with pytest.raises(InputError, match="the folder has no images"):
        read(tmp_path, {"images": {"folders": ["images"]}}, "image")


def test_arrays_have_one_row_for_each_record(tmp_path: Path) -> None:
    """Arrays of different numbers of rows are refused; numbers become Python values."""
    np.savez(tmp_path / "a.npz", image=np.zeros((2, 4, 4), np.uint8), label=np.array([3, 5]))
    np.savez(tmp_path / "b.npz", image=np.zeros((2, 4, 4), np.uint8), label=np.array([3]))

    found = read(tmp_path, {"images": {"arrays": ["a.npz"]}}, "label", "image")

    assert [label for label, _ in found] == [3, 5]
    assert found[0][1].shape == (4, 4)
    with pytest.raises(InputError, match="2 rows of 'image' but 1 of 'label'"):
        read(tmp_path, {"images": {"arrays": ["b.npz"]}}, "image", "label")
    (tmp_path / "c.npz").write_bytes(b"PK")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        read(tmp_path, {"images": {"arrays": ["c.npz"]}}, "image")


def test_parquet_rows_are_records(tmp_path: Path) -> None:
    """Only the needed columns are read; a missing one is named."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": ["a", "b"], "kind": [1, 2]})
    parquet.write_table(table, tmp_path / "a.parquet")
    split = {"parquet": {"files": ["a.parquet"]}}

    assert read(tmp_path, split, "kind", "text") == [(1, "a"), (2, "b")]
    with pytest.raises(InputError, match="there is no field 'txt'") as caught:
        read(tmp_path, split, "txt")
    assert caught.value.help == "did you mean 'text'?"
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-9])
    with pytest.raises(InputError, match="not a Parquet file"):
        read(tmp_path, split, "text")


def test_two_columns_of_parquet_with_one_name_are_refused(tmp_path: Path) -> None:
    """A row would have the value of the last one."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    arrays = [pyarrow.array(["a"]), pyarrow.array(["b"])]
    parquet.write_table(pyarrow.Table.from_arrays(arrays, ["text"] * 2), tmp_path / "a.parquet")

    with pytest.raises(InputError, match="2 fields have the name 'text'"):
        read(tmp_path, {"parquet": {"files": ["a.parquet"]}}, "text")


def test_a_damaged_text_of_parquet_is_refused(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 are read, and cannot be a text."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": ["abcdefgh"]})
    path = tmp_path / "a.parquet"
    parquet.write_table(table, path, compression="none", write_statistics=False)
    path.write_bytes(path.read_bytes().replace(b"abcdefgh", b"abc\xffefgh"))

    with pytest.raises(InputError, match="the file is damaged") as caught:
        read(tmp_path, {"parquet": {"files": ["a.parquet"]}}, "text")

    assert caught.value.location == f"{path}, row 1"


@pytest.mark.parametrize(
    ("split", "module", "extra"),
    [
        ({"parquet": {"files": ["a"]}}, "pyarrow", "parquet"),
        ({"hub": {"name": "n", "revision": REVISION, "split": "train"}}, "datasets", "hub"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    split: dict[str, Any],
    module: str,
    extra: str,
) -> None:
    """The help is the command that installs it."""
    (tmp_path / "a").touch()
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(InputError, match=f"needs the package '{module}'") as caught:
        read(tmp_path, split, "text")

    assert caught.value.help == f"pip install 'weft[{extra}]'"


class FakeDataset(list[dict[str, Any]]):
    """The part of a dataset of the `datasets` library that the reader uses."""

    column_names = ("text", "label")

    def select_columns(self, names: list[str]) -> list[dict[str, Any]]:
        """Return the rows with some columns."""
        return [{name: row[name] for name in names} for row in self]


def test_a_hub_dataset_is_read_at_its_revision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library receives name, configuration, split and revision."""
    calls = list[Any]()
    fake: Any = ModuleType("datasets")

    def load_dataset(*args: Any, **named: Any) -> FakeDataset:
        calls.append((args, named))
        return FakeDataset([{"text": "a", "label": 1}])

    fake.load_dataset = load_dataset
    monkeypatch.setitem(sys.modules, "datasets", fake)
    hub = {"name": "x/y", "revision": REVISION, "split": "train", "config": "en"}

    assert read(tmp_path, {"hub": hub}, "text") == [("a",)]
    assert calls == [(("x/y", "en"), {"split": "train", "revision": REVISION})]
    with pytest.raises(InputError, match="there is no field 'lable'"):
        read(tmp_path, {"hub": hub}, "lable")


def test_trees_give_words_symbols_and_the_tree(tmp_path: Path) -> None:
    """A chart column takes the tree itself; sequence models take the two texts."""
    (tmp_path / "a.trees").write_text("(S (NP (D the) (N dog)) (VP (V barks)))\n")

    found = read(tmp_path, {"trees": {"files": ["a.trees"]}}, "source", "target", "tree")

    assert [row[0] for row in found] == ["the dog barks"]
    assert found[0][1] == "(S (NP XX XX )NP (VP XX )VP )S"
    assert [leaf.word for leaf in found[0][2].leaves()] == ["the", "dog", "barks"]


@pytest.mark.parametrize("delimiter", ['"', "\n", "\r"])
def test_a_delimiter_that_cannot_separate_is_refused(delimiter: str) -> None:
    """The csv module would raise an error in the middle of the data."""
    with pytest.raises(ValueError, match="cannot separate fields"):
        Split.model_validate({"csv": {"files": ["a"], "delimiter": delimiter}})
