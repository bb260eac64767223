"""Commands that extensions and installed packages add."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint

from ...blocks.entry_points import points_of
from ...specs.findings import InputError

GROUP = "weft.commands"
"""Entry points of commands: the name is that of the command, the value `module:function`."""


def added_commands(names: Collection[str]) -> dict[str, EntryPoint]:
    """Return the entry points of commands by name, sorted.

    Args:
        names: the commands that exist without them.

    Raises:
        InputError: a command has the name of another one.
    """
    points: dict[str, EntryPoint] = {}
    for point in points_of(GROUP):
        if point.name in names or point.name in points:
            raise InputError(
                f"a command with the name '{point.name}' already exists",
                place=_origin(point),
                help=f"rename the entry point; or run 'pip uninstall {package_of(point)}'",
            )
        points[point.name] = point
    return dict(sorted(points.items()))


def load(point: EntryPoint) -> None:
    """Import the module of a command, which registers it.

    Raises:
        InputError: it cannot be imported.
    """
    try:
        point.load()
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise InputError(
            f"'{point.value}' cannot be imported: {type(error).__name__}: {text:.200}",
            place=_origin(point),
            help=f"correct or upgrade the package, or run 'pip uninstall {package_of(point)}'",
        ) from error


def package_of(point: EntryPoint) -> str:
    """Return the name of the distribution of an entry point."""
    return point.dist.name if point.dist else "an unknown package"


def _origin(point: EntryPoint) -> str:
    return f"package {package_of(point)}, entry point {point.name}"
