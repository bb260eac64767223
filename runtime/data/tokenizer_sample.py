"""Sample: lines for a tokenizer, evenly from all files, never held."""

from __future__ import annotations

from itertools import islice, zip_longest
from random import Random
from typing import TYPE_CHECKING

from .text_files import decode, raw_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BLOCK = 10_000
"""Pairs from which a fixed share of lines is drawn."""


def sampled(
    paths: Sequence[tuple[Path, ...]],
    lines: Sequence[int],
    most: int,
    tell: Callable[[int], None],
) -> Iterator[str]:
    """Yield lines in the order of the files, sides in turn: all, or `most` of them by chance.

    From each block of pairs comes its share, drawn by a generator whose seed is the number
    of the block: the same files give the same lines.

    Args:
        paths: files that are read side by side, as often as there are such groups.
        lines: how many lines each file of a group has.
        most: lines to yield, at most.
        tell: hears how many lines of a side are done.

    Raises:
        InputError: a file cannot be read, or a chosen line is not UTF-8.
    """
    total = sum(len(group) * count for group, count in zip(paths, lines, strict=True))
    most = min(most, total)
    block = seen = done = 0
    for group, count in zip(paths, lines, strict=True):
        sides = [raw_lines(path) for path in group]
        for start in range(0, count, BLOCK):
            pairs = min(BLOCK, count - start)
            size = pairs * len(group)
            share = most * (seen + size) // total - most * seen // total
            every = share == size
            chosen = set() if every else set(Random(block).sample(range(size), share))
            rows = zip_longest(*(islice(side, pairs) for side in sides), fillvalue=b"")
            for row, raws in enumerate(rows):
                for side, raw in enumerate(raws):
                    if every or row * len(group) + side in chosen:
                        yield decode(raw, group[side], start + row + 1)
            block, seen, done = block + 1, seen + size, done + pairs
            tell(done)
