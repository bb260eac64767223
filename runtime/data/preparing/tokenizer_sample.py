"""Sample of lines for tokenizer training, drawn evenly from all files in a stream."""

from __future__ import annotations

import json
from itertools import islice, zip_longest
from random import Random
from typing import TYPE_CHECKING

from ..text_files import decode, raw_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BLOCK = 10_000
"""Pairs per block; a fixed share of lines is drawn from each block."""


def sampled(
    paths: Sequence[tuple[Path, ...]],
    lines: Sequence[int],
    most: int,
    tell: Callable[[int], None],
    *,
    escaped: bool = False,
) -> Iterator[str]:
    """Yield all lines, or a random sample of `most` lines, in file order with sides alternating.

    Each block of pairs contributes its share, drawn by a generator that is seeded with the
    block number: the same files give the same lines.

    Args:
        paths: groups of files that are read in parallel.
        lines: number of lines in each file, per group.
        most: maximum number of lines to yield.
        tell: progress callback, called with the number of lines done per side.
        escaped: whether each line is a JSON string.

    Raises:
        InputError: a file cannot be read, or a sampled line is not UTF-8.
    """
    total = sum(len(group) * count for group, count in zip(paths, lines, strict=True))
    most = min(most, total)
    block = consumed = done = 0
    for group, count in zip(paths, lines, strict=True):
        sides = [raw_lines(path) for path in group]
        for start in range(0, count, BLOCK):
            pairs = min(BLOCK, count - start)
            size = pairs * len(group)
            share = most * (consumed + size) // total - most * consumed // total
            every = share == size
            chosen = set() if every else set(Random(block).sample(range(size), share))
            rows = zip_longest(*(islice(side, pairs) for side in sides), fillvalue=b"")
            for row, raws in enumerate(rows):
                for side, raw in enumerate(raws):
                    if every or row * len(group) + side in chosen:
                        line = start + row + 1
                        yield json.loads(raw) if escaped else decode(raw, group[side], line)
            block, consumed, done = block + 1, consumed + size, done + pairs
            tell(done)
