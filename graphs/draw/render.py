"""Rendering: write a diagram to a file, atomically, with graphviz's `dot` or `neato`."""

from __future__ import annotations

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


def check_suffix(out: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """Return the suffix of an output file, without its dot.

    Raises:
        InputError: this file format is not supported.
    """
    suffix = out.suffix.removeprefix(".").lower()
    if suffix not in suffixes:
        known = ", ".join(f".{name}" for name in suffixes)
        problem = f"cannot draw to a file with the suffix '{out.suffix}'"
        raise InputError(problem, place=str(out), help=f"use one of {known}")
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
    try:
        done = subprocess.run(
            [picture.engine, *placed, f"-T{suffix}", *options],
            input=picture.source.encode(),
            capture_output=True,
            check=False,
            timeout=LONGEST_RENDER,
        )
    except FileNotFoundError as error:
        raise InputError(
            f"the program '{picture.engine}' is not installed",
            place=str(out),
            help="install graphviz (Debian: apt-get install graphviz), or write a .dot file,"
            " which does not need it",
        ) from error
    except subprocess.TimeoutExpired as error:
        problem = f"'{picture.engine}' did not finish within {LONGEST_RENDER} seconds"
        raise InputError(problem, place=str(out), help="write a .dot file instead") from error
    if done.returncode or not done.stdout:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise InputError(
            f"'{picture.engine}' failed: {lines[-1]}",
            place=str(out),
            help="write a .dot file instead",
        )
    content: bytes = done.stdout
    return content
