"""Enumeration of all binary trees, the definition that dynamic programs are compared with."""

from __future__ import annotations

from collections.abc import Iterator


def trees(i: int, j: int) -> Iterator[frozenset[tuple[int, int]]]:
    """Yield every binary tree over words i to j, as its spans."""
    if i == j:
        yield frozenset({(i, j)})
    for middle in range(i, j):
        for left in trees(i, middle):
            for right in trees(middle + 1, j):
                yield left | right | {(i, j)}
