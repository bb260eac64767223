"""Framing: where each request of a connection begins and ends, read strictly.

A proxy and a server that find different ends for a request can be used to hide a second request
in the first ("request smuggling").  RFC 9112 allows servers to be lenient in several ways; here,
whatever two implementations may read differently is an error:

    line ends other than CR LF; control characters; folded headers; white space before a colon
    Content-Length more than once, with a list or a sign, or together with Transfer-Encoding
    Transfer-Encoding other than `chunked`, or in HTTP/1.0; chunk extensions; trailers
    a missing or repeated Host; versions other than HTTP/1.0 and HTTP/1.1

Sources: RFC 9112, sections 2.2, 5 and 6; Linhart et al. 2005, HTTP Request Smuggling.
"""

from __future__ import annotations

import re
from collections import Counter

MOST_HEAD = 16 * 1024
"""Maximum bytes of a request line with its headers."""
MOST_HEADERS = 100
"""Maximum number of headers."""
_END = b"\r\n\r\n"
_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_REQUEST = re.compile(_TOKEN + rb" [\x21-\x7e]+ HTTP/1\.([01])")
_HEADER = re.compile(rb"(" + _TOKEN + rb"):(.*)")
_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})\r\n")
_LONGEST_CHUNK_LINE = 10


class FramingError(Exception):
    """Bytes that are not a strictly framed request."""

    def __init__(self, problem: str, status: int = 400) -> None:
        """Store what is wrong, and the status of the response."""
        super().__init__(problem)
        self.problem, self.status = problem, status


class Framing:
    """Follows the bytes of one connection."""

    def __init__(self, most: int | None = None) -> None:
        """Start before the first request.

        Args:
            most: maximum bytes of a body; None for any number.
        """
        self._most = most
        self.error: FramingError | None = None
        """What is wrong with the bytes after those that were accepted."""
        self._held = bytearray()
        self._left = 0
        self._chunked = self._in_chunk = self._last = False

    @property
    def begun(self) -> bool:
        """Whether a head has begun and is not complete."""
        return bool(self._held) and not self._chunked

    @property
    def inside(self) -> bool:
        """Whether the body of a request is not complete."""
        return bool(self._left) or self._chunked

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that are accepted: complete heads and parts of bodies.

        An incomplete head is held back until its end arrives.  After an error nothing is accepted.
        """
        accepted, position = bytearray(), 0
        try:
            while position < len(data) and self.error is None:
                if self._left:
                    part = data[position : position + self._left]
                    self._left -= len(part)
                    position += len(part)
                    accepted += part
                elif self._chunked:
                    position = self._feed_chunk_line(data, position, accepted)
                else:
                    position = self._feed_head(data, position, accepted)
        except FramingError as error:
            self.error = error
        return bytes(accepted)

    def _feed_head(self, data: bytes, position: int, accepted: bytearray) -> int:
        """Take bytes of a head; return the place after them."""
        before = len(self._held)
        self._held += data[position : position + MOST_HEAD + 1 - before]
        end = self._held.find(_END, max(0, before - len(_END)))
        size = end + len(_END) if end >= 0 else len(self._held)
        self._check_characters(max(0, before - 1), size)
        if end < 0 or size > MOST_HEAD:
            if len(self._held) > MOST_HEAD:
                raise FramingError(f"the head has more than {MOST_HEAD:,} bytes", 431)
            return len(data)
        head = bytes(self._held[:size])
        self._held.clear()
        self._left, self._chunked = framing_of(head)
        if self._most is not None and self._left > self._most:
            self._left = 0
            raise FramingError(f"the body has more than {self._most:,} bytes", 413)
        accepted += head
        return position + size - before

    def _check_characters(self, start: int, end: int) -> None:
        # A CR at the end may be followed by an LF in the next bytes.
        end -= self._held[end - 1 : end] == b"\r"
        match = _FORBIDDEN.search(self._held, start, end)
        if match is None:
            return
        if match[0] in (b"\r", b"\n"):
            raise FramingError("lines must end with CR LF")
        raise FramingError("the head contains a control character")

    def _feed_chunk_line(self, data: bytes, position: int, accepted: bytearray) -> int:
        """Take the line before or after the data of a chunk; return the place after it."""
        before = len(self._held)
        self._held += data[position : position + _LONGEST_CHUNK_LINE - before]
        end = self._held.find(b"\n") + 1
        if not end:
            if len(self._held) == _LONGEST_CHUNK_LINE:
                raise FramingError("a chunk does not begin with its size alone")
            return len(data)
        line = bytes(self._held[:end])
        self._held.clear()
        accepted += line
        if self._in_chunk or self._last:
            if line != b"\r\n":
                problem = "trailers are not supported" if self._last else "a chunk has a wrong size"
                raise FramingError(problem)
            self._chunked, self._in_chunk, self._last = not self._last, False, False
        else:
            matched = _CHUNK.fullmatch(line)
            if matched is None:
                raise FramingError("a chunk does not begin with its size alone")
            self._left = int(matched[1], 16)
            self._in_chunk, self._last = self._left > 0, self._left == 0
        return position + end - before


def framing_of(head: bytes) -> tuple[int, bool]:
    r"""Return the length of the body after a head, and whether the body is chunked.

    Raises:
        FramingError: the head is malformed or ambiguous.

    >>> framing_of(b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\n\r\n")
    (3, False)
    """
    first, *lines = head[: -len(_END)].split(b"\r\n")
    request = _REQUEST.fullmatch(first)
    if request is None:
        raise FramingError("the request line is not METHOD TARGET HTTP/1.1")
    if len(lines) > MOST_HEADERS:
        raise FramingError(f"there are more than {MOST_HEADERS} headers", 431)
    values: dict[bytes, bytes] = {}
    counts = Counter[bytes]()
    for line in lines:
        header = _HEADER.fullmatch(line)
        if header is None:
            folded = line[:1] in (b" ", b"\t")
            raise FramingError("a header is folded" if folded else "a header is malformed")
        name = header[1].lower()
        values[name] = header[2].strip(b" \t")
        counts[name] += 1
    for name in (b"host", b"content-length", b"transfer-encoding"):
        if counts[name] > 1:
            raise FramingError(f"the header {name.decode()} is repeated")
    if request[1] == b"1" and b"host" not in values:
        raise FramingError("the header host is missing")
    length, coding = values.get(b"content-length"), values.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise FramingError("content-length and transfer-encoding exclude each other")
        if coding.lower() != b"chunked" or request[1] == b"0":
            raise FramingError("the only transfer-encoding is chunked, in HTTP/1.1")
        return 0, True
    if length is not None and not _LENGTH.fullmatch(length):
        raise FramingError("content-length is not a number of bytes")
    return int(length or 0), False
