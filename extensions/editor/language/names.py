"""Names: where each name of a spec is defined and used in its text."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from ....plugin import pointer
from ....specs.json_tree import TextValue
from ....specs.references import Kind, Reference, references
from .document import TextDocument


@dataclass(frozen=True, slots=True)
class Name:
    """One occurrence of a name in a text."""

    kind: Kind
    scope: str
    """Pointer of the scope in which it is defined: empty, or `/blocks/NAME`."""
    name: str
    start: int
    end: int
    defines: bool = False

    @property
    def symbol(self) -> tuple[Kind, str, str]:
        """What all occurrences of one name share."""
        return self.kind, self.scope, self.name


@functools.lru_cache(maxsize=8)
def names(document: TextDocument) -> tuple[Name, ...]:
    """Return every name in the text of a spec, in the order of the text."""
    if document.kind != "spec":
        return ()
    values, value = dict(_values(document.root, "")), document.root.json()
    patched = document.unpatched if "patch" in value else None
    texts = {
        name
        for reference in references(value, document.merged or value, patched)
        if (name := _name(reference, values[reference.at], document.text)) is not None
    }
    return tuple(sorted(texts, key=lambda name: (name.start, name.end, name.symbol)))


def name_at(document: TextDocument, offset: int) -> Name | None:
    """Return the name at an offset; between two names, the shorter one."""
    around = [name for name in names(document) if name.start <= offset <= name.end]
    return min(around, key=lambda name: (name.end - name.start, -name.start), default=None)


def _values(value: TextValue, at: str) -> Iterator[tuple[str, TextValue]]:
    """Yield the values of a tree by JSON Pointer; of a duplicate key, the last one counts."""
    yield at, value
    for entry in value.entries:
        yield from _values(entry, at + pointer(entry.name))


def _name(reference: Reference, value: TextValue, text: str) -> Name | None:
    """Return the place of a reference; None if it is a pattern, or a free word of a type."""
    kind, name = reference.kind, reference.name
    written = value.name if reference.in_key else value.scalar
    span = value.key_inside if reference.in_key else value.inside
    if span is None or kind == "size" or (kind == "template" and "*" in name):
        return None
    start, end = span
    if name != written:
        if text[start:end] != written:
            return None  # an escaped character shifts the places
        start, end = start + reference.start, start + reference.end
    return Name(kind, reference.scope, name, start, end, reference.defines)
