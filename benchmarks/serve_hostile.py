"""Serve good clients next to hostile ones, check every answer, and watch the server's memory.

    python benchmarks/serve_hostile.py CKPT [--source test.en] [--seconds 120] [-o F.json]

`weft serve` runs as its own process on this machine, with its default limits.  64 good clients
(`--clients`) request one sentence after another on connections that they keep open, and compare
each answer with the offline translation of the same checkpoint.  If an answer is 503, or the
connection was closed, they retry; an answer that does not come within 60 seconds is lost.  Two
seconds before, these begin:

    silent        1,005 connections send nothing; a closed one is opened again
    heads         50 connections send a byte of a request's head each second
    bodies        50 connections send a byte of a body each second, half of them in chunks
    malformed     8 clients send requests that are malformed or ambiguous, 20 per second each
    huge          4 clients send bodies of 1 to 2 MB: numbers, objects, keys, brackets, one text
    hang-ups      4 clients reset their connection while they wait
    costly        4 clients of other addresses send requests of the most work that is accepted: two
                  required phrases and the widest beam; and, alternately, of more than that
    not reading   4 clients request /openapi.json 1,000 times and do not read the responses

The table has the answers of each kind.  The default sentences are numbers in words, for a
checkpoint of `make demo`; `--source` gives a file for other models.  The exit code is 1 if an
answer was wrong or lost, if a malformed request was served, or if the server did not stop cleanly.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import resource
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

import weft
from weft.runtime.data.text_files import read_lines

PATIENCE = 60.0
HEAD_START = 2.0
"""Seconds after which the good clients begin, so that they find the server occupied."""
SILENT, HEADS, BODIES, MALFORMED, HUGE, HANG_UPS, DEAF = 1005, 50, 50, 8, 4, 4, 4
COSTLY = 4
HOST = b"Host: localhost\r\n"
POST = b"POST /translate HTTP/1.1\r\n" + HOST + b"Content-Type: application/json\r\n"
AMBIGUOUS = (
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    POST + b"Content-Length: 5, 5\r\n\r\nhello",
    POST + b"Content-Length: +5\r\n\r\nhello",
    POST + b"Content-Length : 5\r\n\r\nhello",
    POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n0\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\n0\r\nX: y\r\n\r\n",
    POST.replace(b"\r\n", b"\n") + b"\n",
    POST + b"X-Folded: a\r\n b\r\n\r\n",
    POST + HOST + b"\r\n",
    POST + b"X-Zero: a\0b\r\n\r\n",
    b"GET / HTTP/3.0\r\n" + HOST + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"GET / HTTP/1.1\r\nX-Long: " + b"a" * 20_000,
)
MEGABYTE = 2**20 - 100
LARGE = (
    b'{"source": [' + b",".join([b"1"] * (MEGABYTE // 2)) + b"]}",
    b'{"source": [' + b",".join([b"{}"] * (MEGABYTE // 3)) + b"]}",
    b'{"source": "a", ' + b",".join(b'"%d": 1' % key for key in range(80_000)) + b"}",
    b'{"source": ' + b"[" * (MEGABYTE // 2) + b"]" * (MEGABYTE // 2) + b"}",
    b'{"source": "' + b"a" * MEGABYTE + b'"}',
    b'{"source": "' + b"a" * (2 * MEGABYTE) + b'"}',
    b'{"source": "a" ' + b'\\"' * (MEGABYTE // 2),
)


@dataclass
class Seen:
    """What all clients saw."""

    seconds: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    longest: int = 0
    """Bytes of the longest error response."""
    logged: list[str] = field(default_factory=list)
    """Lines that the server logged, its farewell included."""
    memory: list[float] = field(default_factory=list)
    """Resident memory of the server in MB, twice per second."""


@dataclass
class Trial:
    """One run of all clients."""

    port: int
    known: dict[str, str]
    until: float
    seen: Seen = field(default_factory=Seen)

    async def opened(
        self, address: str = "127.0.0.1"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        local = (address, 0)
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=local)

    @property
    def running(self) -> bool:
        return time.monotonic() < self.until

    async def repeat(self, kind: str, once: Callable[[], Awaitable[str]], pause: float) -> None:
        """Do something until the time is over, and count what came of it."""
        while self.running:
            try:
                async with asyncio.timeout(PATIENCE):
                    came = await once()
            except TimeoutError:
                came = "no answer"
            except (OSError, asyncio.IncompleteReadError):
                came = "closed"
            self.seen.answers[f"{kind}: {came}"] += 1
            await asyncio.sleep(pause)


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer; return its status and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return int(head.split()[1]), await reader.readexactly(int(length[1]) if length else 0)


def asked(body: bytes) -> bytes:
    """Return a well-formed request."""
    return POST + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def good(trial: Trial, number: int) -> None:
    """Request sentences on one connection, and check each answer."""
    chance, seen = random.Random(number), trial.seen
    lines = list(trial.known)
    reader = writer = None
    await asyncio.sleep(HEAD_START)
    while trial.running:
        source, began, status = chance.choice(lines), time.monotonic(), 0
        while status != 200 and time.monotonic() - began < PATIENCE:
            try:
                if writer is None:
                    reader, writer = await trial.opened()
                writer.write(asked(json.dumps({"source": source}).encode()))
                status, body = await asyncio.wait_for(answer(reader), PATIENCE)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                seen.answers["good: connection closed, retried"] += 1
                status = 0
            if status != 200:
                if status:
                    seen.answers[f"good: {status}, retried"] += 1
                if writer is not None:
                    writer.close()
                reader = writer = None
                await asyncio.sleep(0.2)
        if status != 200:
            seen.answers["good: lost"] += 1
            continue
        seen.seconds.append(time.monotonic() - began)
        found = json.loads(body)["results"][0]["translations"][0]["text"]
        right = found == trial.known[source]
        seen.answers["good: right" if right else "good: wrong"] += 1
        if not right:
            seen.wrong.append(source)
    if writer is not None:
        writer.close()


async def silent(trial: Trial, sent: bytes, begin: bytes = b"") -> str:
    """Send one byte each second until the server closes the connection."""
    reader, writer = await trial.opened()
    with contextlib.closing(writer):
        writer.write(begin)
        reading = asyncio.create_task(reader.read(100))
        for place in range(len(sent) or 60):
            done, _ = await asyncio.wait({reading}, timeout=1.0)
            if done or not trial.running:
                break
            writer.write(sent[place : place + 1])
        if not reading.done():
            reading.cancel()
            return "open at the end"
        found = reading.result()
        return found.split()[1].decode() if found else "closed"


async def status_of(trial: Trial, sent: bytes, address: str = "127.0.0.1") -> str:
    """Send a request on a connection of its own; return the status of the answer."""
    reader, writer = await trial.opened(address)
    with contextlib.closing(writer):
        writer.write(sent)
        status, body = await answer(reader)
        trial.seen.longest = max(trial.seen.longest, len(body))
        return str(status)


def costly(trial: Trial, chance: random.Random) -> bytes:
    """Return a request that needs much work, or more than is accepted."""
    words = [word for line in trial.known for word in line.split()]
    count, texts = chance.choice([(12, 1), (12, 4), (120, 1), (120, 32)])
    phrases = [" ".join(chance.choices(words, k=count)) for _ in range(2)]
    text = {"text": chance.choice(list(trial.known)), "include": phrases}
    return asked(json.dumps({"source": [text] * texts, "search": {"beam": 8}}).encode())


async def hang_up(trial: Trial, chance: random.Random) -> str:
    """Reset a connection during a request."""
    _, writer = await trial.opened()
    writer.write(asked(json.dumps({"source": chance.choice(list(trial.known))}).encode()))
    await writer.drain()
    await asyncio.sleep(chance.random() * 0.3)
    reset = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    writer.transport.abort()
    return "reset"


async def not_reading(trial: Trial) -> str:
    """Request much and read nothing, until the server closes the connection."""
    _, writer = await trial.opened()
    transport: Any = writer.transport  # of a socket, which also reads
    transport.pause_reading()
    request = b"GET /openapi.json HTTP/1.1\r\n" + HOST + b"\r\n"
    try:
        for _ in range(1000):
            writer.write(request)
            await asyncio.wait_for(writer.drain(), PATIENCE)
        while trial.running:
            writer.write(b"G")
            await asyncio.sleep(0.5)
            if writer.transport.is_closing():
                return "closed"
        return "open at the end"
    finally:
        writer.transport.abort()


async def watch(trial: Trial, pid: int) -> None:
    """Sample the memory of the server."""
    while trial.running:
        trial.seen.memory.append(memory(pid))
        await asyncio.sleep(0.5)


def memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return int(found[1]) / 1024 if found else 0.0


async def together(trial: Trial, clients: int, pid: int) -> None:
    """Run all clients until the time is over."""
    slow = asked(b'{"source": "' + b"a" * 500 + b'"}')
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n1f4\r\n"
    bodies = [(slow[:-490], slow[-490:]), (chunked, b"a" * 400)]
    malformed = [
        trial.repeat("malformed", lambda: status_of(trial, random.choice(AMBIGUOUS)), 0.05)
        for _ in range(MALFORMED)
    ]
    await asyncio.gather(
        watch(trial, pid),
        *(good(trial, number) for number in range(clients)),
        *(trial.repeat("silent", lambda: silent(trial, b""), 0.1) for _ in range(SILENT)),
        *(trial.repeat("heads", lambda: silent(trial, POST * 2), 0.1) for _ in range(HEADS)),
        *(
            trial.repeat("bodies", lambda n=n: silent(trial, bodies[n % 2][1], bodies[n % 2][0]), 0)
            for n in range(BODIES)
        ),
        *malformed,
        *(
            trial.repeat("huge", lambda: status_of(trial, asked(random.choice(LARGE))), 0.5)
            for _ in range(HUGE)
        ),
        *(
            trial.repeat("hang-ups", lambda n=n: hang_up(trial, random.Random(n)), 0.1)
            for n in range(HANG_UPS)
        ),
        *(
            trial.repeat(
                "costly",
                lambda n=n: status_of(trial, costly(trial, random.Random()), f"127.0.0.{2 + n}"),
                0.0,
            )
            for n in range(COSTLY)
        ),
        *(trial.repeat("not reading", lambda: not_reading(trial), 0.5) for _ in range(DEAF)),
    )


def numbers() -> list[str]:
    """Return numbers in words, as in the corpus of `make demo`."""
    small = [
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "eleven",
        "twelve",
    ]
    tens = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
    made = [f"{a} hundred and {b}-{c}" for a, b, c in product(small, tens, small[::3])]
    return [*small, *tens, *made]


def served(options: argparse.Namespace, known: dict[str, str]) -> tuple[Seen, int, float]:
    """Run the trial; return what the clients saw, the server's exit code and its first memory."""
    command = [sys.executable, "-m", "weft", "serve", options.checkpoint, "--port", "0"]
    command += ["--precision", "float32", "--compile", options.compile]
    server, logged = subprocess.Popen(command, stderr=subprocess.PIPE), list[bytes]()
    try:
        found = (re.search(rb"http://[\d.]+:(\d+)", line) for line in server.stderr or ())
        port = int(next(one for one in found if one)[1])
        threading.Thread(target=logged.extend, args=(server.stderr or (),), daemon=True).start()
        before = memory(server.pid)
        trial = Trial(port, known, time.monotonic() + options.seconds)
        asyncio.run(together(trial, options.clients, server.pid))
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
        trial.seen.logged = [line.decode(errors="replace") for line in logged]
        return trial.seen, code, before
    finally:
        server.kill()


