"""Reading: how files become pairs of text.

What a file holds is the task's to know: here are only the question and the usual answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ...specs.findings import InputError
from .settings import Files
from .text_files import pair_paths, read_parallel

Pair = tuple[str, str]
"""Source and target."""


class Reading(Protocol):
    """Knows how files are read as pairs."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """What decides the pairs, as plain data: they are made anew when it changes."""

    def pairs(self, files: Files, root: str) -> Iterator[Pair]:
        """Yield the pairs of all files, file by file.

        Raises:
            InputError: a file cannot be read, or holds something else.
        """

    def paths(self, files: Files, root: str, work: Path) -> list[tuple[Path, Path]]:
        """Return parallel files with these pairs, one for each file; made where there are none.

        Args:
            files: what is to be read.
            root: folder they must lie in.
            work: a folder for what is made; it may not be there yet, or hold what an
                earlier call made that was killed.

        Raises:
            InputError: as for `pairs`.
        """

    def symbols(self, counts: Mapping[str, int]) -> list[str]:
        """Return the tokens of targets that are whole symbols, in the order of their ids.

        Others, if any, are spelled as the source is.

        Args:
            counts: how often each token is there.
        """


@dataclass(frozen=True, slots=True)
class Parallel:
    """Two files, line by line."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Nothing: the files say all."""
        return {}

    def pairs(self, files: Files, root: str) -> Iterator[Pair]:
        """Yield line n of a source file with line n of its target file.

        Raises:
            InputError: as for `read_parallel`, or the files are trees.
        """
        _refuse_trees(files)
        return read_parallel(files, root)

    def paths(self, files: Files, root: str, work: Path) -> list[tuple[Path, Path]]:  # noqa: ARG002
        """Return the files themselves.

        Raises:
            InputError: a path leaves the root, or the files are trees.
        """
        _refuse_trees(files)
        return pair_paths(files, root)

    def symbols(self, counts: Mapping[str, int]) -> list[str]:
        """Return every token, the commonest first."""
        return sorted(counts, key=lambda token: (-counts[token], token))


def _refuse_trees(files: Files) -> None:
    if files.trees:
        raise InputError(
            "trees are no parallel text",
            place=", ".join(files.trees),
            help="set the run's task to 'parsing', or name source and target files",
        )


def write_pairs(pairs: Iterator[Pair], work: Path, name: str) -> tuple[Path, Path]:
    """Write pairs as two parallel files, unless they are there; return their paths.

    Args:
        pairs: texts without line feeds; read only when they must be.
        work: the folder; made when missing.
        name: of the files, without an ending.
    """
    source, target = work / f"{name}.source", work / f"{name}.target"
    # The target takes its name last, so where it is both are whole.
    if target.is_file():
        return source, target
    work.mkdir(exist_ok=True)
    partial = [path.with_suffix(f"{path.suffix}.partial") for path in (source, target)]
    with (
        partial[0].open("w", encoding="utf-8", newline="\n") as left,
        partial[1].open("w", encoding="utf-8", newline="\n") as right,
    ):
        for one, other in pairs:
            left.write(one + "\n")
            right.write(other + "\n")
    partial[0].replace(source)
    partial[1].replace(target)
    return source, target
