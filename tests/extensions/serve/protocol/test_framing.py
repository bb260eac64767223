"""Framing: what two servers may read differently is refused, wherever the bytes are divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from weft.extensions.serve.protocol.framing import MOST_HEAD, MOST_HEADERS, Framing, framing_of

GET = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
POST = b"POST /translate HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /translate HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\nhello\r\n00A\r\n0123456789\r\n0\r\n\r\n"
)


def head(*lines: bytes, first: bytes = b"POST / HTTP/1.1", host: bytes = b"Host: here") -> bytes:
    """Return a head with some headers."""
    return b"\r\n".join([first, *filter(None, [host]), *lines, b"", b""])


def chunks(body: bytes) -> bytes:
    """Return a request with a chunked body."""
    return head(b"Transfer-Encoding: chunked") + body


WRONG: dict[str, bytes] = {
    "both lengths": head(b"Content-Length: 5", b"Transfer-Encoding: chunked"),
    "both lengths, turned": head(b"Transfer-Encoding: chunked", b"Content-Length: 5"),
    "two lengths": head(b"Content-Length: 5", b"Content-Length: 6"),
    "the same length twice": head(b"Content-Length: 5", b"content-length: 5"),
    "a list of lengths": head(b"Content-Length: 5, 5"),
    "a signed length": head(b"Content-Length: +5"),
    "a hexadecimal length": head(b"Content-Length: 0x5"),
    "an empty length": head(b"Content-Length:"),
    "a negative length": head(b"Content-Length: -1"),
    "a huge length": head(b"Content-Length: " + b"9" * 30),
    "two codings": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"),
    "another coding": head(b"Transfer-Encoding: gzip, chunked"),
    "a hidden coding": head(b"Transfer-Encoding: xchunked"),
    "a coding in HTTP/1.0": head(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0"),
    "a space before the colon": head(b"Content-Length : 5"),
    "a folded header": head(b"X-Long: a", b" b"),
    "a folded first header": head(host=b" Host: here"),
    "bare line feeds": GET.replace(b"\r\n", b"\n"),
    "one bare line feed": GET.replace(b"1.1\r\n", b"1.1\n"),
    "a bare carriage return": head(b"X-One: a\rX-Two: b"),
    "a zero byte": head(b"X-One: a\0b"),
    "an escape": head(b"X-One: \x1b[2J"),
    "no colon": head(b"Content-Length"),
    "an empty name": head(b": 5"),
    "two hosts": head(b"Host: there"),
    "no host": head(host=b""),
    "an empty first line": b"\r\n" + GET,
    "a space too many": head(first=b"POST  / HTTP/1.1"),
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": head(first=b"POST / HTTP/2.0"),
    "HTTP/1.10": head(first=b"POST / HTTP/1.10"),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "a long head": head(b"X-Long: " + b"a" * MOST_HEAD),
    "an endless line": b"a" * (MOST_HEAD + 1),
    "many headers": head(*[b"X-Many: 1"] * MOST_HEADERS),
    "a chunk with an extension": chunks(b"5;a=b\r\nhello\r\n0\r\n\r\n"),
    "a chunk with spaces": chunks(b"5 \r\nhello\r\n0\r\n\r\n"),
    "a chunk with a bare line feed": chunks(b"5\nhello\r\n0\r\n\r\n"),
    "a chunk that is too short": chunks(b"4\r\nhello\r\n0\r\n\r\n"),
    "a chunk with a negative size": chunks(b"-5\r\nhello\r\n0\r\n\r\n"),
    "a chunk with a huge size": chunks(b"fffffffff\r\nhello"),
    "a chunk with a prefix": chunks(b"0x5\r\nhello\r\n0\r\n\r\n"),
    "a trailer": chunks(b"0\r\nContent-Length: 5\r\n\r\n"),
    "a bare end": chunks(b"0\r\n\n"),
    "an endless chunk line": chunks(b"0" * 40),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_ambiguous_request_is_refused(name: str) -> None:
    """Nothing of a wrong head is passed on, and nothing after a wrong chunk."""
    framing = Framing()

    accepted = framing.feed(WRONG[name] + GET)

    assert framing.error is not None
    assert framing.error.status in (400, 431)
    assert accepted == b"" or WRONG[name].startswith(accepted)
    assert framing.feed(GET) == b""


@pytest.mark.parametrize("name", WRONG)
def test_bytes_may_come_one_by_one(name: str) -> None:
    """The outcome is the same as for all bytes at once."""
    framing, whole = Framing(), Framing()

    accepted = b"".join(framing.feed(bytes([byte])) for byte in WRONG[name] + GET)

    assert accepted == whole.feed(WRONG[name] + GET)
    assert str(framing.error) == str(whole.error)


@given(st.lists(st.sampled_from([GET, POST, CHUNKED])), st.data())
def test_requests_pass_unchanged(requests: list[bytes], data: st.DataObject) -> None:
    """Whatever pieces they come in; between requests nothing is held back."""
    stream = b"".join(requests)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    framing = Framing()

    accepted = [
        framing.feed(stream[start:end])
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
    ]

    assert b"".join(accepted) == stream
    assert framing.error is None
    assert not framing.begun
    assert not framing.inside


def test_a_wrong_request_after_a_good_one_ends_the_stream() -> None:
    """The good one is passed on."""
    framing = Framing()

    assert framing.feed(POST + WRONG["both lengths"] + GET) == POST
    assert framing.error is not None


def test_an_incomplete_head_is_held_back() -> None:
    """`begun` tells that a head has begun, `inside` that a body has."""
    framing = Framing()

    assert framing.feed(POST[:40]) == b""
    assert (framing.begun, framing.inside) == (True, False)
    assert framing.feed(POST[40:-1]) == POST[:-1]
    assert (framing.begun, framing.inside) == (False, True)
    assert framing.feed(POST[-1:]) == POST[-1:]
    assert (framing.begun, framing.inside) == (False, False)


def test_memory_and_time_are_bounded(
    count_calls: Callable[[Callable[[], object]], int],
) -> None:
    """A connection holds at most one head; a large body is one piece."""
    framing = Framing()
    for _ in range(100):
        framing.feed(b"a" * 1000)
    assert len(framing._held) <= MOST_HEAD + 1

    body = head(b"Content-Length: 1000000") + b"\n" * 1_000_000
    assert count_calls(lambda: Framing().feed(body)) < 100


def test_space_around_the_value_of_a_header_does_not_count() -> None:
    """However long it is: a pattern that tries to end the value at each space is quadratic."""
    wide = b" " * 8_000
    lines = [b"GET / HTTP/1.1", b"host:" + wide + b"a" + wide[:10] + b"b\t ", b"content-length: 3 "]
    head = b"\r\n".join([*lines, b"", b""])

    assert framing_of(head) == (3, False)
    assert Framing().feed(head + b"abc") == head + b"abc"


@pytest.mark.parametrize("length", [b"1001", b"100000000000000"])
def test_a_body_that_is_far_too_long_is_refused_at_its_head(length: bytes) -> None:
    """Nothing of it is awaited: a client would keep its connection for as long as it sends."""
    framing = Framing(1000)

    accepted = framing.feed(
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + length + b"\r\n\r\n"
    )

    assert accepted == b""
    assert framing.error is not None
    assert framing.error.status == 413


def test_a_body_of_the_limit_is_accepted() -> None:
    """So is what is read and discarded, so that its client receives the answer."""
    framing = Framing(3)

    assert framing.feed(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
    assert framing.error is None
