"""Commands that extensions and installed packages add."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint

from ...blocks.entry_points import origin_of, package_of, points_of
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
                location=origin_of(point),
                help=f"rename the entry point; or run 'pip uninstall {package_of(point)}'",
            )
        points[point.name] = point
    return dict(sorted(points.items()))
