"""Go to the definition of a name, and list its uses."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ....plugin import Source, pointer
from ....specs.inherit import parent_of
from ....specs.json_tree import part_at
from ....specs.text_edits import TextEdit
from .document import TextDocument, document
from .names import Name, name_at, names


@dataclass(frozen=True, slots=True)
class FileRange:
    """A range of a file."""

    path: str
    """The file; that of the text itself where the definition is in it."""
    start: int
    end: int
    text: str
    """Text of the file, to which the range refers."""


def definition(text: str, offset: int, path: str) -> FileRange | None:
    """Return where the name at an offset is defined: a node, template, param, input or file.

    A name that the spec inherits is defined in a parent; a block, in Python, has no place.
    """
    doc = document(text, path)
    name = name_at(doc, offset)
    if name is None:
        return None
    if name.kind == "file":
        return _file(name.name, path)
    declaration = next(
        (
            occurrence
            for occurrence in names(doc)
            if occurrence.defines and occurrence.symbol == name.symbol
        ),
        None,
    )
    if declaration is not None:
        return FileRange(path, declaration.start, declaration.end, text)
    return _inherited(doc, name)


def references(text: str, offset: int, path: str) -> list[FileRange]:
    """Return every place in the text that names what the name at an offset names."""
    doc = document(text, path)
    name = name_at(doc, offset)
    same = [occurrence for occurrence in names(doc) if name and occurrence.symbol == name.symbol]
    return [FileRange(path, occurrence.start, occurrence.end, text) for occurrence in same]


def _file(name: str, path: str) -> FileRange | None:
    file = parent_of(name, Path(path))
    if file is None:
        return None
    try:
        text = file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError):
        return None
    return FileRange(str(file), 0, 0, text)


def _inherited(doc: TextDocument, name: Name) -> FileRange | None:
    """Return where a name is defined that a parent of the spec defines."""
    keys: dict[str, tuple[str, ...]] = {
        "node": ("nodes", name.name),
        "template": ("blocks", name.name),
        "param": ("params", name.name),
        "axis": ("axes", name.name),
        "input": ("inputs", name.name),
        "output": ("outputs", name.name),
        "port": ("inputs", name.name),
    }
    patch = doc.root.get("patch")
    inside = patch is not None and patch.start <= name.start < patch.end
    loaded = doc.base if inside else doc.loaded
    if loaded is None or name.kind not in keys:
        return None
    file, at = loaded.origin_of(name.scope + pointer(*keys[name.kind]))
    if not isinstance(file, Source):
        return None
    part, exact = part_at(file.text, at)
    if not exact:
        return None
    begin, end = part.key or (part.start, part.end)
    return FileRange(str(file), begin, end, file.text)


def apply(text: str, edits: list[TextEdit]) -> str:
    """Return a text after edits of different ranges."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text
