"""`weft serve`: it answers, stops on a signal, and reports why it cannot start."""

from __future__ import annotations

import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from weft.runtime import api
from weft.runtime.cli.main import main

SECONDS = 60


def test_an_address_in_use_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The error comes before the checkpoint is opened, and suggests --port 0."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "nowhere", "--port", str(port)]) == 1

    message = capsys.readouterr().err
    assert f"127.0.0.1:{port}" in message
    assert "in use" in message
    assert "--port 0" in message


def test_an_invalid_address_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A port out of range is a wrong command line; an unknown interface is a wrong input."""
    assert main(["serve", "nowhere", "--port", "70000"]) == 2
    assert main(["serve", "nowhere", "--host", "192.0.2.1", "--port", "0"]) == 1

    assert capsys.readouterr().err.count("error: ") == 1


def test_what_a_server_logs_ends_with_it() -> None:
    """Log messages of a notebook are not printed because of a server that has stopped."""
    before = logging.getLogger().level, logging.getLogger().handlers[:]
    assert main(["serve", "nowhere", "--host", "192.0.2.1", "--port", "0"]) == 1

    assert (logging.getLogger().level, logging.getLogger().handlers[:]) == before


def test_limits_out_of_range_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names the options."""
    assert main(["serve", "nowhere", "--queue", "0"]) == 2

    assert "queue" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "value"), [("--drain", "-1"), ("--timeout", "0")])
def test_an_invalid_limit_names_its_option(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the option, before anything is opened."""
    assert main(["serve", "nowhere", "--port", "0", option, value]) == 2

    assert f"Invalid value for '{option}'" in capsys.readouterr().err


def test_a_missing_extra_gives_the_pip_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message gives the pip command."""
    for name in ("server", "app"):
        monkeypatch.delitem(sys.modules, f"weft.extensions.serve.{name}", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)

    assert main(["serve", "nowhere"]) == 1

    assert "pip install 'weft[serve]'" in capsys.readouterr().err


@contextmanager
def serving(checkpoint: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Start `weft serve` as a process; yield it, with its port, when it is ready."""
    command = [sys.executable, "-m", "weft", "serve", str(checkpoint), "--port", "0"]
    command += ["--compile", "off", "--device", "cpu", "--precision", "float32"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        addresses = (re.search(r"http://127.0.0.1:(\d+)", line) for line in process.stderr)
        yield process, next(int(match[1]) for match in addresses if match)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_requests_sent_just_before_the_signal_are_answered(toy_checkpoint: Path) -> None:
    """They lie in the buffers of the system when the signal interrupts the server."""
    body = b'{"source": "sun moon"}'
    head = "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with serving(toy_checkpoint) as (process, port), ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), SECONDS))
            for _ in range(56)
        ]
        for client in clients:
            client.sendall(request)
        process.send_signal(signal.SIGTERM)
        answers = Counter(client.recv(1 << 16).split(b"\r\n")[0] for client in clients)
        code = process.wait(SECONDS)

    assert answers == {b"HTTP/1.1 200 OK": 56}
    assert code == 0


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_process_stopped_under_load_answers_every_accepted_request(
    toy_checkpoint: Path, sent: signal.Signals
) -> None:
    """Each client gets a correct translation or a 503; the exit code is 0."""
    words = ("sun", "moon", "tree", "river", "stone", "bird", "wind", "leaf", "fire", "snow")
    lines = [f"{a} {b}" for a in words for b in words]
    expected = dict(zip(lines, api.open_model(toy_checkpoint).translate(lines), strict=True))
    answers, wrong = Counter[int | str](), list[str]()

    def call(number: int, port: int) -> None:
        with httpx.Client(timeout=SECONDS) as client:
            for line in lines[number:] + lines:
                try:
                    answer = client.post(
                        f"http://127.0.0.1:{port}/translate", json={"source": line}
                    )
                except httpx.ConnectError:
                    answers["closed"] += 1
                    return
                answers[answer.status_code] += 1
                if answer.status_code != 200:
                    return
                [result] = answer.json()["results"]
                if result["translations"][0]["text"] != expected[line]:
                    wrong.append(line)

    with serving(toy_checkpoint) as (process, port):
        callers = [threading.Thread(target=call, args=(n, port)) for n in range(12)]
        for caller in callers:
            caller.start()
        time.sleep(1.5)
        process.send_signal(sent)
        for caller in callers:
            caller.join(SECONDS)
        code = process.wait(SECONDS)
        assert process.stderr is not None
        log = process.stderr.read()

    assert wrong == []
    assert code == 0, log
    assert "0 sentences unfinished" in log
    assert answers[200] > 12
    # No client was cut off: each ends with a 503 or a closed connection.
    assert answers.keys() <= {200, 503, "closed"}
    assert answers[503] + answers["closed"] == 12
