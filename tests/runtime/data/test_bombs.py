"""Small files that state or unpack to huge contents are one error, before memory is reserved."""

from __future__ import annotations

import gzip
import inspect
import io
import struct
import sys
import types
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.runtime.data import array_files
from weft.runtime.data.array_files import array_of, arrays_of
from weft.runtime.data.columns.column import Column
from weft.runtime.data.columns.registry import COLUMNS, columns_of
from weft.runtime.data.hub import HubTokenizer
from weft.runtime.data.text_files import LARGEST_LINE, raw_lines
from weft.specs.findings import InputError

LITTLE = 64 << 20
"""Bytes of memory that no test here needs."""


@pytest.fixture(autouse=True)
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse arrays of more than `LITTLE` bytes."""
    empty = np.empty

    def bounded(shape: Any, *arguments: Any, **options: Any) -> Any:
        assert np.prod(shape, dtype=np.float64) < LITTLE
        return empty(shape, *arguments, **options)

    monkeypatch.setattr(array_files.np, "empty", bounded)


def npy(header: str, data: bytes = b"", version: int = 1, size: int | None = None) -> bytes:
    """Return an `.npy` file with a header, which may state another size of itself."""
    text = header.encode()
    length = len(text) if size is None else size
    stated = length.to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + stated + text + data


def described(shape: str, kind: str = "'<f8'") -> str:
    """Return the header of an array."""
    return f"{{'descr': {kind}, 'fortran_order': False, 'shape': {shape}, }}"


HOSTILE = {
    "more numbers than it has": npy(described("(1000000000000, 8)"), bytes(64)),
    "a header of four gigabytes": npy(described("(1,)"), version=2, size=2**32 - 1),
    "a header of a megabyte": npy(described("(1,)") + " " * 2**20, version=2),
    "a nested header": npy(described("(" * 200 + ")" * 200)),
    "a nested type": npy(described("(1,)", "[('a', [('b', '<f8')])]"), bytes(8)),
    "objects": npy(described("(1,)", "'|O'"), bytes(8)),
    "a negative number": npy(described("(-1, -8)"), bytes(64)),
    "no bytes for each value": npy(described("(1000000000000,)", "'<U0'")),
    "true as a size": npy(described("(True,)"), bytes(8))[:-4],
    "another format": b"\x93NUMPY\x09\x00",
    "nothing": b"",
}


def test_a_nested_header_is_an_error_also_where_few_frames_are_left() -> None:
    """Python's reader of literals needs a frame for each bracket, and a server has used many."""
    content = npy(described("[" * 190 + "]" * 190))

    def read(frames: int) -> None:
        if frames:
            read(frames - 1)
        else:
            array_of(io.BytesIO(content), len(content))

    with pytest.raises(ValueError, match="nested"):
        read(sys.getrecursionlimit() - len(inspect.stack(0)) - 150)


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_array_is_one_error(content: bytes) -> None:
    """Nothing but `ValueError`, which readers turn into an error that names the file."""
    with pytest.raises(ValueError):  # noqa: PT011 - any message
        array_of(io.BytesIO(content), len(content))


@given(st.binary(max_size=200), st.integers(0, 3))
def test_random_bytes_are_an_array_or_one_error(data: bytes, version: int) -> None:
    """No other exception of numpy or of Python's parser."""
    content = b"\x93NUMPY" + bytes([version, 0]) + data
    try:
        array_of(io.BytesIO(content), len(content))
    except ValueError:
        return


