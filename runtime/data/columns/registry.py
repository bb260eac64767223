"""Types of columns by name: those that ship with Weft, and those of installed packages."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, cast

from ..readers.registry import plugin
from .column import Column, Context
from .settings import PluginColumnSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..symbols import Vocabulary

COLUMNS = {
    "text": ".text:TextColumn",
    "class": ".labels:ClassColumn",
    "tags": ".labels:TagsColumn",
    "tree": "weft.extensions.parsing.column:TreeColumn",
    "number": ".number:NumberColumn",
    "image": ".image:ImageColumn",
    "audio": ".audio:AudioColumn",
}
"""Type of a column to `file:class`, relative to this folder if it begins with a dot."""


def columns_of(
    settings: Mapping[str, Any],
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
    made: dict[str, Column] = {}
    context = Context(vocabularies, made, files or {})
    for name in sorted(settings, key=lambda name: settings[name].type != "text"):
        own = settings[name]
        made[name] = _class_of(own)(name, own, context)
    return made


def _class_of(settings: Any) -> type[Column]:
    if isinstance(settings, PluginColumnSettings):
        return cast("type[Column]", plugin("weft.columns", settings.plugin, Column))
    file, _, kind = COLUMNS[settings.type].partition(":")
    found: type[Column] = getattr(importlib.import_module(file, __package__), kind)
    return found
