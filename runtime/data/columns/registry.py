"""Column registry: every type of column that a run may use.

To register a column, add a line here.  Installed packages add columns through the entry-point group
`weft.columns`; a run can never name code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...system.plugins import Plugins, implementation_of
from .column_settings import ColumnSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..symbols import Vocabulary
    from .column import Column

SHIPPED = {
    "text": ".column_settings:TextSettings",
    "class": ".column_settings:ClassSettings",
    "tags": ".column_settings:TagsSettings",
    "number": ".column_settings:NumberSettings",
    "image": ".column_settings:ImageSettings",
    "audio": ".column_settings:AudioSettings",
}
"""Type of a shipped column to `file:Class`, relative to this folder."""

COLUMNS: Plugins[ColumnSettings] = Plugins(
    "column type", "weft.columns", ColumnSettings, SHIPPED, __package__
)
"""All types of columns; `COLUMNS.parse({"type": "class"}, place)` returns the settings of one."""


def columns_of(
    settings: Mapping[str, ColumnSettings],
    vocabularies: Mapping[str, Vocabulary],
    files: Mapping[str, bytes] | None = None,
) -> dict[str, Column]:
    """Return the columns of a table: text columns first, as others may refer to them.

    Args:
        settings: settings of the columns by name.
        vocabularies: tokenizers by name.
        files: files that the columns stored, by name.

    Raises:
        InputError: a file is damaged, or a type of an installed package cannot be loaded.
    """
    from .column import Column, ColumnContext  # noqa: PLC0415 - settings are read without torch

    columns: dict[str, Column] = {}
    context = ColumnContext(vocabularies, columns, files or {})
    for name in sorted(settings, key=lambda name: settings[name].type != "text"):
        kind = implementation_of(settings[name], Column)
        columns[name] = kind(name, settings[name], context)
    return columns
