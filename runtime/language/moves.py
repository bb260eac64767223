"""Go to the definition of a name, list its uses, and rename it everywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ...specs.composition.inherit import parent_of
from ...specs.findings import InputError, pointer
from ...specs.form import Name as NameForm
from ...specs.text.places import Source, part_at
from .document import Document, document
from .names import Name, name_at, names
from .problems import TextEdit

_FORM = TypeAdapter[str](NameForm)


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
    if known.loaded is None or found.kind not in keys:
        return None
    file, at = known.loaded.origin_of(found.scope + pointer(*keys[found.kind]))
    if not isinstance(file, Source):
        return None
    part, exact = part_at(file.text, at)
    if not exact:
        return None
    begin, end = part.key or (part.start, part.end)
    return Place(str(file), begin, end, file.text)


def renamable(text: str, offset: int, path: str) -> Name | None:
    """Return the name at an offset if it can be renamed: one that this text defines."""
    known = document(text, path)
    found = name_at(known, offset)
    if found is None or found.kind in ("file", "block"):
        return None
    defined = any(one.defines and one.symbol == found.symbol for one in names(known))
    return found if defined else None


def rename(text: str, offset: int, new: str, path: str) -> list[TextEdit]:
    """Return the edits that rename the name at an offset wherever the text uses it.

    Wires, ties, selections, expressions and outputs follow.  Other files do not.

    Args:
        text: the text of a spec.
        offset: characters from its start.
        new: the new name.
        path: the file.

    Raises:
        InputError: there is nothing to rename, the new name is not a name or is taken, or the
            renamed spec would have a mistake that this one does not have.
    """
    known = document(text, path)
    found = renamable(text, offset, path)
    if found is None:
        raise InputError(
            "there is no name to rename here",
            place=path,
            help="rename a node, template, param, port or axis where this file defines it",
        )
    try:
        _FORM.validate_python(new, strict=True)
    except ValidationError:
        raise InputError(
            f"'{new}' is not a name",
            place=path,
            help="start with a letter, and use letters, digits and underscores",
        ) from None
    taken = (found.kind, found.scope, new)
    if new != found.name and any(one.defines and one.symbol == taken for one in names(known)):
        raise InputError(f"the name '{new}' is taken", place=path, help="choose another name")
    same = dict.fromkeys((one.start, one.end) for one in names(known) if one.symbol == found.symbol)
    edits = [TextEdit(start, end, new) for start, end in same]
    made = apply(text, edits)
    codes = {one.code for one in known.known.findings}
    wrong = [one for one in document(made, path).known.findings if one.code not in codes]
    if wrong:
        raise InputError(
            f"renamed to '{new}', the spec would be wrong: {wrong[0].problem}",
            place=path,
            help="choose another name, or rename the parts by hand",
        )
    return edits


def apply(text: str, edits: list[TextEdit]) -> str:
    """Return a text after edits of different ranges."""
    for edit in sorted(edits, key=lambda one: one.start, reverse=True):
        text = text[: edit.start] + edit.new + text[edit.end :]
    return text
