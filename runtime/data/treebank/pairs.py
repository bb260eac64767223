"""Readers: turn files into pairs of text.

Each task chooses its reader.  This file has the interface and the default, parallel text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from ....specs.findings import InputError
from ..settings import Files
from ..text_files import pair_paths, read_parallel

Pair = tuple[str, str]
"""Source and target."""


class Reading(Protocol):
    """Reader that turns files into pairs of text."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings that affect the pairs, as plain data; a change prepares the data again."""

    def pairs(self, files: Files, root: str) -> Iterator[Pair]:
        """Yield the pairs of all files, file by file.

        Raises:
            InputError: a file cannot be read, or has the wrong kind of content.
        """

    def paths(self, files: Files, root: str, work: Path) -> list[tuple[Path, Path]]:
        """Return parallel text files with the same pairs, creating them where necessary.

        Args:
            files: files to read.
            root: folder that must contain the files.
            work: folder for created files; it may be missing, or contain files created by
                an earlier call that was killed.

        Raises:
            InputError: as for `pairs`.
        """

    def symbols(self, counts: Mapping[str, int]) -> list[str]:
        """Return the target tokens that become whole symbols, in the order of their ids.

        The source tokenizer encodes the other tokens, if there are any.

        Args:
            counts: number of occurrences of each token.
        """


@dataclass(frozen=True, slots=True)
class Parallel:
    """Parallel text: two files, aligned line by line."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Empty: the pairs depend on the files only."""
        return {}

    def pairs(self, files: Files, root: str) -> Iterator[Pair]:
        """Yield line n of each source file with line n of its target file.

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
        """Return every token, most frequent first."""
        return sorted(counts, key=lambda token: (-counts[token], token))


def _refuse_trees(files: Files) -> None:
    if files.trees:
        raise InputError(
            "trees cannot be read as parallel text",
            place=", ".join(files.trees),
            help="set the run's task to 'parsing', or give source and target files",
        )


def write_pairs(pairs: Iterator[Pair], work: Path, name: str) -> tuple[Path, Path]:
    """Write pairs as two parallel files unless they exist; return their paths.

    Args:
        pairs: texts without line feeds; consumed only if the files are missing.
        work: output folder; created if missing.
        name: file name without a suffix.
    """
    source, target = work / f"{name}.source", work / f"{name}.target"
    # The target is renamed last, so if it exists both files are complete.
    if target.is_file():
        return source, target
    work.mkdir(exist_ok=True)
    partial = [path.with_suffix(f"{path.suffix}.partial") for path in (source, target)]
    with (
        partial[0].open("w", encoding="utf-8", newline="\n") as left,
        partial[1].open("w", encoding="utf-8", newline="\n") as right,
    ):
        for source_text, target_text in pairs:
            left.write(source_text + "\n")
            right.write(target_text + "\n")
    partial[0].replace(source)
    partial[1].replace(target)
    return source, target
