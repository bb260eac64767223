"""Complete a text: the keys and values that fit at an offset."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from .....specs.reader import FOR_EDITORS
from ..document import Document, document, site
from ..positions import Cursor, cursor
from ..schemas import at as schemas_at
from ..schemas import choices, fits
from .items import Item, as_json_value, as_key, as_string, as_word, item
from .keys import keys_at
from .offers import offers

MOST = 400
"""Maximum number of items of one answer."""
_TYPES = ("inputs", "output_types")
_FIRST = {FOR_EDITORS, "format", "name", "doc", "params"}
"""Keys that a text may have before it is clear what it is."""


def complete(text: str, offset: int, path: str) -> list[Item]:
    """Return what can be written at an offset, the best first.

    The items are not filtered by what has been typed, which editors do.

    Args:
        text: a spec, a run or a study, which may be broken.
        offset: characters from its start.
        path: the file.
    """
    known, here = document(text, path), cursor(text, offset)
    if known.kind == "other" and not _begun(known):
        return []
    inside_list = here.role == "gap" and here.value.kind == "list"
    if here.role == "key" or (here.role == "gap" and not inside_list):
        found = _keys(known, here, text)
    else:
        more = (str(_index(here, offset)),) if inside_list else ()
        found = _values(known, here, (*here.value.path, *more), text)
    unique: dict[tuple[str, str], Item] = {}
    for one in found:
        unique.setdefault((one.label, one.new), one)
    return sorted(unique.values(), key=lambda one: one.rank)[:MOST]


def _begun(known: Document) -> bool:
    """Return whether a text may be the beginning of a spec."""
    value = known.root.json()
    return value is None or (isinstance(value, dict) and value.keys() <= _FIRST)


def _index(here: Cursor, offset: int) -> int:
    return sum(entry.end <= offset for entry in here.value.entries)


def _keys(known: Document, here: Cursor, text: str) -> Iterator[Item]:
    outer = here.value.outer if here.role == "key" else here.value
    if outer is None or outer.kind != "object":
        return
    taken = {entry.name for entry in outer.entries if entry is not here.value}
    for made, value in keys_at(known, outer.path):
        if made.label not in taken:
            yield as_key(made, here, text, value)


def _values(known: Document, here: Cursor, path: tuple[str, ...], text: str) -> Iterator[Item]:
    if known.kind == "spec":
        at = site(path)
        key = at.rest[0] if at.rest else ""
        if not at.node and key in _TYPES and len(at.rest) == 2:  # noqa: PLR2004 - key and name
            yield from (as_word(one, here, text) for one in offers(known, path, "type"))
            return
        found = list(offers(known, path, "value"))
        if found:
            yield from (as_string(one, here) for one in found)
            return
        if at.rest[:1] == ("require",):
            yield from (as_word(one, here, text) for one in offers(known, path, "word"))
            return
    else:
        yield from (as_string(one, here) for one in offers(known, path, "file"))
    listed = schemas_at(known.kind, known.root.json(), path, blank=True)
    default = next((one["default"] for one in listed if "default" in one), ...)
    for value, doc in choices(listed).items():
        detail = "default" if value is default or value == default else ""
        yield as_json_value(item(json.dumps(value), "value", detail, doc), value, here)
    if known.kind == "spec":
        yield from _expressions(known, here, path, text, listed)
    if default is not ... and not choices(listed):
        yield as_json_value(item(json.dumps(default), "value", "default", rank=1), default, here)


def _expressions(
    known: Document, here: Cursor, path: tuple[str, ...], text: str, listed: list[Any]
) -> Iterator[Item]:
    """Yield params of the spec that an expression can read here."""
    at = site(path)
    if "params" not in at.rest and at.rest[:1] not in (("repeat",), ("losses",), ("set",)):
        return
    begun = here.quoted and here.typed.startswith("=")
    for one in offers(known, path, "word"):
        value = known.values.get(one.label)
        alone = here.typed.lstrip("=").isidentifier() or len(here.typed) <= 1
        if not begun or alone:
            ok = value is None or fits(listed, value)
            label = f"={one.label}"
            made = item(label, "param", one.detail, one.doc, rank=0 if ok else 2)
            yield as_string(made, here)
        else:
            yield as_word(one, here, text, "=")
