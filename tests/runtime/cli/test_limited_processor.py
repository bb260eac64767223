"""Commands on a processor without AVX-512, which variables of torch simulate in a new process."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from weft.runtime.cli.main import main

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(
        platform.machine() not in {"x86_64", "AMD64"}, reason="oneDNN limits instructions of x86"
    ),
]

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


def test_the_automatic_precision_is_float32(
    results: dict[str, tuple[int, str]], folder: Path
) -> None:
    """Products in bfloat16 are emulated without AVX-512 BF16 and AMX."""
    assert results["auto"][0] == 0
    assert (folder / "auto").read_text() == (folder / "float32").read_text()


def test_products_in_int8_have_7_bits(
    results: dict[str, tuple[int, str]], folder: Path, toy_checkpoint: Path
) -> None:
    """Pairs of products with 8 bits would not fit into 16 bits, and be cut off."""
    assert results["int8"][0] == 0, results["int8"][1]
    complete = folder / "complete"
    assert main(command(toy_checkpoint, folder, "complete", "--precision", "float32")) == 0

    assert scores(folder / "int8") == pytest.approx(scores(complete), abs=0.1)
