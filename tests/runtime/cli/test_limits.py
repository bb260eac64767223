"""Commands with little memory, disk or processor, and texts of strangers."""

from __future__ import annotations

import errno
import json
import os
import platform
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from weft.runtime.cli.common import terminal
from weft.runtime.cli.main import main
from weft.runtime.cli.specs import specs
from weft.runtime.decode.predictors import text


def test_the_path_is_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """TensorBoard opens its files by paths of bytes."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fsencode(tmp_path / "events"))

    monkeypatch.setattr(specs, "load", full, raising=False)
    monkeypatch.setattr("weft.specs.load.load", full)

    assert main(["expand", "transformer-tiny"]) == 1

    error = capsys.readouterr().err
    assert f"--> {tmp_path / 'events'}\n" in error
    assert "free disk space" in error


@pytest.mark.parametrize(
    ("number", "printed"), [(errno.ENOSPC, 0), (errno.EFBIG, 0), (errno.EIO, 1)]
)
def test_a_thread_on_a_full_disk_prints_no_traceback(
    monkeypatch: pytest.MonkeyPatch, number: int, printed: int
) -> None:
    """The error is raised again in the main thread; any other error of a thread is printed."""
    seen: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda ended: seen.append(ended.exc_value))

    def write() -> None:
        raise OSError(number, os.strerror(number))

    terminal.report_full_disk_once()
    terminal.report_full_disk_once()
    thread = threading.Thread(target=write)
    thread.start()
    thread.join()

    assert len(seen) == printed


@pytest.mark.integration
@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("translate CKPT LINES", "smaller --buffer"),
        ("evaluate CKPT --source LINES --target LINES", "bfloat16, or a smaller --beam"),
        ("serve CKPT --port 0", "smaller --batch"),
        ("attend CKPT sun -o heads.html", "shorter inputs, or --device cpu"),
    ],
)
def test_too_little_memory_names_an_option_of_the_batch(
    command: str,
    named: str,
    toy_checkpoint: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The message of torch names none, and comes with a traceback."""

    def full(*_: Any, **__: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")

    monkeypatch.setattr(text, "decode_ids", full)
    lines = tmp_path / "lines"
    lines.write_text("sun moon\ntree\n")
    words = command.replace("CKPT", str(toy_checkpoint)).replace("LINES", str(lines)).split()

    assert main([*words, "-q"]) == 1

    said = " ".join(capsys.readouterr().err.split())
    assert "error: the memory of the device is too small" in said
    assert named in said
    assert "Traceback" not in said


LINES = ["sun moon", "tree", "river stone bird wind leaf"]
LIMITED = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "default"}
PROGRAM = """
import contextlib, io, json, sys
from weft.runtime.cli.main import main

results = {}
for name, arguments in json.loads(sys.argv[1]).items():
    messages = io.StringIO()
    with contextlib.redirect_stderr(messages):
        results[name] = main(arguments), messages.getvalue()
print(json.dumps(results))
"""
"""Runs several commands in one process, since it takes seconds to import torch."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for the outputs of the commands."""
    return tmp_path_factory.mktemp("limited")


def command(checkpoint: Path, folder: Path, name: str, *options: str) -> list[str]:
    """Return the arguments that translate the lines into a file of a name."""
    files = [str(checkpoint), str(folder / "lines"), "-o", str(folder / name)]
    return ["translate", *files, "--json", *options]


