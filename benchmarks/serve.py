"""Measure how fast a server answers many clients at once, and check every answer.

    python benchmarks/serve.py CKPT --source test.en.gz [--clients 64] [--seconds 60] [-o F.json]

`weft serve` runs as its own process on this machine.  Each client keeps a connection open and
requests one sentence after another; a quarter of the clients request greedy search.  Every answer
is compared with the offline translation of the same checkpoint.  In addition, four clients
repeatedly disconnect while they wait, and four send bodies that are too large.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import signal
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import weft
from weft.runtime.data.text_files import read_lines

TROUBLE = 4
"""Number of clients that disconnect, and of clients that send too much."""
GREEDY = {"beam": 1}
HEAD = (
    "POST /translate HTTP/1.1\r\nhost: weft\r\ncontent-type: application/json\r\n"
    "content-length: {}\r\n\r\n"
)


@dataclass
class Answers:
    """Answers received by all clients."""

    seconds: list[float] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    hung_up: int = 0


def request(source: str, search: dict[str, Any]) -> bytes:
    """Return an HTTP request for the translation of one sentence."""
    body = json.dumps({"source": source, "search": search}).encode()
    return HEAD.format(len(body)).encode() + body


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Read one answer; return its status and body."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    return int(head.split()[1]), await reader.readexactly(int(length[1]) if length else 0)


async def client(
    number: int, port: int, known: list[dict[str, str]], until: float, answers: Answers
) -> None:
    """Request one sentence after another until the time is over."""
    chance = random.Random(number)
    greedy = number % 4 == 0
    lines = list(known[greedy])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        source, began = chance.choice(lines), time.monotonic()
        writer.write(request(source, GREEDY if greedy else {}))
        status, body = await answer(reader)
        answers.seconds.append(time.monotonic() - began)
        answers.statuses[str(status)] += 1
        found = json.loads(body).get("results", [{}])[0].get("translations", [{}])
        if status != 200 or found[0].get("text") != known[greedy][source]:
            answers.wrong.append(source)
    writer.close()


async def hangs_up(
    number: int, port: int, lines: list[str], until: float, answers: Answers
) -> None:
    """Send a request, wait briefly, and reset the connection; repeat."""
    chance = random.Random(1000 + number)
    while time.monotonic() < until:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(chance.choice(lines), {}))
        await writer.drain()
        await asyncio.sleep(chance.random() * 0.3)
        writer.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        writer.transport.abort()
        answers.hung_up += 1


async def too_large(port: int, until: float, answers: Answers) -> None:
    """Send bodies of 2 MiB, and count how they are refused."""
    body = json.dumps({"source": "a" * 2**21}).encode()
    while time.monotonic() < until:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD.format(len(body)).encode() + body)
        try:
            status, _ = await answer(reader)
            answers.statuses[f"{status} (too large)"] += 1
        except (ConnectionError, asyncio.IncompleteReadError):
            answers.statuses["cut (too large)"] += 1
        writer.close()
        await asyncio.sleep(0.5)


async def load(port: int, known: list[dict[str, str]], clients: int, seconds: float) -> Answers:
    """Run all clients for some seconds."""
    answers, until = Answers(), time.monotonic() + seconds
    lines = list(known[0])
    await asyncio.gather(
        *(client(number, port, known, until, answers) for number in range(clients)),
        *(hangs_up(number, port, lines, until, answers) for number in range(TROUBLE)),
        *(too_large(port, until, answers) for _ in range(TROUBLE)),
    )
    return answers


async def metrics_of(port: int) -> dict[str, float]:
    """Return the metrics of the server."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: weft\r\n\r\n")
    _, body = await answer(reader)
    writer.close()
    lines = [line for line in body.decode().splitlines() if line[0] != "#"]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    [line] = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) / 1024


def main() -> None:
    """Measure, print a table and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint")
    parser.add_argument("--source", required=True)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lines", type=int, default=300)
    parser.add_argument("--compile", default="auto", choices=["off", "auto", "on"])
    parser.add_argument("-o", "--out")
    options = parser.parse_args()
    lines = sorted(set(islice(read_lines(options.source), options.lines)))
    known, offline = [], []
    for search in ({}, GREEDY):
        model, began = weft.open(options.checkpoint, predict=search), time.monotonic()
        known.append(dict(zip(lines, model.translate(lines), strict=True)))
        offline.append(len(lines) / (time.monotonic() - began))
    command = [sys.executable, "-m", "weft", "serve", options.checkpoint, "--port", "0"]
    command += ["--compile", options.compile]
    server = subprocess.Popen([*command, "--precision", "float32"], stderr=subprocess.PIPE)
    try:
        found = (re.search(rb"http://[\d.]+:(\d+)", line) for line in server.stderr)
        port = int(next(one for one in found if one)[1])
        if options.compile != "off":  # until then, the server measures or compiles
            next(line for line in server.stderr if re.match(rb"steps: (plain|compiled),", line))
        before = memory(server.pid)
        asyncio.run(load(port, known, options.clients, 3.0))
        answers = asyncio.run(load(port, known, options.clients, options.seconds))
        counted, after = asyncio.run(metrics_of(port)), memory(server.pid)
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    finally:
        server.kill()
    cuts = statistics.quantiles(answers.seconds, n=100)
    result = {
        "clients": options.clients,
        "seconds": options.seconds,
        "answers": len(answers.seconds),
        "wrong": len(answers.wrong),
        "statuses": dict(sorted(answers.statuses.items())),
        "hung up": answers.hung_up,
        "sentences a second": round(len(answers.seconds) / options.seconds, 1),
        "offline sentences a second (beam, greedy)": [round(one, 1) for one in offline],
        "latency ms p50": round(1000 * cuts[49]),
        "latency ms p90": round(1000 * cuts[89]),
        "latency ms p99": round(1000 * cuts[98]),
        "latency ms most": round(1000 * max(answers.seconds)),
        "mean batch": round(
            counted["weft_batch_sentences_sum"] / counted["weft_batch_sentences_count"], 1
        ),
        "dropped sentences": counted["weft_dropped_sentences_total"],
        "memory MB before, after": [round(before), round(after)],
        "exit code after SIGTERM": code,
    }
    for name, value in result.items():
        print(f"{name:44} {value}")
    if options.out:
        Path(options.out).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    sys.exit(bool(answers.wrong) or code != 0)


if __name__ == "__main__":
    main()
