"""Text files: the definition of a line, and errors for invalid files."""

from __future__ import annotations

import bz2
import gzip
import lzma
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from weft.runtime.data.readers.split import Split, reader_of
from weft.runtime.data.text_files import count_lines, read_lines, resolve
from weft.specs.findings import InputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ZSTD_NAME = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
ODD = "a\tb\u0085c\u2028d\x0be\x0cf\u00a0g\u202fh\rk \u00fc\U0001f600"
"""Characters that `str.splitlines` or `str.strip` would split at or remove."""


def zstd() -> Any:
    """Return the library of zstd, of which Pythons before 3.14 have a counterpart."""
    return pytest.importorskip(ZSTD_NAME)


lines = st.lists(
    st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"])).filter(
        lambda line: not line.endswith("\r") and not line.startswith("\ufeff")
    )
)
PACKED = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lambda content: lzma.compress(content, preset=0),
    "lzma": lambda content: lzma.compress(content, format=lzma.FORMAT_ALONE),
    "zstd": lambda content: zstd().compress(content),
}
"""Compressions by name."""
ENCODINGS = {
    "utf-8-sig": "",
    "utf-16-le": "\ufeff",
    "utf-16-be": "\ufeff",
    "utf-32-le": "\ufeff",
    "utf-32-be": "\ufeff",
}
"""What a text begins with so that its encoding is certain."""


def write(path: Path, content: bytes) -> Path:
    """Write a file and return its path."""
    path.write_bytes(content)
    return path


def read_pairs(root: Path, source: list[str], target: list[str]) -> list[tuple[str, str]]:
    """Return the lines of aligned files."""
    split = Split.model_validate({"lines": {"source": source, "target": target}})
    reader = reader_of(split, str(root))
    parts = [reader.records(part, ("source", "target")) for part in range(reader.parts())]
    return [(one.values["source"], one.values["target"]) for part in parts for one in part]


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    """Tabs, U+0085, U+2028, form feeds and single carriage returns are part of the line."""
    path = write(tmp_path / "a", f"{ODD}\nnext\n".encode())

    assert list(read_lines(path)) == [ODD, "next"]


def test_a_rest_after_the_last_line_feed_is_a_line(tmp_path: Path) -> None:
    """Text after the last line feed is a line; an empty file has no lines."""
    assert list(read_lines(write(tmp_path / "a", b"one\n\ntwo"))) == ["one", "", "two"]
    assert list(read_lines(write(tmp_path / "b", b""))) == []
    assert list(read_lines(write(tmp_path / "c", b"\n"))) == [""]


def test_windows_endings_and_byte_order_mark_are_taken_off(tmp_path: Path) -> None:
    """One carriage return before a line feed belongs to the ending; a second one is text."""
    path = write(tmp_path / "a", b"\xef\xbb\xbfone\r\ntwo\r\r\n\xef\xbb\xbfthree\r")

    assert list(read_lines(path)) == ["one", "two\r", "\ufeffthree\r"]


@settings(max_examples=25)
@given(lines)
def test_written_values_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, text: list[str]
) -> None:
    """Compressions are detected by content: a name may be wrong."""
    folder = tmp_path_factory.mktemp("lines")
    content = "".join(f"{line}\n" for line in text).encode()

    assert list(read_lines(write(folder / "a.gz", content))) == text
    for name, packed in PACKED.items():
        assert list(read_lines(write(folder / name, packed(content)))) == text


@settings(max_examples=40)
@given(lines, st.sampled_from(sorted(ENCODINGS)))
def test_a_byte_order_mark_makes_the_encoding_certain(
    tmp_path_factory: pytest.TempPathFactory, text: list[str], encoding: str
) -> None:
    """Windows writes UTF-16 with a mark; such a file has the same lines as in UTF-8."""
    content = ENCODINGS[encoding] + "".join(f"{line}\r\n" for line in text)
    path = write(tmp_path_factory.mktemp("lines") / "a", content.encode(encoding))

    assert list(read_lines(path)) == text
    assert count_lines(path) == len(text)


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
def test_a_compressed_file_may_be_in_utf16(
    tmp_path: Path, packed: Callable[[bytes], bytes]
) -> None:
    """The mark is looked for in the content."""
    path = write(tmp_path / "a", packed("grün\nblau".encode("utf-16")))

    assert list(read_lines(path)) == ["grün", "blau"]