def main() -> None:
    """Run the trial, print a table and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoint")
    parser.add_argument("--source")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--compile", default="off", choices=["off", "auto", "on"])
    parser.add_argument("-o", "--out")
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    given = read_lines(options.source) if options.source else numbers()
    lines = sorted(set(islice(given, options.lines)))
    known = dict(zip(lines, weft.open(options.checkpoint).translate(lines), strict=True))
    seen, code, before = served(options, known)
    cuts = statistics.quantiles(seen.seconds, n=100) if len(seen.seconds) > 1 else [0.0] * 99
    served_anyway = sum(
        count for name, count in seen.answers.items() if re.fullmatch("malformed: 2..", name)
    )
    result = {
        "good clients": options.clients,
        "seconds": options.seconds,
        "right answers": seen.answers["good: right"],
        "wrong answers": len(seen.wrong),
        "lost answers": seen.answers["good: lost"],
        "malformed requests served": served_anyway,
        "latency ms p50, p99, most": [
            round(1000 * one) for one in (cuts[49], cuts[98], max(seen.seconds, default=0.0))
        ],
        "memory MB at first, median, most, at last": [
            round(one)
            for one in (before, statistics.median(seen.memory), max(seen.memory), seen.memory[-1])
        ],
        "longest error response, bytes": seen.longest,
        "lines in the log": len(seen.logged),
        "exit code after SIGTERM": code,
        "answers": dict(sorted(seen.answers.items())),
    }
    for name, value in result.items():
        if isinstance(value, dict):
            print(*(f"  {kind:42} {count:8,}" for kind, count in value.items()), sep="\n")
        else:
            print(f"{name:44} {value}")
    if options.out:
        result["log"] = seen.logged[:200]
        result["memory MB, twice per second"] = [round(one, 1) for one in seen.memory]
        Path(options.out).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    failed = seen.wrong or result["lost answers"] or served_anyway or code != 0
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
