"""Entry points of installed packages, which add blocks, metrics, readers and others."""

from __future__ import annotations

import functools
import sys
from importlib.metadata import EntryPoint, entry_points


def points_of(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, such as `weft.blocks`.

    The metadata of all packages is read once for each state of `sys.path`.
    """
    return _all(tuple(sys.path)).get(group, ())


@functools.lru_cache(maxsize=1)
def _all(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:  # noqa: ARG001 - where packages are
    """Return all entry points, by group."""
    found = entry_points()
    return {group: tuple(found.select(group=group)) for group in found.groups}
