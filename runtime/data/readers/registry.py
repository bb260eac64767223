"""Readers by name: those that ship with Weft, and those of installed packages."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from ....blocks.entry_points import points_of
from ....specs.findings import InputError, did_you_mean
from ...system.listing import installed_lines, shipped_lines
from .reader import Reader

if TYPE_CHECKING:
    from .settings import Split

READERS = {
    "lines": ".lines:LinesReader",
    "jsonl": ".jsonl:JsonLinesReader",
    "csv": ".delimited:DelimitedReader",
    "parquet": ".parquet:ParquetReader",
    "images": ".images:ImagesReader",
    "audio": ".audio:AudioReader",
    "hub": ".hub:HubReader",
    "mtdata": ".mtdata:MtdataReader",
    "trees": "weft.extensions.parsing.reader:TreesReader",
}
"""Name of a reader to `file:class`, relative to this folder if it begins with a dot."""
GROUP = "weft.readers"
"""Entry points of the readers that installed packages add."""


def reader_lines() -> dict[str, str]:
    """Return one line about each reader, by name."""
    return {**dict(shipped_lines(READERS, __package__)), **dict(installed_lines(GROUP))}


def reader_of(split: Split, root: str) -> Reader:
    """Return the reader of a split.

    Raises:
        InputError: a reader of an installed package is unknown or cannot be loaded.
    """
    name = split.reader
    settings = getattr(split, name)
    if name == "plugin":
        return cast("Reader", plugin(GROUP, settings.name, Reader)(settings.params, root))
    file, _, kind = READERS[name].partition(":")
    found: type[Reader] = getattr(importlib.import_module(file, __package__), kind)
    return found(settings, root)


def plugin(group: str, name: str, base: type) -> Any:
    """Return the class of an entry point.

    Args:
        group: group of the entry points.
        name: name of the entry point.
        base: class that it must extend.

    Raises:
        InputError: there is no such entry point, or it does not load a subclass of `base`.
    """
    points = {point.name: point for point in points_of(group)}
    if name not in points:
        raise InputError(
            f"no installed package adds '{name}' to '{group}'",
            help=did_you_mean(name, points) or "install the package that adds it",
        )
    try:
        found = points[name].load()
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise InputError(
            f"'{points[name].value}' cannot be imported: {type(error).__name__}: {text:.200}",
            place=f"entry point {name} of {group}",
            help="correct or upgrade its package",
        ) from error
    if not (isinstance(found, type) and issubclass(found, base)):
        raise InputError(
            f"'{points[name].value}' is not a subclass of {base.__name__}",
            place=f"entry point {name} of {group}",
            help="correct or upgrade its package",
        )
    return found