@pytest.mark.parametrize("text", ["the red dog", "über Öl", "привет мир", "你好 世界"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_an_encoding_without_a_mark_is_named(tmp_path: Path, text: str, encoding: str) -> None:
    """Converted from Latin-1 it would be letters with zeros between them."""
    path = write(tmp_path / "a.en", f"{text}\r\n{text}\r\n".encode(encoding))

    for read in (count_lines, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match="byte 0x00 at offset") as caught:
            read(path)
        assert caught.value.location == f"{path}:1"
        assert caught.value.help == (
            f"the file seems to be {encoding.upper()} without a byte order mark; convert it to"
            f" UTF-8: iconv -f {encoding} -t utf-8 a.en"
        )


@pytest.mark.parametrize("content", [b"ab\n\0cd\n", b"ab\na\0cd\n", b"ab\n\0\0\0\0"])
def test_a_zero_byte_in_a_text_is_refused(tmp_path: Path, content: bytes) -> None:
    """A crash of a machine leaves zeros in files; they are no words."""
    path = write(tmp_path / "a", content)

    with pytest.raises(InputError, match="byte 0x00 at offset") as caught:
        list(read_lines(path))

    assert caught.value.location == f"{path}:2"
    assert "damaged" in str(caught.value.help)


def test_lines_that_end_with_carriage_returns_alone_are_refused(tmp_path: Path) -> None:
    """The file would be one line."""
    path = write(tmp_path / "a.csv", b"one\rtwo\rthree\r")

    for read in (count_lines, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match="the 3 lines of the file end with carriage") as caught:
            read(path)
        assert "tr '\\r' '\\n' < a.csv" in str(caught.value.help)


@pytest.mark.parametrize(
    ("start", "what"),
    [
        (b"\x04\x22\x4d\x18\x64", "lz4 -d a"),
        (b"PK\x03\x04\x14", "unzip a"),
        (b"a" * 257 + b"ustar  ", "tar -xf a"),
        (b"PAR1\x15\x04", "the reader 'parquet'"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_a_file_that_is_not_lines_is_named(tmp_path: Path, start: bytes, what: str) -> None:
    """What cannot be read says what it is and what to do, also inside gzip."""
    for content in (start, gzip.compress(start)):
        with pytest.raises(InputError, match="the file is ") as caught:
            list(read_lines(write(tmp_path / "a", content)))
        assert what in str(caught.value.help)


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_compressed_files_can_be_joined(tmp_path: Path, name: str) -> None:
    """`cat a.gz b.gz > c.gz` is a valid file, also with zeros as padding."""
    packed = PACKED[name]
    path = write(tmp_path / "a", packed(b"one\ntw") + bytes(8) + packed(b"o\nthree\n"))

    assert list(read_lines(path)) == ["one", "two", "three"]


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED)
@pytest.mark.parametrize("tail", [b"plain text\n", None])
def test_a_compressed_file_has_nothing_else_after_it(
    tmp_path: Path, packed: Callable[[bytes], bytes], tail: bytes | None
) -> None:
    """Rows that were appended without compression must not be lost; nor those that were cut off."""
    whole = packed(b"one\ntwo\n")
    path = write(tmp_path / "a", whole + tail if tail else whole[:-5])

    for read in (count_lines, lambda path: list(read_lines(path))):
        with pytest.raises(InputError, match="damaged or cut off"):
            read(path)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_a_compressed_file_of_a_few_bytes_is_cut_off(tmp_path: Path, size: int) -> None:
    """They are not text, if the name says so; `BZh` is a word in a file of another name."""
    content = bz2.compress(b"one\n")[:size]

    with pytest.raises(InputError, match="cut off after its first bytes"):
        list(read_lines(write(tmp_path / "a.bz2", content)))
    assert list(read_lines(write(tmp_path / "a", content))) == [content.decode()]


def test_a_damaged_file_in_utf16_is_an_error_at_its_line(tmp_path: Path) -> None:
    """The lines before the mistake are read."""
    path = write(tmp_path / "a", "one\ntwo\n".encode("utf-16") + b"\x00\xd8x\0\n\0")
    found = read_lines(path)

    assert [next(found), next(found)] == ["one", "two"]
    with pytest.raises(InputError, match="UTF-16-LE by its byte order mark, but is damaged") as no:
        next(found)
    assert no.value.location == f"{path}:3"


def test_bytes_that_are_not_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    """The message is checked in full: Latin-1 files are the most common error in corpora."""
    path = write(tmp_path / "a.de", b"gut\ngr\xfcn\n")

    with pytest.raises(InputError) as caught:
        list(read_lines(path))

    assert str(caught.value) == (
        "byte 0xfc at offset 2 of the line is not UTF-8\n"
        f"  --> {path}:2\n"
        "  help: convert the file to UTF-8, such as: iconv -f latin1 -t utf-8 a.de"
    )


def test_a_missing_file_suggests_the_nearest(tmp_path: Path) -> None:
    """A misspelled name gets a suggestion."""
    write(tmp_path / "train.de.gz", b"")

    with pytest.raises(InputError, match=r"no file 'train\.de'") as caught:
        list(read_lines(tmp_path / "train.de"))

    assert caught.value.help == "did you mean 'train.de.gz'?"
    assert caught.value.location == str(tmp_path / "train.de")


def test_folders_are_not_files(tmp_path: Path) -> None:
    """A folder in place of a file and a missing folder have messages of their own."""
    with pytest.raises(InputError, match="a folder, not a file"):
        list(read_lines(tmp_path))
    with pytest.raises(InputError, match="no folder"):
        list(read_lines(tmp_path / "none" / "a"))


@pytest.mark.parametrize("lost", [1, 8, 15])
def test_a_cut_gzip_file_is_an_error_not_an_end(tmp_path: Path, lost: int) -> None:
    """An incomplete download must not look like a shorter corpus."""
    packed = gzip.compress(b"".join(b"line %d\n" % n for n in range(1000)))
    path = write(tmp_path / "a.gz", packed[:-lost])

    with pytest.raises(InputError, match="damaged or cut off") as caught:
        list(read_lines(path))

    assert caught.value.location.startswith(f"{path}:")


def test_a_damaged_gzip_file_is_an_error(tmp_path: Path) -> None:
    """A wrong checksum, and bytes after the magic that are not gzip, raise errors."""
    packed = bytearray(gzip.compress(b"hello\n" * 100))
    packed[-6] ^= 1

    with pytest.raises(InputError, match="damaged"):
        list(read_lines(write(tmp_path / "a", bytes(packed))))
    with pytest.raises(InputError, match="damaged"):
        list(read_lines(write(tmp_path / "b", b"\x1f\x8bxxxxxxxxxxx")))


def test_a_file_of_pzstd_is_read(tmp_path: Path) -> None:
    """It begins with a frame that is skipped; RFC 8878, section 3.1.2."""
    skipped = b"\x50\x2a\x4d\x18" + (4).to_bytes(4, "little") + b"size"
    path = write(tmp_path / "a", skipped + zstd().compress(b"one\ntwo\n"))

    assert list(read_lines(path)) == ["one", "two"]


def test_a_zstd_file_that_needs_too_much_memory_is_refused(tmp_path: Path) -> None:
    """Its window of 2^31 bytes would have to be reserved before the first line is known."""
    library = zstd()
    writer = library.ZstdCompressor(options={library.CompressionParameter.window_log: 31})
    path = write(tmp_path / "a", writer.compress(b"one\n") + writer.flush())

    with pytest.raises(InputError, match="too much memory"):
        list(read_lines(path))


def test_without_the_library_of_zstd_a_file_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program zstd is a second way out."""
    path = write(tmp_path / "a.zst", zstd().compress(b"one\n"))
    monkeypatch.setitem(sys.modules, ZSTD_NAME, None)

    with pytest.raises(InputError, match="which needs the package") as caught:
        list(read_lines(path))

    assert caught.value.location == str(path)
    assert caught.value.help == "pip install 'weft[zstd]'; or decompress it: zstd -d a.zst"


def test_a_path_stays_below_the_root(tmp_path: Path) -> None:
    """Dots, absolute paths and links cannot leave the root; dots inside it are allowed."""
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    outside = write(tmp_path / "secret", b"")
    (root / "link").symlink_to(outside)
    beside = tmp_path / "root2"
    beside.mkdir()

    for name in ("../secret", str(outside), "link", "../root2", "sub/../../secret"):
        with pytest.raises(InputError, match="is outside the data root"):
            resolve(root, name)
    with pytest.raises(InputError, match="cannot be resolved"):
        resolve(root, "a\0b")
    assert resolve(root, "sub/../a") == root.resolve() / "a"


def test_a_root_may_itself_be_a_link(tmp_path: Path) -> None:
    """Links are resolved on both sides."""
    (tmp_path / "real").mkdir()
    (tmp_path / "root").symlink_to(tmp_path / "real")

    assert resolve(tmp_path / "root", "a") == (tmp_path / "real" / "a").resolve()


def test_files_are_read_pair_by_pair(tmp_path: Path) -> None:
    """The second source continues with the second target."""
    for name, content in {"a": b"1\n2\n", "b": b"3\n", "x": b"one\ntwo\n", "y": b"three"}.items():
        write(tmp_path / name, content)

    pairs = read_pairs(tmp_path, ["a", "b"], ["x", "y"])

    assert pairs == [("1", "one"), ("2", "two"), ("3", "three")]


@pytest.mark.parametrize(
    ("source", "target", "problem"),
    [
        (b"1\n2\n3\n4\n5\n", b"1\n2\n", "5 source lines but 2 target lines"),
        (b"1\n2\n", b"1\n2\n3\n4\n5\n", "2 source lines but 5 target lines"),
        (b"", b"\n", "0 source lines but 1 target lines"),
    ],
)
def test_sides_of_unequal_length_are_refused_with_both_counts(
    tmp_path: Path, source: bytes, target: bytes, problem: str
) -> None:
    """The longer file is counted to its end, so both counts are exact."""
    write(tmp_path / "a", source)
    write(tmp_path / "b", target)

    with pytest.raises(InputError, match=problem) as caught:
        read_pairs(tmp_path, ["a"], ["b"])

    shorter = min(source.count(b"\n"), target.count(b"\n"))
    assert f"line {shorter + 1} has no counterpart" in caught.value.help


def test_lengths_are_compared_file_by_file(tmp_path: Path) -> None:
    """Equal totals must not hide files of different lengths."""
    for name, content in {"a": b"1\n2\n", "b": b"3\n", "x": b"1\n", "y": b"2\n3\n"}.items():
        write(tmp_path / name, content)

    with pytest.raises(InputError, match="2 source lines but 1 target lines"):
        read_pairs(tmp_path, ["a", "b"], ["x", "y"])


@given(st.text(alphabet="a\n\x85", max_size=12).map(lambda text: text.replace("\x85", "\x85\r\n")))
def test_lines_are_counted_as_they_are_read(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    """With and without a line feed at the end, plain and gzip."""
    path = tmp_path_factory.mktemp("text") / "text"
    for raw in (text.encode(), gzip.compress(text.encode())):
        path.write_bytes(raw)
        assert count_lines(path) == len(list(read_lines(path)))


def test_counting_a_cut_file_is_an_error_too(tmp_path: Path) -> None:
    """The place is the same as when reading the file."""
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n")[:-4])

    with pytest.raises(InputError, match="damaged or cut off"):
        count_lines(path)
