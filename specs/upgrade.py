"""Upgrade files of older formats to the current one.

An upgrader converts the JSON value of a file to the next format.  All formats are 1 until a release
has written them, so there are no upgraders yet.  Files are untrusted, so an upgrader leaves unknown
parts unchanged; the reader and the checker report what is wrong with them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

Upgrader = Callable[[dict[str, Any]], dict[str, Any]]
"""Converts a value of one format to the next; it may modify its argument."""

SPECS: Mapping[int, Upgrader] = {}
"""Format of a spec to the function that upgrades it to the next format."""
RUNS: Mapping[int, Upgrader] = {}
"""The same for runs."""
TABLES: Mapping[int, Upgrader] = {}
"""The same for import tables."""

_FAILURES = (LookupError, TypeError, ValueError, AttributeError)
"""Exceptions that an upgrader may raise for an object of an unexpected form."""


def upgrade_format(
    value: Mapping[str, Any], formats: Mapping[int, Upgrader] = SPECS
) -> dict[str, Any]:
    """Return a file's value in the current format.

    Args:
        value: the file's JSON value; it is not modified.
        formats: format to its upgrader.

    Returns:
        The new value.  A value that cannot be upgraded is returned unchanged; the reader then
        rejects it.
    """
    current = dict(value)
    while _format_of(current) in formats:
        number = current["format"]
        try:
            current = {**formats[number](copy.deepcopy(current)), "format": number + 1}
        except _FAILURES:
            break
    return current


def _format_of(value: Mapping[str, Any]) -> int | None:
    number = value.get("format")
    return number if isinstance(number, int) and not isinstance(number, bool) else None
