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
    doc, caret = document(text, path), cursor(text, offset)
    if doc.kind == "other" and not _begun(doc):
        return []
    inside_list = caret.role == "gap" and caret.value.kind == "list"
    if caret.role == "key" or (caret.role == "gap" and not inside_list):
        candidates = _keys(doc, caret, text)
    else:
        more = (str(_index(caret, offset)),) if inside_list else ()
        candidates = _values(doc, caret, (*caret.value.path, *more), text)
    unique: dict[tuple[str, str], Item] = {}
    for candidate in candidates:
        unique.setdefault((candidate.label, candidate.new), candidate)
    return sorted(unique.values(), key=lambda candidate: candidate.rank)[:MOST]


def _begun(doc: Document) -> bool:
    """Return whether a text may be the beginning of a spec."""
    value = doc.root.json()
    return value is None or (isinstance(value, dict) and value.keys() <= _FIRST)


def _index(caret: Cursor, offset: int) -> int:
    return sum(entry.end <= offset for entry in caret.value.entries)


def _keys(doc: Document, caret: Cursor, text: str) -> Iterator[Item]:
    outer = caret.value.outer if caret.role == "key" else caret.value
    if outer is None or outer.kind != "object":
        return
    taken = {entry.name for entry in outer.entries if entry is not caret.value}
    for key, value in keys_at(doc, outer.path):
        if key.label not in taken:
            yield as_key(key, caret, text, value)


def _values(opened: Document, caret: Cursor, path: tuple[str, ...], text: str) -> Iterator[Item]:
    if opened.kind == "spec":
        at = site(path)
        key = at.rest[0] if at.rest else ""
        if not at.node and key in _TYPES and len(at.rest) == 2:  # noqa: PLR2004 - key and name
            yield from (as_word(word, caret, text) for word in offers(opened, path, "type"))
            return
        candidates = list(offers(opened, path, "value"))
        if candidates:
            yield from (as_string(candidate, caret) for candidate in candidates)
            return
        if at.rest[:1] == ("require",):
            yield from (as_word(word, caret, text) for word in offers(opened, path, "word"))
            return
    else:
        yield from (as_string(file, caret) for file in offers(opened, path, "file"))
    listed = schemas_at(opened.kind, opened.root.json(), path, blank=True)
    default = next((schema["default"] for schema in listed if "default" in schema), ...)
    for value, doc in choices(listed).items():
        detail = "default" if value is default or value == default else ""
        yield as_json_value(item(json.dumps(value), "value", detail, doc), value, caret)
    if opened.kind == "spec":
        yield from _expressions(opened, caret, path, text, listed)
    if default is not ... and not choices(listed):
        yield as_json_value(item(json.dumps(default), "value", "default", rank=1), default, caret)


def _expressions(
    doc: Document, caret: Cursor, path: tuple[str, ...], text: str, listed: list[Any]
) -> Iterator[Item]:
    """Yield params of the spec that an expression can read here."""
    at = site(path)
    if "params" not in at.rest and at.rest[:1] not in (("repeat",), ("losses",), ("set",)):
        return
    begun = caret.quoted and caret.typed.startswith("=")
    for word in offers(doc, path, "word"):
        value = doc.values.get(word.label)
        alone = caret.typed.lstrip("=").isidentifier() or len(caret.typed) <= 1
        if not begun or alone:
            ok = value is None or fits(listed, value)
            label = f"={word.label}"
            expression = item(label, "param", word.detail, word.doc, rank=0 if ok else 2)
            yield as_string(expression, caret)
        else:
            yield as_word(word, caret, text, "=")
