"""Files as streams of UTF-8: decompressed, and converted if a byte order mark says from what.

A file is recognized by its first bytes, not by its name.  What the standard library of the newest
Python can decompress is read; other formats are refused with the program that unpacks them.
"""

from __future__ import annotations

import bz2
import codecs
import importlib
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

from ...specs.findings import InputError

if TYPE_CHECKING:
    from pathlib import Path

BLOCK = 1 << 16
"""Bytes that are decompressed or converted at once."""
WINDOW = 29
MEMORY = 1 << WINDOW
"""Maximum bytes of memory for a dictionary of xz or zstd; `xz -9` needs 2^26, `zstd -19` 2^23."""


class DamagedStreamError(Exception):
    """A file that is cut off, or has bytes that are wrong for its compression or encoding."""

    def __init__(self, problem: str, help_: str) -> None:
        """Store what is wrong, and what to do."""
        super().__init__(problem, help_)
        self.problem, self.help = problem, help_


class _UnreadableError(Exception):
    """The library that decompresses a file is not installed."""


class Compression(NamedTuple):
    """A compression that can be read."""

    program: str
    """The program that tests a file with `-t`."""
    decompressor: Callable[[], _Decompressor]
    """Returns what decompresses a stream."""


class _Decompressor(Protocol):
    """What the classes of `bz2`, `lzma` and `zstd` have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Source(io.RawIOBase):
    """A stream that is computed from another one, block by block."""

    def __init__(self) -> None:
        super().__init__()
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def more(self) -> bytes:
        """Return the next bytes; none at the end."""
        raise NotImplementedError

    def readinto(self, buffer: Any, /) -> int:
        """Read into a buffer; return the number of bytes."""
        if not self._ready:
            self._ready = memoryview(self.more())
        target = memoryview(buffer).cast("B")
        count = min(len(target), len(self._ready))
        target[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count


class _Inflate:
    """Decompressor of one stream of gzip."""

    needs_input = True

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        """Whether the stream has ended."""
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        """Bytes after the stream."""
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:  # noqa: ARG002
        """Return the content of all of the data: at most a thousand times its size."""
        return self._stream.decompress(data)


class _Zstandard:
    """Decompressor of one frame of zstd.

    The library is that of Python 3.14, or its counterpart for older versions.
    """

    def __init__(self) -> None:
        name = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        try:
            library: Any = importlib.import_module(name)
        except ImportError as error:
            raise _UnreadableError from error
        options = {library.DecompressionParameter.window_log_max: WINDOW}
        self._stream, self._error = library.ZstdDecompressor(options=options), library.ZstdError

    @property
    def eof(self) -> bool:
        """Whether the frame has ended."""
        return bool(self._stream.eof)

    @property
    def needs_input(self) -> bool:
        """Whether there is nothing more to return without more data."""
        return bool(self._stream.needs_input)

    @property
    def unused_data(self) -> bytes:
        """Bytes after the frame."""
        return bytes(self._stream.unused_data)

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        """Return content, at most `max_length` bytes.

        Raises:
            EOFError: the data is damaged, or needs too much memory.
        """
        try:
            return bytes(self._stream.decompress(data, max_length))
        except self._error as error:
            raise EOFError(str(error)) from error


class _Decompressed(_Source):
    """A compressed file, of one stream or of several, with zeros as padding.

    For bz2 and xz, the files of the standard library ignore what follows the last stream; here it
    is an error.
    """

    def __init__(self, file: IO[bytes], decompressor: Callable[[], _Decompressor]) -> None:
        super().__init__()
        self._file, self._new, self._now = file, decompressor, decompressor()
        self._input = b""

    def more(self) -> bytes:
        """Return the next bytes.

        Raises:
            EOFError: the file is cut off, or is damaged.
        """
        while True:
            if self._now.eof:
                following = self._now.unused_data.lstrip(b"\0")
                while not following:
                    padding = self._file.read(BLOCK)
                    if not padding:
                        return b""
                    following = padding.lstrip(b"\0")
                self._now, self._input = self._new(), following
            elif self._now.needs_input:
                self._input = self._file.read(BLOCK)
                if not self._input:
                    msg = "it ends before the end of its data"
                    raise EOFError(msg)
            try:
                chunk = self._now.decompress(self._input, BLOCK)
            except OSError as error:  # of bz2
                raise EOFError(str(error)) from error
            self._input = b""
            if chunk:
                return chunk


class _Converted(_Source):
    """A file of another encoding as UTF-8."""

    def __init__(self, file: io.BufferedReader, encoding: str) -> None:
        super().__init__()
        self._file, self._encoding = file, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._error: UnicodeDecodeError | None = None

    def more(self) -> bytes:
        """Return the next bytes.

        Raises:
            UnicodeDecodeError: the file is cut off, or has bytes that are not a character; what
                precedes them was returned before.
        """
        text = ""
        while not text:
            if self._error is not None:
                raise self._error
            raw = self._file.read1(BLOCK)
            try:
                text = self._decoder.decode(raw, final=not raw)
            except UnicodeDecodeError as error:
                self._error = error
                text = error.object[: error.start].decode(self._encoding)
            if not raw and self._error is None:
                break
        return text.encode()


def _xz() -> _Decompressor:
    return lzma.LZMADecompressor(memlimit=MEMORY)


COMPRESSIONS = {
    b"\x1f\x8b": Compression("gzip", _Inflate),
    b"\xfd7zXZ\x00": Compression("xz", _xz),
    b"\x5d\x00\x00": Compression("xz", _xz),  # of the older program lzma
    b"\x28\xb5\x2f\xfd": Compression("zstd", _Zstandard),
    b"\x50\x2a\x4d\x18": Compression("zstd", _Zstandard),  # of the program pzstd
    **{
        b"BZh%d%b" % (level, block): Compression("bzip2", bz2.BZ2Decompressor)
        for level in range(1, 10)
        for block in (b"1AY&SY", b"\x17rE8P\x90")
    },
}
"""Compression by the first bytes of a file."""
ENDINGS = (".gz", ".bz2", ".xz", ".lzma", ".zst")
"""Endings of the names of compressed files."""
REFUSED = {
    b"\x04\x22\x4d\x18": ("is compressed by lz4", "decompress it: lz4 -d {}"),
    b"\x1f\x9d": ("is compressed by compress", "decompress it: uncompress {}"),
    b"LZIP\x01": ("is compressed by lzip", "decompress it: lzip -d {}"),
    b"PK\x03\x04": (
        "is a zip archive or a document of an office program",
        "unpack it: unzip {}; save a table as CSV",
    ),
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": (
        "is a document of an office program",
        "save a table as CSV",
    ),
    b"7z\xbc\xaf\x27\x1c": ("is an archive of 7-Zip", "unpack it: 7z x {}"),
    b"Rar!\x1a\x07": ("is an archive of RAR", "unpack it: unrar x {}"),
    b"PAR1\x15": ("is a Parquet file", "use the reader 'parquet'"),
    b"%PDF-": ("is a PDF", "extract its text: pdftotext {}"),
    b"version https://git-lfs.github.com/spec/": (
        "is a pointer of Git LFS, not the file itself",
        "fetch it: git lfs pull",
    ),
}
"""What a file is and what to do, by its first bytes, if its lines cannot be read."""
TAR = slice(257, 262), b"ustar"
"""Place and content of the bytes that a tar archive has."""
MARKS = {
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
    codecs.BOM_UTF8: "utf-8",
}
"""Encoding by byte order mark."""
_HEAD = 512


@contextmanager
def text_of_file(file: io.BufferedReader, path: str | Path) -> Iterator[io.BufferedReader]:
    """Yield the content of an open file in UTF-8, without a byte order mark.

    Args:
        file: the file or pipe, at its beginning.
        path: its name, for messages.

    Raises:
        InputError: it is an archive, or compressed in a way that is not read, or by zstd whose
            library is not installed.
        OSError: it cannot be read.
        DamagedStreamError: it is compressed or in UTF-16 or UTF-32, and damaged or cut off.
    """
    head = file.peek(_HEAD)
    _refuse(head, path)
    packed = _first(COMPRESSIONS, head)
    if str(path).endswith(ENDINGS) and any(
        head and start != head and start.startswith(head) for start in COMPRESSIONS
    ):
        help_ = "download or copy the file again"
        raise DamagedStreamError("the compressed file is cut off after its first bytes", help_)
    try:
        if packed is not None:
            file = _buffered(_Decompressed(file, packed.decompressor))
            head = file.peek(_HEAD)
            _refuse(head, path)
        encoding = _first(MARKS, head)
        if encoding is not None:
            file.read(len("\ufeff".encode(encoding)))
        if encoding not in (None, "utf-8"):
            file = _buffered(_Converted(file, encoding))
        yield file
    except _UnreadableError as error:
        raise InputError(
            "the file is compressed by zstd, which needs the package 'backports.zstd'",
            location=str(path),
            help=f"pip install 'weft[zstd]'; or decompress it: zstd -d {_last(path)}",
        ) from error
    except (EOFError, lzma.LZMAError, zlib.error) as error:
        program = packed.program if packed else ""
        help_ = f"download or copy the file again; '{program} -t {_last(path)}' tests it"
        raise DamagedStreamError(f"{program} file is damaged or cut off: {error}", help_) from error
    except UnicodeDecodeError as error:
        problem = f"the file is {error.encoding.upper()} by its byte order mark, but is damaged or"
        help_ = "copy the file again, or save it as UTF-8"
        raise DamagedStreamError(f"{problem} cut off: {error.reason}", help_) from error


def _buffered(file: Any) -> io.BufferedReader:
    return io.BufferedReader(file, BLOCK)


def _first(by_magic: dict[bytes, Any], head: bytes) -> Any:
    """Return what is known of a file that begins with some bytes."""
    return next((value for start, value in by_magic.items() if head.startswith(start)), None)


def _refuse(head: bytes, path: str | Path) -> None:
    """Check that a file is none of those that are not read.

    Raises:
        InputError: it is one.
    """
    refusal = _first(REFUSED, head)
    offset, magic = TAR
    if head[offset] == magic:
        refusal = "is a tar archive", "unpack it: tar -xf {}"
    if refusal is not None:
        problem, help_ = refusal
        raise InputError(
            f"the file {problem}", location=str(path), help=help_.replace("{}", _last(path))
        )


def _last(path: str | Path) -> str:
    return str(path).rpartition("/")[2] or str(path)


def unmarked_encoding(raw: bytes, number: int) -> str | None:
    """Return UTF-16 or UTF-32 if a line is in that encoding, of a file without byte order mark.

    Args:
        raw: bytes up to the next byte 0x0a.
        number: number of the line, from 1.
    """
    if 0 not in raw:
        return None
    others = raw.translate(None, b"\0\t\r\n")
    if raw.count(0) * 3 < len(raw) and others.isascii() and others.decode().isprintable():
        return None  # a text with a few wrong bytes
    for encoding in ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be"):
        width, little = (4 if "32" in encoding else 2), encoding.endswith("le")
        ended = raw.endswith(b"\n")
        line = raw.removesuffix(b"\n")
        high = bytes(width - 1)
        if little and number > 1:  # the rest of the line feed before
            if not line.startswith(high):
                continue
            line = line[width - 1 :]
        elif not little and ended:
            if not line.endswith(high):
                continue
            line = line[: 1 - width]
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError:
            continue
        if text and all(letter.isprintable() or letter in "\t\r" for letter in text):
            return encoding.upper()
    return None
