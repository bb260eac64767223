"""Entry points of installed packages, which add blocks, metrics, readers and others."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from ..specs.findings import InputError


def points_of(group: str) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group, such as `weft.blocks`.

    The metadata of all packages is read once for each state of `sys.path`.
    """
    return _all(tuple(sys.path)).get(group, ())


@functools.lru_cache(maxsize=1)
def _all(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:  # noqa: ARG001 - where packages are
    """Return all entry points, by group."""
    points = entry_points()
    return {group: tuple(points.select(group=group)) for group in points.groups}


def loaded(point: EntryPoint, base: type | None = None) -> Any:
    """Return what an entry point names.

    Args:
        point: the entry point.
        base: class that it must extend.

    Raises:
        InputError: it cannot be imported, or is not a subclass of `base`.
    """
    help_ = f"correct or upgrade the package, or run 'pip uninstall {package_of(point)}'"
    return imported(point.load, point.value, base, origin_of(point), help_)


def imported(
    load: Callable[[], Any], name: str, base: type | None, location: str, help_: str
) -> Any:
    """Return what a function imports.

    Args:
        load: imports it.
        name: its module and its name there.
        base: class that it must extend.
        location: who names it.
        help_: the way out if it cannot be imported.

    Raises:
        InputError: it cannot be imported, or is not a subclass of `base`.
    """
    try:
        value = load()
    except Exception as error:
        text = str(error).partition("\n")[0]
        problem = f"'{name}' cannot be imported: {type(error).__name__}: {text:.200}"
        raise InputError(problem, location=location, help=help_) from error
    if base is not None and not (isinstance(value, type) and issubclass(value, base)):
        problem = f"'{name}' is not a subclass of {base.__module__}.{base.__name__}"
        raise InputError(problem, location=location, help=f"derive it from {base.__name__}")
    return value


def package_of(point: EntryPoint) -> str:
    """Return the name of the distribution of an entry point."""
    return point.dist.name if point.dist else "an unknown package"


def origin_of(point: EntryPoint) -> str:
    """Return where an entry point comes from, for messages."""
    return f"package {package_of(point)}, entry point {point.name}"