def scores(path: Path) -> list[float]:
    """Return the score of the translation of each line."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record["translations"][0]["score"] for record in records]


@pytest.fixture(scope="module")
def results(toy_checkpoint: Path, folder: Path) -> dict[str, tuple[int, str]]:
    """Return the exit code and the messages of commands on a limited processor."""
    (folder / "lines").write_text("".join(f"{line}\n" for line in LINES))
    options = {
        "float32": ["--precision", "float32"],
        "bfloat16": ["--precision", "bfloat16"],
        "auto": [],
        "int8": ["--quantize", "int8"],
    }
    commands = {
        name: command(toy_checkpoint, folder, name, *given) for name, given in options.items()
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(commands)],
        env={**os.environ, **LIMITED},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    found: dict[str, tuple[int, str]] = json.loads(process.stdout)
    return found


@pytest.mark.integration
@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="oneDNN limits instructions of x86"
)
@pytest.mark.parametrize(("name", "tolerance"), [("float32", 1e-4), ("bfloat16", 0.05)])
def test_translations_are_those_of_the_complete_processor(
    results: dict[str, tuple[int, str]],
    folder: Path,
    toy_checkpoint: Path,
    name: str,
    tolerance: float,
) -> None:
    """Matrices that cannot be prepacked are multiplied as they are."""
    assert results[name][0] == 0, results[name][1]
    complete = folder / "complete"
    assert main(command(toy_checkpoint, folder, "complete", "--precision", "float32")) == 0

    assert len(scores(complete)) == len(LINES)
    assert scores(folder / name) == pytest.approx(scores(complete), abs=tolerance)


@pytest.mark.integration
@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="oneDNN limits instructions of x86"
)
def test_the_automatic_precision_is_float32(
    results: dict[str, tuple[int, str]], folder: Path
) -> None:
    """Products in bfloat16 are emulated without AVX-512 BF16 and AMX."""
    assert results["auto"][0] == 0
    assert (folder / "auto").read_text() == (folder / "float32").read_text()


@pytest.mark.integration
@pytest.mark.skipif(
    platform.machine() not in {"x86_64", "AMD64"}, reason="oneDNN limits instructions of x86"
)
def test_products_in_int8_have_7_bits(
    results: dict[str, tuple[int, str]], folder: Path, toy_checkpoint: Path
) -> None:
    """Pairs of products with 8 bits would not fit into 16 bits, and be cut off."""
    assert results["int8"][0] == 0, results["int8"][1]
    complete = folder / "complete"
    assert main(command(toy_checkpoint, folder, "complete", "--precision", "float32")) == 0

    assert scores(folder / "int8") == pytest.approx(scores(complete), abs=0.1)


HOSTILE = "\x1b[2J\x1b]0;title\x07 \x9b31m \u202e txt"
COMMANDS = (
    ("expand",),
    ("expand", "--provenance"),
    ("show",),
    ("show", "--json"),
    ("check",),
    ("cost",),
)


def spec() -> dict[str, Any]:
    """Return a valid spec whose descriptions have control characters."""
    return {
        "format": 1,
        "name": "hostile",
        "doc": HOSTILE,
        "axes": {"B": "batch", "T": "time"},
        "inputs": {"x": "f[B T 8]"},
        "nodes": {"a": {"use": "layer_norm@1", "in": {"x": "x"}, "doc": HOSTILE}},
        "outputs": {"y": "a.y"},
    }


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_nothing_that_is_printed_commands_a_terminal(
    command: tuple[str, ...],
    broken: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither the result nor the findings, also if the output is piped into a pager."""
    hostile = {f"a{HOSTILE}": {"use": "layer_norm@1", "in": {"x": "x"}}}
    wrong = {f"key{HOSTILE}": HOSTILE, "nodes": {**spec()["nodes"], **hostile}} if broken else {}
    text = json.dumps({**spec(), **wrong})
    path = tmp_path / "spec.json"
    path.write_text(text, encoding="utf-8")

    assert main([command[0], str(path), *command[1:]]) == broken

    printed = "".join(capsys.readouterr())
    assert printed
    assert {c for c in printed if not c.isprintable()} <= {"\n", "\t"}


def test_an_expanded_spec_is_the_same_spec(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its control characters are written as JSON writes them."""
    (tmp_path / "spec.json").write_text(json.dumps(spec()))

    assert main(["expand", str(tmp_path / "spec.json")]) == 0

    assert json.loads(capsys.readouterr().out)["doc"] == HOSTILE


def test_a_path_with_control_characters_is_shown_without_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The name of a file in a stranger's folder."""
    assert main(["check", str(tmp_path / f"{HOSTILE}.json")]) == 1

    printed = "".join(capsys.readouterr())
    assert {c for c in printed if not c.isprintable()} <= {"\n", "\t"}
