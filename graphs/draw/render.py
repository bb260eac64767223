"""Diagram file: a picture in DOT becomes a file, whole or not at all."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import graphviz

from ...specs.files import write_beside
from ...specs.findings import InputError

SUFFIXES = ("svg", "png", "pdf", "dot")
"""Files that can be written, by suffix."""
LONGEST_RENDER = 300
"""Seconds that `dot` may take."""


def check_suffix(out: Path, suffixes: Sequence[str] = SUFFIXES) -> str:
    """Return the suffix of a file to draw, without its dot.

    Raises:
        InputError: nothing is drawn into such a file.
    """
    suffix = out.suffix.removeprefix(".").lower()
    if suffix not in suffixes:
        known = ", ".join(f".{name}" for name in suffixes)
        problem = f"cannot draw into a file that ends in '{out.suffix}'"
        raise InputError(problem, place=str(out), help=f"end the name in one of {known}")
    return suffix


def write_picture(picture: graphviz.Digraph, out: Path) -> Path:
    """Write a picture beside its place and rename it; the suffix says how it is drawn.

    Raises:
        InputError: unknown suffix, no `dot` on this machine, or the file cannot be
            written.
    """
    suffix = check_suffix(out)
    content = picture.source.encode() if suffix == "dot" else _render(picture, suffix, out)
    write_beside(out, content, "diagram")
    return out


def _render(picture: graphviz.Digraph, suffix: str, out: Path) -> bytes:
    """Return the picture as `dot` draws it."""
    options = ["-Gdpi=144"] if suffix == "png" else []
    try:
        done = subprocess.run(
            ["dot", f"-T{suffix}", *options],
            input=picture.source.encode(),
            capture_output=True,
            check=False,
            timeout=LONGEST_RENDER,
        )
    except FileNotFoundError as error:
        raise InputError(
            "there is no program 'dot' to draw with",
            place=str(out),
            help="install graphviz (Debian: apt-get install graphviz), or write a .dot file,"
            " which needs none",
        ) from error
    except subprocess.TimeoutExpired as error:
        problem = f"'dot' was not done after {LONGEST_RENDER} seconds"
        raise InputError(problem, place=str(out), help="write a .dot file instead") from error
    if done.returncode or not done.stdout:
        words = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise InputError(
            f"'dot' could not draw: {words[-1]}", place=str(out), help="write a .dot file instead"
        )
    content: bytes = done.stdout
    return content