@pytest.mark.parametrize("kind", ["<f8", ">i4", "|u1", "|b1", "<U3", "|S2", "<c16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_what_numpy_has_written(kind: str, order: Any) -> None:
    """All types without objects, in both orders, and values that can be changed."""
    array = np.arange(6).astype(kind).reshape(2, 3).copy(order)
    content = io.BytesIO()
    np.save(content, array)
    content.seek(0)

    read = array_of(content, len(content.getvalue()))

    assert read.dtype == array.dtype
    assert np.array_equal(read, array)
    assert read.flags.writeable


def test_an_archive_that_unpacks_to_gigabytes_is_refused() -> None:
    """Two megabytes of zeros, deflated."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("image.npy", npy(described("(134217728,)"), b""))
        with archive.open("label.npy", "w", force_zip64=True) as entry:
            entry.write(npy(described("(50331648,)")))
            for _ in range(6):
                entry.write(bytes(64 << 20))
    packed = len(content.getvalue())

    with pytest.raises(ValueError, match=r"unpacks to 402,\d+,\d+ bytes, more than 268,435,456"):
        arrays_of(content, packed)


def test_an_archive_with_very_many_arrays_is_refused() -> None:
    """Each would be an entry of a dictionary and a header to read."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for number in range(array_files.MOST_ARRAYS + 1):
            archive.writestr(str(number), b"")

    with pytest.raises(ValueError, match="4,097 arrays"):
        arrays_of(content, len(content.getvalue()))


def images() -> Column:
    """Return a column of images of 32 x 32 pixels."""
    settings = COLUMNS.parse({"type": "image", "size": [3, 32, 32]}, "")
    return columns_of({"x": settings}, {})["x"]


def png(width: int, height: int) -> bytes:
    """Return a black image, whose rows are deflated zeros: a thousandth of its pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        whole = kind + data
        return struct.pack(">I", len(data)) + whole + struct.pack(">I", zlib.crc32(whole))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + (width + 7) // 8)) for _ in range(height))
    head = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head) + chunk(b"IDAT", rows + packer.flush()) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.filterwarnings("error")
def test_an_image_of_very_many_pixels_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """13,000 x 13,000 pixels in 20 kB needed 1.8 GB of memory until they were refused."""
    library = pytest.importorskip("PIL.Image")
    path = tmp_path / "bomb.png"
    path.write_bytes(png(13_000, 13_000))
    monkeypatch.setattr(library.Image, "convert", None)
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", None)
    column = images()

    with pytest.raises(InputError, match=r"size \[3 13000 13000\], not \[3 32 32\]"):
        column.encode(path)


def test_a_file_that_another_program_would_open_is_no_image(tmp_path: Path) -> None:
    """Pillow runs Ghostscript for PostScript, whatever the ending of the file."""
    pytest.importorskip("PIL.Image")
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 32 32\n%%EOF\n")
    column = images()

    with pytest.raises(InputError, match="cannot identify image file"):
        column.encode(path)


class Panic(BaseException):
    """What the bindings of Rust raise, which is not an `Exception`."""


Panic.__module__ = "pyo3_runtime"


class Panicking:
    """A tokenizer of the library, one of whose regular expressions needs too many steps."""

    def __init__(self, when: str) -> None:
        """Panic at a call of a method."""
        self.when = when

    def from_str(self, text: str) -> Panicking:
        """Load a file."""
        del text
        return self._at("from_str", self)

    def no_padding(self) -> None:
        """Set an option."""

    no_truncation = no_padding

    def get_vocab(self) -> dict[str, int]:
        """Return the vocabulary."""
        return {"a": 0}

    def encode(self, text: str) -> Any:
        """Encode a text."""
        return self._at("encode", types.SimpleNamespace(ids=[len(text)]))

    def encode_batch(self, texts: list[str], **options: Any) -> Any:
        """Encode texts."""
        del options
        return self._at("encode_batch", [self.encode(text) for text in texts])

    def _at(self, name: str, value: Any) -> Any:
        if name == self.when:
            raise Panic("Onig: Regex search error: retry-limit-in-match over")
        return value


@pytest.mark.parametrize("when", ["from_str", "encode", "encode_batch"])
def test_a_regular_expression_that_panics_is_one_error(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A panic in Rust is no `Exception`, and would end a server or a training."""
    module = types.SimpleNamespace(Tokenizer=Panicking(when))
    monkeypatch.setitem(sys.modules, "tokenizers", module)  # type: ignore[arg-type]

    def use() -> None:
        tokenizer = HubTokenizer(b"{}", location="tokenizer.json")
        tokenizer.prompt("aaaa")
        tokenizer.encode_many(["aaaa"])

    with pytest.raises(InputError, match="retry-limit-in-match over") as caught:
        use()

    assert caught.value.location == "tokenizer.json"


def test_a_compressed_line_that_fills_the_memory_is_refused(tmp_path: Path) -> None:
    """A file of 400 kB unpacked to one line of 400 MB, on which a tokenizer ended the process."""
    path = tmp_path / "lines.gz"
    path.write_bytes(gzip.compress(b"short\n" + b"a" * (LARGEST_LINE + 1)))

    lines = raw_lines(path)

    assert next(lines) == b"short\n"
    with pytest.raises(InputError, match="longer than 16,777,216 bytes") as caught:
        next(lines)
    assert caught.value.location == f"{path}:2"
