"""Rendering: write a diagram to a file, atomically, with graphviz's `dot` or `neato`."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import graphviz

from ...specs.files import write_beside
from ...specs.findings import InputError

SUFFIXES = ("svg", "png", "pdf", "dot")
"""Suffixes of the supported file formats."""
LONGEST_RENDER = 300
"""Timeout of `dot`, in seconds."""
_VALUE = r'(?:"(?:[^"\\]|\\.)*"|[\w.#-]+)'
_COLUMN = re.compile(rf"(?<=[\[ ])group={_VALUE} ?(?=(?:\w+={_VALUE} ?)*\]$)", re.MULTILINE)
"""The column of a box: an attribute after its label, so that only others without markup follow."""


def check_suffix(out: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """Return the suffix of an output file, without its dot.

    Raises:
        InputError: this file format is not supported.
    """
    suffix = out.suffix.removeprefix(".").lower()
    if suffix not in suffixes:
        choices = ", ".join(f".{name}" for name in suffixes)
        problem = f"cannot draw to a file with the suffix '{out.suffix}'"
        raise InputError(problem, location=str(out), help=f"use one of {choices}")
    return suffix


def write_picture(picture: graphviz.Digraph, out: Path) -> Path:
    """Write a diagram to a temporary file and rename it; the suffix selects the format.

    Raises:
        InputError: the suffix is unknown, `dot` is not installed, or the file cannot be
            written.
    """
    suffix = check_suffix(out)
    content = picture.source.encode() if suffix == "dot" else _render(picture, suffix, out)
    write_beside(out, content, "diagram")
    return out


def svg_of(picture: graphviz.Digraph) -> str:
    """Return a diagram as SVG text, without an XML declaration, to be placed into a page.

    Raises:
        InputError: `dot` is not installed, or it fails.
    """
    text = _render(picture, "svg", Path("picture.svg")).decode()
    return text[text.index("<svg") :]


def _render(picture: graphviz.Digraph, suffix: str, out: Path) -> bytes:
    """Return the picture as graphviz draws it."""
    options = ["-Gdpi=144"] if suffix == "png" else []
    placed = ["-n2"] if picture.engine == "neato" else []
    command = [picture.engine, *placed, f"-T{suffix}", *options]
    try:
        return graphviz_output(command, picture.source, str(out), seconds=LONGEST_RENDER)
    except FileNotFoundError as error:
        raise InputError(
            f"the program '{picture.engine}' is not installed",
            location=str(out),
            help="install graphviz (Debian: apt-get install graphviz), or write a .dot file,"
            " which does not need it",
        ) from error


def graphviz_output(command: Sequence[str], text: str, location: str, *, seconds: int) -> bytes:
    """Return what a program of graphviz writes for a DOT text.

    dot fails for some pictures that have columns (`group`): "trouble in init_rank".  These are
    placed without columns.

    Args:
        command: the program and its options.
        text: one or several pictures.
        location: where errors are.
        seconds: timeout.

    Raises:
        FileNotFoundError: the program is not installed.
        InputError: it fails, or it takes longer than the timeout.
    """
    problem = ""
    for source in dict.fromkeys((text, _COLUMN.sub("", text))):
        try:
            done = subprocess.run(
                command, input=source.encode(), capture_output=True, check=False, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            problem = f"'{command[0]}' did not finish within {seconds} seconds"
            break
        if done.stdout and not done.returncode:
            return done.stdout
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        wrong = next((line for line in lines if line.startswith("Error")), lines[-1])
        problem = f"'{command[0]}' failed: {wrong}"
    raise InputError(problem, location=location, help="draw less, or write a .dot file instead")
