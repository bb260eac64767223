"""Go to the definition of a name, and list its uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ....plugin import Source
from ....specs.composition.inherit import parent_of
from ....specs.findings import pointer
from ....specs.text.edits import TextEdit
from ....specs.text.places import part_at
from .document import Document, document
from .names import Name, name_at, names


@dataclass(frozen=True, slots=True)
class Place:
    """A range of a file."""

    path: str
    """The file; that of the text itself where the definition is in it."""
    start: int
    end: int
    text: str
    """Text of the file, to which the range refers."""


def definition(text: str, offset: int, path: str) -> Place | None:
    """Return where the name at an offset is defined: a node, template, param, input or file.

    A name that the spec inherits is defined in a parent; a block, in Python, has no place.
    """
    known = document(text, path)
    found = name_at(known, offset)
    if found is None:
        return None
    if found.kind == "file":
        return _file(found.name, path)
    own = next((one for one in names(known) if one.defines and one.symbol == found.symbol), None)
    if own is not None:
        return Place(path, own.start, own.end, text)
    return _inherited(known, found)


def references(text: str, offset: int, path: str) -> list[Place]:
    """Return every place in the text that names what the name at an offset names."""
    known = document(text, path)
    found = name_at(known, offset)
    same = [one for one in names(known) if found and one.symbol == found.symbol]
    return [Place(path, one.start, one.end, text) for one in same]


def _file(name: str, path: str) -> Place | None:
    file = parent_of(name, Path(path))
    if file is None:
        return None
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return Place(str(file), 0, 0, text)


def _inherited(known: Document, found: Name) -> Place | None:
    """Return where a name is defined that a parent of the spec defines."""
    keys: dict[str, tuple[str, ...]] = {
        "node": ("nodes", found.name),
        "template": ("blocks", found.name),
        "param": ("params", found.name),
        "axis": ("axes", found.name),
        "input": ("inputs", found.name),
        "output": ("outputs", found.name),
        "port": ("inputs", found.name),
    }
    patch = known.root.get("patch")
    inside = patch is not None and patch.start <= found.start < patch.end
    loaded = known.base if inside else known.loaded
    if loaded is None or found.kind not in keys:
        return None
    file, at = loaded.origin_of(found.scope + pointer(*keys[found.kind]))
    if not isinstance(file, Source):
        return None
    part, exact = part_at(file.text, at)
    if not exact:
        return None
    begin, end = part.key or (part.start, part.end)
    return Place(str(file), begin, end, file.text)


def apply(text: str, edits: list[TextEdit]) -> str:
    """Return a text after edits of different ranges."""
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text
